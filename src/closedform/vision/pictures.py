"""Checks of pictures, their reduction, and OpenCV where it is used."""

from __future__ import annotations

from typing import Any

import numpy as np

from closedform.errors import DataError, MissingExtraError

_DARK = 3  # of 255: a picture without a brighter number is black
_LONGEST_SIDE = 160  # pixels, of images as they are searched


def opencv() -> Any:
    """OpenCV, or a `MissingExtraError`."""
    try:
        import cv2
    except ImportError as error:
        raise MissingExtraError("cv2", "pixels", "finding bodies in pictures") from error
    return cv2


def check_picture(picture: Any, shape: tuple[int, ...] | None = None) -> np.ndarray:
    """A picture (H, W, 3) of uint8 that is not black.

    Args:
        picture: what was passed.
        shape: the shape of the pictures that bodies were learned from; any if None.
    """
    found = np.asarray(picture)
    if found.dtype != np.uint8 or found.ndim != 3 or found.shape[2] != 3:
        channels_first = found.ndim == 3 and found.shape[0] == 3
        advice = "; move the channels last" if channels_first else ""
        if found.dtype.kind == "f":
            advice += "; multiply by 255 and convert to uint8"
        raise DataError(f"expected a picture (height, width, 3) of uint8, found {found.shape} of {found.dtype}{advice}")
    if shape is not None and found.shape != shape:
        wanted, got = (f"{size[1]}x{size[0]}" for size in (shape, found.shape))
        raise DataError(f"expected a picture of {wanted} pixels, as in the demonstrations, found {got}")
    if found.size == 0 or found.max() <= _DARK:
        raise DataError("expected a picture of the scene, found a black one; is the camera covered?")
    return found


def check_mask(mask: Any, shape: tuple[int, ...]) -> np.ndarray:
    """A mask (H, W) of whole numbers that fits a picture of a shape."""
    found = np.asarray(mask)
    if found.shape != shape[:2] or found.dtype.kind not in "iub":
        raise DataError(
            f"expected a mask of {shape[1]}x{shape[0]} whole numbers, found shape {found.shape} of {found.dtype}"
        )
    return found.astype(np.int64)


def reduced(image: np.ndarray) -> np.ndarray:
    """An image or a mask, divided by the smallest whole number that makes it at most 160 pixels wide and high."""
    cv2, size = opencv(), reduced_size(image.shape)
    if size == image.shape[1::-1]:
        return image
    if image.ndim == 2:  # a number of a body is no brightness
        return cv2.resize(image.astype(np.int32), size, interpolation=cv2.INTER_NEAREST)
    return cv2.resize(np.ascontiguousarray(image), size, interpolation=cv2.INTER_AREA)


def reduced_size(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Width and height of reduced images."""
    factor = -(-max(shape[:2]) // _LONGEST_SIDE)
    return shape[1] // factor, shape[0] // factor
