"""AugmentedPolicy: a neural policy extended with demonstrations of situations it has not seen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch

from closedform.editing.augmented import Augmented, log_kernel
from closedform.editing.edited_policy import EditedPolicy, nearest_rows
from closedform.errors import ConfigError
from closedform.neural.policy import NeuralPolicy
from closedform.policies.closed_form import ClosedFormPolicy
from closedform.policies.plan import Plan
from closedform.policies.plan_batch import NEGLIGIBLE, refuse_infinite
from closedform.policies.randomness import Streams
from closedform.weights.metric import squared_distances
from closedform.weights.state import State


class AugmentedPolicy(EditedPolicy):
    """A neural policy with demonstrations of what it has not seen (Algorithm algo:cfdp_augmentation).

    Near the network's training observations, its prediction counts; nearer to the new demonstrations, these do. A
    kernel measures how near the training data are: in the paper a single Gaussian around the mean of all training
    observations. If the training demonstrations are available (`familiar`), it is instead the sum of their kernels,
    like that of the new demonstrations, since a single Gaussian does not show where the data end.

    Its plans name the demonstrations and the network's share, both averaged over the sampling steps.

    Args:
        neural: the trained policy.
        novel: the new demonstrations (`demonstrations_for`), with geometric features and the local metric.
        familiar: the demonstrations that the network was trained on, with the same parameters; None if unavailable.
        c: the factor of the covariance of the network's kernel: by default the paper's 0.8 for the single Gaussian, and
            1 for those of `familiar`.
        perturb_neural: whether smoothing treats the network's prediction like a demonstration (`Augmented`); by default
            with `familiar`, and not in the paper.
    """

    edit: ClassVar[str] = "augment"
    parts: ClassVar[tuple[str, ...]] = ("novel",)
    optional_parts: ClassVar[tuple[str, ...]] = ("familiar",)

    def __init__(
        self,
        neural: NeuralPolicy,
        novel: ClosedFormPolicy,
        familiar: ClosedFormPolicy | None = None,
        *,
        c: float | None = None,
        perturb_neural: bool | None = None,
    ):
        super().__init__(neural, {"novel": novel} | ({} if familiar is None else {"familiar": familiar}))
        for name, policy in self.demonstrations.items():
            for what, expected in (("features", "geometric"), ("metric", "local_mahalanobis")):
                if getattr(policy.config, what) != expected:
                    found = getattr(policy.config, what)
                    raise ConfigError(f"{what}: expected {expected!r} in {name}, found {found!r}")
        self.c = (0.8 if familiar is None else 1.0) if c is None else c
        self.perturb_neural = familiar is not None if perturb_neural is None else perturb_neural
        self._mean, self._covariance = self._training_data()
        log_kernel(self._mean, self._mean, self._covariance, self.c)  # raises an error if it is unusable

    @property
    def parameters(self) -> dict[str, float | bool]:
        """The width of the network's kernel, and whether it is smoothed."""
        return {"c": self.c, "perturb_neural": self.perturb_neural}

    def _training_data(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance of the network's training data, in the features of the new demonstrations."""
        norm, kernel = self.neural.normalization, self.demonstrations["novel"].model.kernel
        mean = (norm.mean / norm.feature_scale + norm.feature_offset - kernel.offset) * kernel.scale
        stretch = kernel.scale / norm.feature_scale
        regular = kernel.spec.regularization * np.eye(len(mean))  # as in the demonstrations' own covariance
        return mean, norm.covariance * np.outer(stretch, stretch) + regular

    def denoiser(self, windows: np.ndarray, rng: Streams) -> Augmented:
        """The augmented denoiser."""
        return self._denoiser(windows, rng)[0]

    def _denoiser(self, windows: np.ndarray, rng: Streams) -> tuple[Augmented, list[np.ndarray]]:
        """The denoiser, and the rows of the new demonstrations near each of the windows."""
        policy = self.demonstrations["novel"]
        (queries, rows), shifts = nearest_rows(policy, windows), self.perturbations(policy, rng.spawn())
        weights = [log_weights(policy, *each) for each in zip(queries, rows, strict=True)]
        form = self.closed_form(policy, rows, weights, shifts)
        own = self.neural.tensor(self._neural_log_weights(windows)[:, None])
        neural = self.neural.denoiser(self.neural.features_of(windows))
        return Augmented(neural, form, own, self.perturb_neural), rows

    def _neural_log_weights(self, windows: np.ndarray) -> np.ndarray:
        """The log weights of the neural point, (B,)."""
        familiar, novel = self.demonstrations.get("familiar"), self.demonstrations["novel"].model.kernel
        if familiar is None:
            queries = novel.features(windows)
            return np.array([log_kernel(z, self._mean, self._covariance, self.c) for z in queries])
        # Their densities are in units of their own features, not those of the new demonstrations.
        unit = float(np.sum(np.log(familiar.model.kernel.scale / novel.scale)))
        pairs = zip(*nearest_rows(familiar, windows), strict=True)
        return np.array([np.logaddexp.reduce(log_weights(familiar, *pair, self.c)) for pair in pairs]) + unit

    def step_together(
        self, windows: Sequence[np.ndarray], states: Sequence[State], rngs: Sequence[np.random.Generator]
    ) -> list[tuple[Plan, State]]:
        """Plans for several agents in one batch; plans name the demonstrations and the network's share."""
        stacked, rng = np.stack(windows), Streams(rngs)
        denoiser, rows = self._denoiser(stacked, rng)
        steps: list[Any] = []
        actions = refuse_infinite(self.neural.sample_with(replace(denoiser, watch=steps.append), 1, rng))
        shares = torch.stack(steps).mean(0)[:, 0].cpu().numpy().astype(np.float64)
        return [(self._plan(actions[i, 0], stacked[i], rows[i], shares[i]), state) for i, state in enumerate(states)]

    def _plan(self, actions: np.ndarray, window: np.ndarray, rows: np.ndarray, shares: np.ndarray) -> Plan:
        used = np.flatnonzero(shares[:-1] > NEGLIGIBLE)
        used = used[np.argsort(-shares[used], kind="stable")]
        store, rows = self.demonstrations["novel"].store, rows[used]
        return Plan(
            actions=actions,
            frame="world",
            episodes=store.episode_ids[store.row_episodes[rows]],
            steps=store.row_steps[rows],
            copies=store.copies_of(rows),
            weights=shares[used],
            distance=self.neural.distance(window),
            neural_share=float(shares[-1]),
        )


def log_weights(policy: ClosedFormPolicy, query: np.ndarray, rows: np.ndarray, c: float = 1.0) -> np.ndarray:
    """Normalized log weights of demonstrations with c h^2 times the local covariance. (D_z,), (k,) -> (k,)."""
    kernel, features = policy.model.kernel, policy.model.features_at(rows)
    width, factor = c * kernel.h**2, kernel.local_factor(features)
    log_det = 2 * float(np.sum(np.log(np.diag(factor)))) + len(factor) * math.log(width)
    return -squared_distances(features, query, factor) / (2 * width) - 0.5 * log_det
