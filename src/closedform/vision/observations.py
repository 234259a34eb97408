"""Observations as dictionaries: where in them the images of a camera and the state are.

An image has the name of its camera in the demonstrations, all of it or what follows its last dot; the image of an only
camera may also be `image`, `pixels` or `observation.image`. The state is `state`, `agent_pos` or `observation.state`.
Images are (H, W, 3) of uint8; under LeRobot's names, which start with `observation.`, also (3, H, W) from 0 to 1. There
a first axis of length 1, a batch of one, is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from closedform.demos.episode import real_array
from closedform.errors import DataError
from closedform.geometry.layout import Layout

_LEROBOT = "observation."
_IMAGES = ("image", "pixels", "observation.image")
_STATES = ("state", "agent_pos", "observation.state")


def find_image(observation: Mapping[str, Any], camera: str, cameras: Sequence[str]) -> np.ndarray:
    """The image of one of the cameras, which is not checked."""
    short = camera.rsplit(".", 1)[-1]
    names = (camera, short, f"observation.images.{short}", *(_IMAGES if len(cameras) == 1 else ()))
    for name in names:
        if name in observation:
            return _image(observation[name], name)
    raise DataError(f"expected an image of the camera {camera!r}, found {_names(observation)}")


def find_state(observation: Mapping[str, Any], layout: Layout, cameras: Sequence[str]) -> np.ndarray:
    """The numbers (D_s,) that are observed besides the images."""
    for name in _STATES:
        if name in observation and name not in cameras:
            state = real_array(observation[name], name)
            if name.startswith(_LEROBOT) and state.ndim == 2 and len(state) == 1:
                state = state[0]
            if state.shape != (layout.width,):
                raise DataError(f"{name}: expected {layout.width} numbers, found shape {state.shape}")
            if not np.isfinite(state).all():
                raise DataError(f"{name}: expected finite numbers, found {state[~np.isfinite(state)][0]}")
            return state
    raise DataError(f"expected the state as {', '.join(_STATES)}, found {_names(observation)}")


def _image(value: Any, name: str) -> np.ndarray:
    """An image as an array, with LeRobot's converted to (H, W, 3) of uint8."""
    if hasattr(value, "detach"):  # a torch tensor
        value = value.detach().cpu().numpy()
    image = np.asarray(value)
    if not name.startswith(_LEROBOT):
        return image
    if image.ndim == 4 and len(image) == 1:
        image = image[0]
    if image.dtype.kind == "f" and image.ndim == 3 and image.shape[0] == 3 and image.shape[2] != 3:
        if not (image.min() >= 0 and image.max() <= 1):
            raise DataError(f"{name}: expected numbers from 0 to 1, found {image.min():g} to {image.max():g}")
        return np.round(255 * image.transpose(1, 2, 0)).astype(np.uint8)
    return image


def _names(observation: Mapping[str, Any]) -> str:
    return ", ".join(map(str, list(observation)[:20])) or "nothing"
