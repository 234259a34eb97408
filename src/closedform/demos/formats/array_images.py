"""Images in arrays of zarr and HDF5 files, read chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from closedform.demos.formats.hdf5 import check_numbers, member, open_hdf5
from closedform.demos.formats.sizes import Sizes
from closedform.demos.formats.zarr_arrays import ZarrArray
from closedform.demos.formats.zarr_store import ZarrStore
from closedform.errors import ClosedFormError, LoadError


@dataclass(frozen=True)
class ZarrImages:
    """An array (N, H, W, 3) in a zarr group.

    Attributes:
        path: of the group.
        name: of the array, such as `data/img`.
    """

    path: Path
    name: str

    def __str__(self) -> str:
        return f"{self.path}: {self.name}"

    def read(self, numbers: Iterable[int]) -> Iterator[np.ndarray]:
        """Images by their numbers; only one chunk of them is in memory."""
        try:
            with ZarrStore(self.path) as store:
                array, block, start = ZarrArray.open(store, self.name), np.empty(0), 0
                for number in numbers:
                    if not start <= number < start + len(block):
                        start = number - number % array.n_rows
                        block = array.rows(start, Sizes(self.path, store.stored))
                    yield block[number - start]
        except ClosedFormError:
            raise
        except Exception as error:  # parsers of damaged files raise anything
            raise LoadError(f"{self}: expected images, found {error!r}") from error


@dataclass(frozen=True)
class Hdf5Images:
    """An array (N, H, W, 3) in an HDF5 file.

    Attributes:
        path: of the file.
        name: of the array, such as `data/demo_0/obs/agentview_image`.
    """

    path: Path
    name: str

    def __str__(self) -> str:
        return f"{self.path}: {self.name}"

    def read(self, numbers: Iterable[int]) -> Iterator[np.ndarray]:
        """Images by their numbers, one after the other."""
        with open_hdf5(self.path, "reading images", f"images in {self.name}") as (file, _):
            dataset = member(self.path, file, self.name)
            check_numbers(self.path, dataset)
            for number in numbers:
                yield dataset[number]
