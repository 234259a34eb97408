"""Leave-one-out: how well all other episodes predict one, and how far it is from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from closedform.demos.episode import Episode
from closedform.policies.demonstration_policy import DemonstrationPolicy
from closedform.policies.plan_batch import NEGLIGIBLE, PlanBatch
from closedform.store.model import Model


@dataclass(frozen=True)
class LeftOut:
    """Some windows of an episode, as the policy without that episode sees them.

    Attributes:
        episode: index of the episode.
        steps: (m,), the steps of the windows' latest observations.
        distances: (m,), to the other episodes.
        differences: (m, n, H, D), samples minus recorded actions, in actions normalized to about [-1, 1]; H is the
            common length. NaN beyond the end of the episode.
        departures: (m, n), the distance of each sample to the nearest demonstrated chunk behind it, root mean square
            over its numbers; 0 if it repeats one.
    """

    episode: int
    steps: np.ndarray
    distances: np.ndarray
    differences: np.ndarray
    departures: np.ndarray

    @property
    def rms_error(self) -> float:
        """The root-mean-square error over all samples."""
        return float(np.sqrt(np.nanmean(np.square(self.differences))))


def leave_one_out(
    policy: DemonstrationPolicy[Any],
    *,
    episodes: Sequence[int] | None = None,
    n_windows: int = 10,
    n_samples: int = 1,
    horizon: int | None = None,
    seed: int = 0,
) -> Iterator[LeftOut]:
    """Predicts windows of each episode from all other episodes.

    Args:
        policy: the policy whose episodes are left out, one at a time.
        episodes: indices of the episodes; all by default.
        n_windows: windows per episode, evenly spread.
        n_samples: sampled chunks per window.
        horizon: how many actions of a chunk are compared; all by default.
        seed: of the samples.
    """
    model, store, encoding = policy.model, policy.store, policy.model.transfer.encoding
    _, scale = model.transfer.normalization(model.transfer.world)
    horizon = min(horizon or policy.config.n_action_steps, policy.config.n_action_steps)
    recorded = store.recorded
    for index in range(len(recorded)) if episodes is None else episodes:
        episode = model.spec.rewrites.episodes([recorded[index]])[0]
        if not len(episode):
            continue
        steps = np.unique(np.linspace(0, len(episode) - 1, n_windows).astype(int))
        rest = model.leave_out(int(index))
        windows = windows_at(recorded[index], steps, policy.config.n_obs_steps)
        planner = policy.planner_of(rest)
        made = planner.batch(windows, n_samples, np.random.default_rng(seed), explain=True)
        chunks = planner.planned(made.actions)[:, :, :horizon]
        differences = np.full((*chunks.shape[:3], encoding.width), np.nan)
        for i, step in enumerate(steps):
            done = encoding.encode(episode.actions[step : step + horizon])
            differences[i, :, : len(done)] = encoding.encode(chunks[i])[:, : len(done)] - done
        departures = np.array([_departures(rest, made, i) for i in range(len(steps))])
        yield LeftOut(int(index), steps, made.distances, differences * scale, departures)


def _departures(model: Model, made: PlanBatch, i: int) -> np.ndarray:
    """The departures (n,) of the samples of the i-th window."""
    found = []
    for chunk, weights in zip(made.chunks[i], made.weights[i], strict=True):
        used = made.rows[i, weights > NEGLIGIBLE]
        away = model.normalized_chunks(used, made.choices[i]) - chunk
        found.append(np.sqrt(np.mean(away * away, axis=1).min()))
    return np.array(found)


def windows_at(episode: Episode, steps: np.ndarray, n_obs_steps: int) -> np.ndarray:
    """Windows of observations (m, N_o, D_o) that end at given steps; the first observation is repeated as padding."""
    history = np.arange(n_obs_steps) - n_obs_steps + 1
    chosen = np.maximum(np.asarray(steps)[:, None] + history, 0)
    return np.asarray(episode.observations, np.float64)[chosen]
