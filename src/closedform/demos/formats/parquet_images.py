"""Images in the parquet files of a LeRobot dataset, encoded as PNG or JPEG, a batch at a time in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from closedform.demos.formats.common import require
from closedform.demos.formats.image_files import decode_image
from closedform.demos.formats.lerobot_tables import read_columns
from closedform.demos.images import Images
from closedform.errors import ClosedFormError, LoadError

_PURPOSE = "reading a LeRobot dataset"
_BATCH = 64  # rows


@dataclass(frozen=True)
class ParquetImages:
    """A column of images.

    Attributes:
        files: in order.
        counts: the rows of each.
        name: of the column.
    """

    files: tuple[Path, ...]
    counts: tuple[int, ...]
    name: str

    def __str__(self) -> str:
        return f"{self.files[0].parent.parent}: {self.name}"

    def read(self, numbers: Iterable[int]) -> Iterator[np.ndarray]:
        """Images by their numbers, which increase."""
        ends = np.cumsum(self.counts)
        rows, file, at = iter(()), -1, -1
        try:
            for number in numbers:
                wanted = int(np.searchsorted(ends, number, side="right"))
                if wanted != file:
                    file, at = wanted, int(ends[wanted]) - self.counts[wanted] - 1
                    rows = self._rows(self.files[file])
                value = None
                while at < number:
                    value, at = next(rows), at + 1
                data = value.get("bytes") if isinstance(value, dict) else None
                if not data:
                    raise LoadError(f"{self.files[file]}: expected an image in {self.name}, found none in row {at}")
                yield decode_image(data, f"{self.files[file]}: {self.name}, row {at}")
        except (ClosedFormError, GeneratorExit):
            raise
        except Exception as error:  # parsers of damaged files raise anything
            raise LoadError(f"{self}: expected images, found {error!r}") from error

    def _rows(self, path: Path) -> Iterator[Any]:
        with require("pyarrow.parquet", _PURPOSE).ParquetFile(path) as file:
            for batch in file.iter_batches(_BATCH, columns=[self.name]):
                for value in batch.column(0):
                    yield value.as_py()


def find_stored(path: Path, info: dict[str, Any], ends: np.ndarray) -> dict[str, list[Images]]:
    """References to the images of each camera that is stored in parquet, for each episode.

    Files whose rows are not in the order of the dataset's index are left alone.
    """
    names = [name for name, feature in info["features"].items() if feature.get("dtype") == "image"]
    if not names or "index" not in info["features"]:
        return {}
    files = sorted((path / "data").glob("chunk-*/*.parquet"))
    table, file_of_row = read_columns(path, files, ["index"], optional=())
    if not np.array_equal(table["index"][:, 0], np.arange(ends[-1])):
        return {}
    counts = tuple(np.bincount(file_of_row, minlength=len(files)).tolist())
    starts = [0, *ends[:-1].tolist()]
    return {
        name: [
            Images(ParquetImages(tuple(files), counts, name), *span) for span in zip(starts, ends.tolist(), strict=True)
        ]
        for name in names
    }
