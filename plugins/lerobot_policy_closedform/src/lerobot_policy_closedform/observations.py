"""Observations of LeRobot's batches and datasets, as the policy takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from lerobot.utils.constants import OBS_ENV_STATE, OBS_PREFIX, OBS_STATE

from closedform import Demos
from closedform.demos.catalog import PUSHT_ACTIONS, PUSHT_OBSERVATIONS
from closedform.errors import DataError
from lerobot_policy_closedform.configuration_closedform import ClosedformConfig

_TEE = np.array([(-60, 0), (60, 0), (60, 30), (-60, 30), (-15, 30), (15, 30), (15, 120), (-15, 120)], float)


def observations_of(batch: Mapping[str, Any], config: ClosedformConfig, width: int) -> np.ndarray:
    """The observations (..., D_o) of a batch, D_o being the width that the policy expects."""
    names = config.observation_keys or [name for name in (OBS_STATE, OBS_ENV_STATE) if name in batch]
    names = names or sorted(name for name in batch if name.startswith(OBS_PREFIX) and batch[name].ndim < 4)
    missing = [name for name in names if name not in batch]
    if missing or not names:
        found = ", ".join(name for name in batch if name.startswith(OBS_PREFIX)) or "none"
        raise DataError(f"expected the observations {', '.join(names) or OBS_STATE}, found {found}")
    parts = [batch[name].detach().cpu().numpy().astype(np.float64) for name in names]
    seen = np.concatenate(parts, axis=-1)
    if config.keypoints is not None and seen.shape[-1] == 2 + _TEE.size:
        seen = pusht_poses(seen)
    if seen.shape[-1] != width:
        sizes = ", ".join(f"{name} of {part.shape[-1]}" for name, part in zip(names, parts, strict=True))
        hint = "; --policy.keypoints=pusht makes poses of Push-T's keypoints" if seen.shape[-1] == 18 else ""
        raise DataError(f"expected observations of {width} numbers, found {sizes}{hint}")
    return seen


def pusht_poses(observations: np.ndarray) -> np.ndarray:
    """LeRobot's Push-T (..., 18), the agent and eight keypoints of the block, as agent and pose of the block (..., 5).

    The pose is the least-squares fit of the block's outline to the keypoints.
    """
    points = observations[..., 2:].reshape(*observations.shape[:-1], *_TEE.shape)
    middle, own = points.mean(-2), _TEE - _TEE.mean(0)
    rest = points - middle[..., None, :]
    cosine = (rest * own).sum((-1, -2))
    sine = (own[:, 0] * rest[..., 1] - own[:, 1] * rest[..., 0]).sum(-1)
    angle = np.arctan2(sine, cosine)
    (x, y), c, s = _TEE.mean(0), np.cos(angle), np.sin(angle)
    origin = middle - np.stack([c * x - s * y, s * x + c * y], axis=-1)
    return np.concatenate([observations[..., :2], origin, (angle % (2 * np.pi))[..., None]], axis=-1)


def with_poses(demos: Demos) -> Demos:
    """Demonstrations of LeRobot's Push-T with poses instead of keypoints; those that have poses stay as they are."""
    if demos.observation_layout.width == PUSHT_OBSERVATIONS.width:
        return demos
    if demos.observation_layout.width != 2 + _TEE.size or demos.action_layout.width != PUSHT_ACTIONS.width:
        found = f"{demos.observation_layout.width} and {demos.action_layout.width}"
        raise DataError(f"keypoints: expected Push-T with observations of 18 numbers and actions of 2, found {found}")
    pairs = [(pusht_poses(episode.observations.astype(np.float64)), episode.actions) for episode in demos]
    return Demos(pairs, PUSHT_OBSERVATIONS, PUSHT_ACTIONS, demos.rate, demos.tasks)
