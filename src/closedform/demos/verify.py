"""Verification: reads all demonstrations, and reports what matched a checksum and what has none."""

from __future__ import annotations

import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from closedform.demos.catalog import CATALOG, dataset_path
from closedform.demos.formats import arrays, lerobot, replay_buffer
from closedform.demos.load import find_reader, load_demos
from closedform.demos.manifest import check_manifest, manifest_of


@dataclass(frozen=True)
class Verification:
    """The report on demonstrations that were read in full; damage raises an error instead.

    Attributes:
        path: of the demonstrations.
        format: their format.
        n_episodes, n_steps: how many were read.
        verified: descriptions of what matched its checksums.
        unverified: descriptions of what has no checksum.
    """

    path: str
    format: str
    n_episodes: int
    n_steps: int
    verified: tuple[str, ...]
    unverified: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The fields as plain lists and dictionaries."""
        return asdict(self)


def verify_demos(source: str | Path) -> Verification:
    """Reads all demonstrations and checks them against every checksum there is.

    Args:
        source: a path, or the name of a dataset.
    """
    path = Path(source)
    if str(source) in CATALOG and not path.exists():
        path = dataset_path(str(source))
    reader = find_reader(path)
    verified, unverified = [], []
    n_files = sum(check_manifest(part) or 0 for part in _with_manifest(path))
    if n_files:
        verified.append(f"{n_files} downloaded files (sha256)")
    demos = load_demos(path, finite=False)
    if demos.verified:
        verified.append(f"{demos.verified} of {len(demos)} episodes written by closedform (crc32)")
    if reader is lerobot:
        verified.append("parquet pages that have checksums")
    if reader in (replay_buffer, arrays) and zipfile.is_zipfile(path):
        verified.append("the files read from the zip (crc32)")
    elif demos.verified < len(demos) and not n_files:
        unverified.append(
            f"{len(demos) - demos.verified} of {len(demos)} episodes have no checksum, so changed numbers would go "
            "unnoticed; 'closedform convert' writes a copy with checksums"
        )
    for camera in demos.cameras:
        count = sum(1 for episode in demos for _ in episode.images[camera])
        unverified.append(f"{count} images of {camera} could be decoded, and have no checksum")
    return Verification(str(path), reader.NAME, len(demos), demos.n_steps, tuple(verified), tuple(unverified))


def _with_manifest(path: Path) -> list[Path]:
    """The path and those inside it that have a manifest beside them."""
    inside = (file.with_name(file.name.removesuffix(".sha256")) for file in path.rglob("*.sha256"))
    return [part for part in (path, *sorted(inside)) if manifest_of(part).is_file()]
