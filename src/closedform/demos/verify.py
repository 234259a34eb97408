"""Verifying demonstrations: reads all of them, and says what was compared with a checksum and what has none."""

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
    """What was found when demonstrations were read; damage is an error instead.

    Attributes:
        path: of the demonstrations.
        format: that they are in.
        n_episodes, n_steps: what was read.
        verified: what was compared with checksums, in words.
        unverified: what could not be, in words.
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
    """Reads all demonstrations of a path, or of a dataset's name, and compares them with every checksum there is."""
    path = Path(source)
    if str(source) in CATALOG and not path.exists():
        path = dataset_path(str(source))
    reader = find_reader(path)
    verified, unverified = [], []
    n_files = sum(check_manifest(part) or 0 for part in _with_manifest(path))
    if n_files:
        verified.append(f"{n_files} files as they were downloaded (sha256)")
    demos = load_demos(path, finite=False)
    if demos.verified:
        verified.append(f"{demos.verified} of {len(demos)} episodes as closedform wrote them (crc32)")
    if reader is lerobot:
        verified.append("pages of parquet files, where they have checksums")
    if reader in (replay_buffer, arrays) and zipfile.is_zipfile(path):
        verified.append("what was read of the zip (crc32)")
    elif demos.verified < len(demos) and not n_files:
        unverified.append(
            f"{len(demos) - demos.verified} of {len(demos)} episodes: there is no checksum, so that a changed number "
            "would not be noticed; 'closedform convert' writes them with checksums"
        )
    return Verification(str(path), reader.NAME, len(demos), demos.n_steps, tuple(verified), tuple(unverified))


def _with_manifest(path: Path) -> list[Path]:
    """The path and what is inside of it, as far as checksums lie beside it."""
    inside = (file.with_name(file.name.removesuffix(".sha256")) for file in path.rglob("*.sha256"))
    return [part for part in (path, *sorted(inside)) if manifest_of(part).is_file()]
