"""Images of an episode: references to where they are stored, read one after the other when they are needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, overload

import numpy as np

from closedform.errors import DataError, LoadError


class ImageSource(Protocol):
    """Where the images of a camera are stored; its text names the place, for messages."""

    def read(self, numbers: Iterable[int]) -> Iterator[Any]:
        """Images by their numbers, which increase; anything that goes wrong raises `LoadError`."""
        ...


@dataclass(frozen=True)
class Images(Sequence[np.ndarray]):
    """The images of one camera in one episode, (H, W, 3) of uint8 each.

    They are not in memory: iterating reads one after the other.

    Attributes:
        source: where they are stored.
        start, stop: the numbers of the first and of the one after the last, in the source.
    """

    source: ImageSource
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def __iter__(self) -> Iterator[np.ndarray]:
        return self.at(range(len(self)))

    @overload
    def __getitem__(self, index: int) -> np.ndarray: ...
    @overload
    def __getitem__(self, index: slice) -> Images: ...
    def __getitem__(self, index: int | slice) -> np.ndarray | Images:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                raise DataError(f"images: expected consecutive ones, found every {step}; see Images.at")
            return Images(self.source, self.start + start, self.start + max(start, stop))
        return next(self.at([range(len(self))[index]]))

    def at(self, steps: Iterable[int]) -> Iterator[np.ndarray]:
        """The images of some steps of the episode, which increase."""
        numbers = [self.start + step for step in steps]
        found = self.source.read(numbers)
        for number in numbers:
            image = next(found, None)
            if image is None:
                raise LoadError(f"{self.source}: expected an image of number {number}, found the end")
            yield as_image(image, f"{self.source}: image {number}")


def as_image(image: Any, where: str) -> np.ndarray:
    """An image (H, W, 3) of uint8; those of floating-point numbers from 0 to 255 are rounded."""
    found = np.asarray(image)
    if found.ndim != 3 or found.shape[2] != 3 or not found.size:
        advice = "; move the channels last" if found.ndim == 3 and found.shape[0] == 3 else ""
        raise LoadError(f"{where}: expected (height, width, 3), found shape {found.shape}{advice}")
    if found.dtype == np.uint8:
        return found
    if found.dtype.kind != "f":
        raise LoadError(f"{where}: expected uint8, found {found.dtype}")
    least, most = float(found.min()), float(found.max())
    if not (least >= 0 and 1 < most <= 255):
        advice = "; multiply by 255" if 0 <= least <= most <= 1 else ""
        raise LoadError(f"{where}: expected numbers from 0 to 255, found {least:g} to {most:g}{advice}")
    return np.round(found).astype(np.uint8)
