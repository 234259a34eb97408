"""AugmentedPolicy: for a policy that has never been somewhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from closedform.diffusion.sampler import Step
from closedform.editing.augmented import Augmented, log_kernel
from closedform.editing.edited_policy import EditedPolicy, neighbourhoods
from closedform.errors import ConfigError
from closedform.neural.policy import NeuralPolicy
from closedform.policies.closed_form import ClosedFormPolicy
from closedform.policies.demonstration_policy import NEGLIGIBLE
from closedform.policies.neighbourhood import Neighbourhood
from closedform.policies.plan import Plan
from closedform.policies.randomness import Streams
from closedform.retrieval.metric import covariance_factor


class AugmentedPolicy(EditedPolicy):
    """A neural policy with demonstrations of what it has not seen (Algorithm algo:cfdp_augmentation).

    Where observations are like those that the network was trained on, its prediction counts; where they are nearer to
    the demonstrations, these do. Its plans name them, and how large the network's share was.

    Args:
        neural: the trained policy.
        novel: the new demonstrations (`demonstrations_for`), with geometric features and the local metric.
        c: how much wider than its training data the network's kernel is.
    """

    edit: ClassVar[str] = "augment"
    parts: ClassVar[tuple[str, ...]] = ("novel",)

    def __init__(self, neural: NeuralPolicy, novel: ClosedFormPolicy, *, c: float = 0.8):
        super().__init__(neural, {"novel": novel})
        for what, expected in (("features", "geometric"), ("metric", "local_mahalanobis")):
            if getattr(novel.config, what) != expected:
                raise ConfigError(f"{what}: expected {expected!r} in novel, found {getattr(novel.config, what)!r}")
        self.c = c
        self._mean, self._covariance = self._training_data()
        log_kernel(self._mean, self._mean, self._covariance, c)  # says so if it cannot be used

    @property
    def parameters(self) -> dict[str, float]:
        """How much wider the network's kernel is."""
        return {"c": self.c}

    def _training_data(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance of the network's training data, in the features of the new demonstrations."""
        norm, store = self.neural.normalisation, self.demonstrations["novel"]._store
        mean = (norm.mean / norm.feature_scale + norm.feature_offset - store.feature_offset) * store.feature_scale
        stretch = store.feature_scale / norm.feature_scale
        regular = store.spec.regularization * np.eye(len(mean))  # as the demonstrations' own covariance has
        return mean, norm.covariance * np.outer(stretch, stretch) + regular

    def denoiser(self, windows: np.ndarray, rng: Streams) -> Augmented:
        """The augmented denoiser."""
        return self._denoiser(windows, rng)[0]

    def _denoiser(self, windows: np.ndarray, rng: Streams) -> tuple[Augmented, list[Neighbourhood]]:
        policy = self.demonstrations["novel"]
        store, near = policy._store, neighbourhoods(policy, windows)
        shifts = self.perturbations(policy, rng.spawn())
        form = self.closed_form(policy, near, [self._log_weights(one) for one in near], shifts)
        own = [log_kernel(z, self._mean, self._covariance, self.c) for z in store.features_of(windows)]
        neural = self.neural.denoiser(self.neural.features_of(windows))
        return Augmented(neural, form, self.neural.tensor(np.array(own)[:, None])), near

    def _log_weights(self, near: Neighbourhood) -> np.ndarray:
        """Those of demonstrations, whole: their covariance is h^2 times the local one."""
        policy = self.demonstrations["novel"]
        store, h = policy._store, policy._bandwidth(policy._store.feature_scale)
        factor = covariance_factor(store.index.columns[:, near.rows].T, store.spec.regularization)
        log_det = 2 * float(np.sum(np.log(np.diag(factor)))) + 2 * len(factor) * math.log(h)
        return -near.squared_distances / (2 * h**2) - 0.5 * log_det

    def plan_together(
        self, windows: Sequence[np.ndarray], rngs: Sequence[np.random.Generator], memories: Sequence[Any]
    ) -> list[Plan]:
        """Plans for several agents at once, and says which demonstrations and how much of the network are in each."""
        stacked, rng = np.stack(windows), Streams(rngs)
        denoiser, near = self._denoiser(stacked, rng)
        last: list[Step] = []

        def keep(step: Step) -> None:
            last[:] = [step]

        actions = self.neural.sample_with(denoiser, 1, rng, callback=keep)
        shares = self._shares(denoiser, last[0])
        return [self._plan(actions[i, 0], stacked[i], near[i], shares[i]) for i in range(len(stacked))]

    def _shares(self, denoiser: Augmented, step: Step) -> np.ndarray:
        """Those of demonstrations and, last, of the network in the chunks that a step led to, (B, k + 1)."""
        assert denoiser.neural is not None
        shares = denoiser.weights(step.sample, step.time, denoiser.neural(step.sample, step.time))
        return shares[:, 0].cpu().numpy().astype(np.float64)

    def _plan(self, actions: np.ndarray, window: np.ndarray, near: Neighbourhood, shares: np.ndarray) -> Plan:
        used = np.flatnonzero(shares[:-1] > NEGLIGIBLE)
        used = used[np.argsort(-shares[used], kind="stable")]
        store, rows = self.demonstrations["novel"]._store, near.rows[used]
        return Plan(
            actions=actions,
            frame="world",
            episodes=store.episode_ids[store.row_episodes[rows]],
            steps=store.row_steps[rows],
            weights=shares[used],
            distance=self.neural.distance(window),
            neural_share=float(shares[-1]),
        )
