"""OpenCV, imported where it is used."""

from __future__ import annotations

from typing import Any

from closedform.errors import MissingExtraError


def import_cv2(purpose: str) -> Any:
    """The module cv2 with its markers; raises `MissingExtraError` without it."""
    try:
        import cv2
    except ImportError as error:
        raise MissingExtraError("opencv-python", "twin", purpose) from error
    if not hasattr(cv2, "aruco") or not hasattr(cv2.aruco, "ArucoDetector"):
        raise MissingExtraError("opencv-python>=4.8", "twin", purpose)
    return cv2
