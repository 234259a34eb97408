"""Episode: one demonstration as it was recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from closedform.demos.images import Images
from closedform.errors import DataError


@dataclass(frozen=True, eq=False, repr=False)
class Episode:
    """One demonstration: at step t, `observations[t]` was seen and `actions[t]` was commanded.

    Attributes:
        observations: (T, D_o)
        actions: (T, D_a)
        images: T images of each camera, by its name: references to where they are stored.
    """

    observations: np.ndarray
    actions: np.ndarray
    images: Mapping[str, Images] = field(default_factory=dict, kw_only=True)

    def __post_init__(self):
        for name in ("observations", "actions"):
            array = real_array(getattr(self, name), name)
            if array.ndim != 2:
                raise DataError(f"{name} of an episode must be (steps, numbers), found shape {array.shape}")
            if (
                array.flags.writeable or array.base is not None
            ):  # later writes by the caller must not change the episode
                array = array.copy()
                array.flags.writeable = False
            object.__setattr__(self, name, array)
        if len(self.observations) != len(self.actions):
            raise DataError(
                f"an episode has as many observations as actions, found {len(self.observations)} observations "
                f"and {len(self.actions)} actions{one_too_many(len(self.observations), len(self.actions))}"
            )
        for camera, images in self.images.items():
            if len(images) != len(self.actions):
                raise DataError(
                    f"an episode has as many images as actions, found {len(images)} of {camera!r} and "
                    f"{len(self.actions)} actions"
                )

    def __repr__(self) -> str:
        cameras = f", images of {', '.join(self.images)}" if self.images else ""
        n_observed, n_commanded = self.observations.shape[1], self.actions.shape[1]
        return f"Episode({len(self)} steps of {n_observed} observed and {n_commanded} commanded numbers{cameras})"

    @classmethod
    def view(cls, observations: np.ndarray, actions: np.ndarray) -> Episode:
        """An episode that shares its arrays, which must not change and were checked when they were written."""
        episode = object.__new__(cls)
        object.__setattr__(episode, "observations", observations)
        object.__setattr__(episode, "actions", actions)
        object.__setattr__(episode, "images", {})
        return episode

    def __len__(self) -> int:
        return len(self.observations)


def one_too_many(n_observations: int, n_actions: int, n_episodes: int = 1) -> str:
    """A hint for episodes that also have what was observed after their last action; "" for any other lengths."""
    if n_observations != n_actions + n_episodes:
        return ""
    return "; leave out the last observation of each episode, which no action follows: observations[:-1]"


def real_array(value: Any, name: str) -> np.ndarray:
    """Converts `value` to a float32 or float64 array; anything but real numbers is refused."""
    try:
        if hasattr(value, "detach"):  # a torch tensor; numpy does not know all of its types
            value = value.detach().cpu()
            value = value.float().numpy() if str(value.dtype) == "torch.bfloat16" else value.numpy()
        array = np.asanyarray(value)
    except ValueError as error:
        raise DataError(f"{name} must be an array of real numbers, found rows of unequal length") from error
    except (TypeError, RuntimeError) as error:
        raise DataError(f"{name} must be an array of real numbers, found {type(value).__name__}: {error}") from error
    if isinstance(array, np.ma.MaskedArray):
        raise DataError(f"{name} must be an array of real numbers, found one with masked values")
    array = np.asarray(array)
    if array.dtype.kind not in "fiub":
        raise DataError(f"{name} must be an array of real numbers, found dtype {array.dtype}")
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float64)
    return array
