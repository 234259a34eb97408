"""Manifests: the checksums of a download in NAME.sha256 beside it, in the format of `sha256sum -c`."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from closedform.errors import LoadError
from closedform.files import replacing

_LINE = re.compile(r"([0-9a-f]{64})  (.+)")


def manifest_of(path: Path) -> Path:
    """The path of the checksums of a file or folder."""
    return path.with_name(path.name + ".sha256")


def sha256_of(path: Path) -> str:
    """The sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _files(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]


def write_manifest(path: Path) -> None:
    """Records the sha256 of a file, or of every file in a folder."""
    lines = [f"{sha256_of(file)}  {file.relative_to(path.parent).as_posix()}\n" for file in _files(path)]
    with replacing(manifest_of(path)) as new:
        new.write_text("".join(lines), encoding="utf-8")


def read_manifest(path: Path) -> dict[str, str] | None:
    """The sha256 of each file by its name relative to the parent of `path`; None without a manifest."""
    manifest = manifest_of(path)
    if not manifest.is_file():
        return None
    try:
        lines = manifest.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise LoadError(f"{manifest}: expected checksums, found {error}") from error
    matches = [_LINE.fullmatch(line) for line in lines]
    noted = {match[2]: match[1] for match in matches if match}
    if len(noted) < len(lines) or not noted:
        raise LoadError(f"{manifest}: expected lines of sha256 and name, found other lines; fix or remove it")
    return noted


def check_manifest(path: Path) -> int | None:
    """Compares a file or folder with its manifest; returns the number of files, or None without a manifest."""
    noted = read_manifest(path)
    if noted is None:
        return None
    found = {file.relative_to(path.parent).as_posix(): file for file in _files(path)}
    for name, sha256 in noted.items():
        if name not in found:
            raise LoadError(f"{path}: expected {name}, which {manifest_of(path).name} lists, found no such file")
        if sha256_of(found[name]) != sha256:
            raise LoadError(f"{found[name]}: checksum mismatch: expected sha256 {sha256}, that of the download")
    return len(noted)
