"""Folders of image files: `CAMERA/episode_000000/*.png`, or without CAMERA if there is only one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from closedform.demos.images import Images
from closedform.errors import LoadError, MissingExtraError

ONLY = "image"  # the name of a camera that has none
_EPISODE = re.compile(r"episode[_-]?([0-9]{1,15})")
_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp")
_LARGEST = 1 << 28  # bytes of a file


@dataclass(frozen=True)
class ImageFiles:
    """The images of an episode, a file each.

    Attributes:
        folder: where they are.
        names: of the files, in order.
    """

    folder: Path
    names: tuple[str, ...]

    def __str__(self) -> str:
        return str(self.folder)

    def read(self, numbers: Iterable[int]) -> Iterator[np.ndarray]:
        """Images by their numbers."""
        return (read_image(self.folder / self.names[number]) for number in numbers)


def find_images(folder: Path, numbers: Sequence[int]) -> dict[str, list[Images]]:
    """The images of each camera in a folder, for the episodes of these numbers."""
    children = _folders(folder)
    if any(_EPISODE.fullmatch(child.name) for child in children):
        return {ONLY: _episodes(folder, children, numbers)}
    if not children:
        raise LoadError(f"{folder}: expected folders CAMERA/episode_N or episode_N of images, found none")
    return {child.name: _episodes(child, _folders(child), numbers) for child in children}


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(child for child in folder.iterdir() if child.is_dir())
    except OSError as error:
        raise LoadError(f"{folder}: expected a folder of images, found {error.strerror}") from error


def _episodes(folder: Path, children: Sequence[Path], numbers: Sequence[int]) -> list[Images]:
    by_number: Mapping[int, Path] = {int(m[1]): child for child in children if (m := _EPISODE.fullmatch(child.name))}
    found = []
    for number in numbers:
        if number not in by_number:
            raise LoadError(f"{folder}: expected the images of episode {number} in episode_{number:06d}, found none")
        names = [path.name for path in by_number[number].iterdir() if path.suffix.lower() in _SUFFIXES]
        files = ImageFiles(by_number[number], tuple(sorted(names, key=_order)))
        found.append(Images(files, 0, len(names)))
    return found


def _order(name: str) -> tuple[int, str]:
    """By the last number in a name, so that 10 comes after 9."""
    digits = re.findall(r"[0-9]{1,15}", name)
    return int(digits[-1]) if digits else -1, name


def read_image(path: Path) -> np.ndarray:
    """An image file as (H, W, 3) of uint8."""
    try:
        if path.stat().st_size > _LARGEST:
            raise LoadError(f"{path}: expected at most {_LARGEST} bytes, found {path.stat().st_size}")
        return decode_image(path.read_bytes(), str(path))
    except OSError as error:
        raise LoadError(f"{path}: expected an image, found {error.strerror}") from error


def decode_image(data: bytes, where: str) -> np.ndarray:
    """The content of an image file as (H, W, 3) of uint8."""
    cv2 = require_cv2()
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR) if data else None
    if pixels is None:
        raise LoadError(f"{where}: expected an image, found something else or a damaged file")
    return cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)


def read_mask(path: Path) -> np.ndarray:
    """An image file of one channel, such as the numbers of bodies, as (H, W)."""
    cv2 = require_cv2()
    try:
        data = np.frombuffer(path.read_bytes(), np.uint8)
    except OSError as error:
        raise LoadError(f"{path}: expected a mask, found {error.strerror}") from error
    pixels = cv2.imdecode(data, cv2.IMREAD_UNCHANGED) if len(data) else None
    if pixels is None or pixels.ndim != 2:
        found = "something else" if pixels is None else f"{pixels.shape[2]} channels"
        raise LoadError(f"{path}: expected a mask, an image of one channel, found {found}")
    return pixels


def encode_image(image: np.ndarray) -> bytes:
    """An image as a PNG file."""
    cv2 = require_cv2()
    return cv2.imencode(".png", image if image.ndim == 2 else cv2.cvtColor(image, cv2.COLOR_RGB2BGR))[1].tobytes()


def require_cv2() -> Any:
    """OpenCV, which decodes images."""
    try:
        import cv2
    except ImportError as error:
        raise MissingExtraError("cv2", "pixels", "reading images") from error
    return cv2
