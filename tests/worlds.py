"""Random demonstrations of random robots: layouts, bodies and parameters for tests of what always holds."""

import numpy as np

from closedform import ClosedFormPolicy, Demos, KernelRegressionPolicy, Layout, NearestNeighborPolicy
from closedform.policies.backends.backend import Query

POLICIES = (ClosedFormPolicy, NearestNeighborPolicy, KernelRegressionPolicy)
ROTATIONS = ("quaternion", "quaternion_wxyz", "rotation6d", "rotation6d_rows", "axis_angle", "angle")
CHAINS = (
    ("flow", "euler"),
    ("flow", "ddim"),
    ("flow", "ddpm"),
    ("ddpm_cosine", "ddpm"),
    ("ddpm_cosine", "ddim"),
    ("ddpm_linear", "ddpm"),
    ("ddpm_linear", "ddim"),
)


def random_layout(rng, bodies, *, spatial):
    """Positions, rotations and vectors of some bodies, and binaries and other numbers of none."""
    entries = []
    for body in bodies:
        entries.append((body, "position", 3 if spatial else 2))
        if rng.random() < 0.7:
            entries.append((body, str(rng.choice(ROTATIONS)) if spatial else "angle"))
        if rng.random() < 0.3:
            entries.append((body, "vector", 3 if spatial else 2))
    kept = [entry for entry in entries if rng.random() < 0.9]
    if rng.random() < 0.6:
        kept.append((None, "binary", int(rng.integers(1, 3))))
    if rng.random() < 0.4 or not kept:
        kept.append((None, "other", int(rng.integers(1, 4))))
    return Layout.of(*kept)


def random_values(rng, layout, n):
    """(n, D), random walks, or random rotations and binaries."""
    values = np.cumsum(rng.normal(scale=0.3, size=(n, layout.width)), axis=0)
    for entry, columns in layout.slices():
        if entry.kind in ("quaternion", "quaternion_wxyz"):
            values[:, columns] += rng.normal(size=4)
            values[:, columns] /= np.linalg.norm(values[:, columns], axis=1, keepdims=True)
        elif entry.kind.startswith("rotation6d"):
            turned = np.linalg.qr(rng.normal(size=(n, 3, 3)))[0]
            values[:, columns] = np.concatenate([turned[..., 0], turned[..., 1]], axis=1)
        elif entry.kind == "binary":
            values[:, columns] = np.where(rng.random((n, entry.size)) < 0.5, -1.0, 1.0)
    return values


def random_world(rng):
    """Demonstrations with one or two hands and up to two objects, in the plane or in space."""
    spatial = rng.random() < 0.5
    hands = ["hand"] if rng.random() < 0.7 else ["left", "right"]
    objects = ["cube", "lid"][: int(rng.integers(0, 3))]
    layouts = random_layout(rng, hands + objects, spatial=spatial), random_layout(rng, hands, spatial=spatial)
    lengths = rng.integers(8, 40, size=int(rng.integers(1, 8)))
    return Demos([(random_values(rng, layouts[0], n), random_values(rng, layouts[1], n)) for n in lengths], *layouts)


def random_observations(rng, demos, n):
    """(n, D_o), like those demonstrated, or far away from them."""
    observations = random_values(rng, demos.observation_layout, n)
    for entry, columns in demos.observation_layout.slices():
        if entry.kind in ("position", "vector", "other"):
            observations[:, columns] *= 10 ** rng.uniform(-1, 3)
    observations[0] = demos[0].observations[int(rng.integers(len(demos[0])))]
    return observations


def random_parameters(rng, policy_class):
    """Parameters that are allowed, ordinary or extreme."""

    def power(low, high):
        return float(10 ** rng.uniform(low, high))

    unusual = {
        "n_obs_steps": int(rng.integers(1, 4)),
        "regularization": power(-12, 12),
        "n_neighbors": int(rng.integers(1, 8)),
        "features": str(rng.choice(["identity", "scaled", "geometric"])),
        "metric": str(rng.choice(["euclidean", "global_mahalanobis", "local_mahalanobis"])),
        "shrinkage": float(rng.choice([0.0, 0.5, 1.0])),
        "rotation_weight": power(-6, 6),
        "loop_memory": power(-6, 6),
        "goal_weight": power(-6, 6),
        "frames": str(rng.choice(["auto", "world"])),
        "relevance": bool(rng.random() < 0.5),
    }
    if policy_class is not NearestNeighborPolicy:
        unusual["bandwidth"] = power(-9, 9)
    if policy_class is ClosedFormPolicy:
        unusual["tau"] = float(rng.choice([0.0, power(-6, 6)]))
        unusual["pruning_error"] = float(rng.choice([0.0, 1e-9, 1e-4]))
    chosen = {name: value for name, value in unusual.items() if rng.random() < 0.35}
    chosen["n_action_steps"] = int(rng.integers(1, 9))
    if policy_class is ClosedFormPolicy:
        process, sampler = CHAINS[int(rng.integers(len(CHAINS)))]
        n_diffusion_steps = int(rng.choice([1, 2, 5, 30]))
        chosen |= {"process": process, "sampler": sampler, "n_diffusion_steps": n_diffusion_steps}
        chosen["n_perturbations"] = int(rng.integers(1, 20))
    return chosen


def reference_and_compiled(policy, windows, n_samples=1, seed=1, penalty=None):
    """The plans of both backends for windows (B, N_o, D_o)."""
    penalties = () if penalty is None else [penalty] * len(windows)
    backend, k = policy.planner.backend, policy.planner.k
    return tuple(
        each.fill(policy.model, Query(windows, np.random.default_rng(seed), n_samples, penalties, k, explain=True))
        for each in (backend.reference, backend.compiled)
    )
