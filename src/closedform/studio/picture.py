"""Pictures of a scene for a page, as addresses that contain their data."""

from __future__ import annotations

import base64
import io

import numpy as np

from closedform.errors import DataError, MissingExtraError

_QUALITY = 80
_THUMBNAIL = 132  # pixels


def data_address(image: np.ndarray, largest: int | None = None) -> str:
    """An image (height, width, 3) of uint8 as `data:image/jpeg;base64,...`, scaled down to `largest` pixels."""
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError(error.name or "PIL", "studio", "pictures in the studio") from error
    image = np.asarray(image)
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
        raise DataError(f"render: expected an image (height, width, 3) of uint8, found {image.dtype} {image.shape}")
    made, packed = Image.fromarray(image), io.BytesIO()
    if largest is not None:
        made.thumbnail((largest, largest))
    made.save(packed, "JPEG", quality=_QUALITY)
    return "data:image/jpeg;base64," + base64.b64encode(packed.getvalue()).decode()


def thumbnail(image: np.ndarray) -> str:
    """A small picture of an image."""
    return data_address(image, _THUMBNAIL)
