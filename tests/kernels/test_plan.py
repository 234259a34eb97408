"""The fused kernel equals the reference, whatever the parameters and the data."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import closedform
from closedform import ClosedFormPolicy, Demos, Layout
from closedform.retrieval.penalty import Penalty
from tests.conftest import PLANAR_ACTIONS, planar_demos, random_demos
from tests.retrieval.test_frame import SPATIAL, SPATIAL_ACTION, observations_of

TOLERANCE = 1e-4  # in normalized action units, the default of pruning_error


def compare(policy, windows, n_samples, seed=0, penalty=None):
    """The largest difference between kernel and reference, in normalized action units."""
    model = policy.model
    windows = policy.windows(windows)
    sparse = Penalty.none() if penalty is None else Penalty.of(penalty)
    compiled = policy._generate_compiled(model, windows, n_samples, np.random.default_rng(seed), sparse, explain=True)
    reference = policy._generate_reference(model, windows, n_samples, np.random.default_rng(seed), sparse, explain=True)
    np.testing.assert_array_equal(compiled.choices, reference.choices)
    np.testing.assert_array_equal(compiled.rows, reference.rows)
    np.testing.assert_allclose(compiled.distances, reference.distances, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(compiled.weights, reference.weights, atol=TOLERANCE)
    np.testing.assert_allclose(compiled.weights.sum(-1), 1, atol=1e-5)
    return np.abs(compiled.chunks - reference.chunks).max()


@pytest.mark.parametrize("preset", ["paper", "default"])
def test_on_pusht(pusht, preset):
    rng = np.random.default_rng(0)
    steps = np.concatenate([episode.observations for episode in pusht])
    seen = steps[rng.integers(len(steps), size=12)]
    between = seen + rng.normal(size=seen.shape) * [20, 20, 20, 20, 0.2]
    nowhere = rng.uniform([0, 0, 0, 0, -7], [512, 512, 512, 512, 7], size=(4, 5))
    policy = ClosedFormPolicy(pusht, preset)
    penalty = rng.uniform(size=policy.n_windows) * (rng.uniform(size=policy.n_windows) < 0.1)
    for observations in (seen, between, nowhere):
        assert compare(policy, observations, 1) < TOLERANCE
        assert compare(policy, observations[:4], 2, penalty=penalty) < TOLERANCE


@pytest.mark.parametrize("bandwidth", [1e-3, 0.3, 3.0])
@pytest.mark.parametrize("tau", [0.0, 0.02, 0.3])
def test_on_pusht_with_other_kernels(pusht, bandwidth, tau):
    rng = np.random.default_rng(1)
    steps = np.concatenate([episode.observations for episode in pusht])
    policy = ClosedFormPolicy(pusht, "paper", bandwidth=bandwidth, tau=tau, n_neighbors=400, n_diffusion_steps=40)
    assert compare(policy, steps[rng.integers(len(steps), size=3)], 2) < TOLERANCE


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**31),
    shape=st.tuples(st.integers(1, 5), st.integers(6, 40), st.integers(1, 6), st.integers(1, 4)),
    n_obs_steps=st.integers(1, 3),
    n_action_steps=st.integers(1, 4),
    k=st.one_of(st.none(), st.integers(1, 5)),
    metric=st.sampled_from(["euclidean", "global_mahalanobis", "local_mahalanobis"]),
    tau=st.sampled_from([0.0, 0.05, 0.5]),
    bandwidth=st.floats(0.01, 5),
    chain=st.sampled_from(
        [("flow", "euler"), ("flow", "ddim"), ("flow", "ddpm"), ("ddpm_cosine", "ddpm"), ("ddpm_linear", "ddim")]
    ),
    n_diffusion_steps=st.integers(1, 30),
    pruning_error=st.sampled_from([0.0, 1e-6, 1e-4]),
)
def test_on_random_data(
    seed, shape, n_obs_steps, n_action_steps, k, metric, tau, bandwidth, chain, n_diffusion_steps, pruning_error
):
    rng = np.random.default_rng(seed)
    policy = ClosedFormPolicy(
        random_demos(rng, *shape),
        n_obs_steps=n_obs_steps,
        n_action_steps=n_action_steps,
        n_neighbors=k,
        metric=metric,
        tau=tau,
        n_perturbations=5,
        bandwidth=bandwidth,
        process=chain[0],
        sampler=chain[1],
        n_diffusion_steps=n_diffusion_steps,
        pruning_error=pruning_error,
    )
    windows = rng.normal(size=(3, n_obs_steps, shape[2]))
    assert compare(policy, windows, 2, seed=seed) < TOLERANCE


@pytest.mark.parametrize("frames", ["auto", "world", "block", "block.position", "hand,world"])
def test_in_planar_frames(frames):
    rng = np.random.default_rng(2)
    demos = planar_demos(rng)
    policy = ClosedFormPolicy(demos, frames=frames, n_action_steps=6)
    observations = np.concatenate([episode.observations[::7] for episode in demos])
    assert compare(policy, observations + rng.normal(scale=0.02, size=observations.shape), 2) < TOLERANCE


@pytest.mark.parametrize("frames", ["auto", "can", "hand", "can.position"])
def test_in_spatial_frames(frames):
    rng = np.random.default_rng(3)
    demos = Demos(
        [(observations_of(SPATIAL, rng, 20), observations_of(SPATIAL_ACTION, rng, 20)) for _ in range(4)],
        SPATIAL,
        SPATIAL_ACTION,
    )
    policy = ClosedFormPolicy(demos, frames=frames, n_action_steps=3, tau=0.2)
    assert compare(policy, observations_of(SPATIAL, rng, 10), 2) < TOLERANCE


def test_copied_demonstrations_agree_in_every_frame():
    rng = np.random.default_rng(5)
    demos = planar_demos(rng, n_episodes=1)
    copies = Demos([demos[0]] * 5, demos.observation_layout, demos.action_layout)
    policy = ClosedFormPolicy(copies, n_action_steps=5)
    assert compare(policy, demos[0].observations[::3] + 0.01, 1) < TOLERANCE


def test_repeated_demonstrations():
    observations = np.tile([[0.0, 1.0]], (30, 1))
    demos = Demos([(observations, np.tile([[1.0, 2.0]], (30, 1)))] * 3, Layout.plain(2), PLANAR_ACTIONS)
    policy = ClosedFormPolicy(demos, n_action_steps=4)
    assert compare(policy, observations[:2] + 0.3, 2) < TOLERANCE


def test_faiss_neighbors_are_used():
    rng = np.random.default_rng(4)
    demos = random_demos(rng, 4, 40, 3, 2)
    exact, approximate = (
        ClosedFormPolicy(demos, n_action_steps=4, n_neighbors=50, index=index) for index in ("exact", "faiss")
    )
    observations = rng.normal(size=(5, 3))
    assert compare(approximate, observations, 2) < TOLERANCE
    np.testing.assert_allclose(exact.sample(observations, seed=0), approximate.sample(observations, seed=0))


PLAN = """
import numpy as np, closedform
rng = np.random.default_rng(0)
demos = [(rng.normal(size=(30, 3)), rng.normal(size=(30, 2))) for _ in range(3)]
print(closedform.ClosedFormPolicy(demos, n_action_steps=4).plan(np.zeros(3), seed=0).actions.tolist())
"""


def run_plan(path: Path, code: str = PLAN, **environment: str) -> str:
    keep = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA", "CLOSEDFORM"))}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={**keep, "PYTHONPATH": str(path), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_a_folder_that_cannot_be_written_does_not_break_it(tmp_path):
    """As an installation that belongs to the administrator, used by somebody without a home."""
    install = tmp_path / "install"
    shutil.copytree(
        Path(closedform.__file__).parent, install / "closedform", ignore=shutil.ignore_patterns("__pycache__")
    )
    # For root every folder can be written; a file where numba wants its folder stops everybody.
    (install / "closedform" / "kernels" / "__pycache__").write_text("")
    blocked = tmp_path / "blocked"
    blocked.write_text("")
    environment = {"HOME": str(blocked), "XDG_CACHE_HOME": str(blocked), "PYTHONDONTWRITEBYTECODE": "1"}
    expected = run_plan(Path(closedform.__file__).parents[1])
    assert run_plan(install, **environment) == expected
    assert np.allclose(eval(run_plan(install, CLOSEDFORM_DISABLE_KERNELS="1")), eval(expected), atol=TOLERANCE)


def test_compiled_code_is_kept_on_disk():
    here = Path(closedform.__file__).parents[1]
    planned = run_plan(here)  # compiles, unless another test did
    counted = f"{PLAN}\nfrom closedform.kernels.plan import plan_one\nprint(plan_one.stats)"
    *again, stats = run_plan(here, code=counted).splitlines()
    assert "\n".join(again) == planned.strip()
    assert "cache_hits=Counter({(" in stats and "cache_misses=Counter()" in stats
