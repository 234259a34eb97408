"""The folder of a saved policy: finding it, reading it consistently, and replacing it atomically."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from closedform.errors import ConfigError, LoadError
from closedform.files import crc32_of_bytes, flush, locked, saving, scratch_folder
from closedform.parameters import shown
from closedform.snapshot import Snapshot

FORMAT, NEURAL, EDITED, LEROBOT = "closedform-policy", "closedform-neural", "closedform-edited", "lerobot"
FORMAT_VERSION = 1  # of networks and edited policies
POLICY_VERSION = 3  # of policies made of demonstrations, since version 0.2
FILES = {"config.json", "policy.safetensors", "summary.safetensors", "index.faiss"}
PERCEIVER = "perceiver"  # a subfolder, of a policy that takes images
PERCEIVER_ARRAYS = "perceiver.safetensors"
PROCESSORS = {"policy_preprocessor.json", "policy_postprocessor.json"}  # LeRobot's, which our plugin for it adds
PARTS = {"neural", "conditional", "unconditional", "novel", "familiar"}  # subfolders of an edited policy
_LEROBOT_FILES = re.compile(r"model\.safetensors|policy_\w*normalizer_processor\.safetensors")
ASSETS = Path(__file__).parent.parent / "assets"
SHIPPED = {"pusht-dit": ASSETS / "pusht_dit", "pusht-dit-left": ASSETS / "pusht_dit_left"}  # docs/models.md
SEAL = "config_crc32"
ATTEMPTS = 10  # to read a folder that keeps being replaced

T = TypeVar("T")


def as_path(folder: str | os.PathLike[str]) -> Path:
    """A folder as an absolute path; an error if it is not a path."""
    if not isinstance(folder, str | os.PathLike):
        raise ConfigError(f"expected the path of a folder, found {folder!r}")
    try:
        path = Path(folder).expanduser().resolve()
        path.exists()  # raises an error if the path is invalid
    except (OSError, RuntimeError, ValueError) as error:  # a missing home folder, a name too long, a null byte
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"expected the path of a folder, found {str(folder)[:200]!r}: {reason}") from error
    return path


def find_folder(folder: str | os.PathLike[str]) -> Path:
    """The path of a saved policy; everything that reads one calls this.

    That is the folder itself, the path inside the package of a policy that comes with it, or, after a crash between
    moving the old folder away and the new one in, the path of the old one.
    """
    path = as_path(SHIPPED.get(str(folder), folder))
    return _old(path) if not path.exists() and _old(path).is_dir() else path


def read_folder(folder: str | os.PathLike[str], read: Callable[[Snapshot], T]) -> T:
    """Reads the folder of a saved policy with a function.

    All files are opened before any is read, so that they come from one save. If the folder was replaced meanwhile, they
    are opened again; errors after that are the folder's own.
    """
    for attempt in range(ATTEMPTS):
        last = attempt == ATTEMPTS - 1
        try:
            snapshot = Snapshot(find_folder(folder), _belongs)
        except LoadError:
            if last:
                raise
            continue
        with snapshot:
            try:
                return read(snapshot)
            except LoadError:
                if last or snapshot.unchanged():
                    raise
    raise AssertionError("the last attempt returns or raises")


def _belongs(name: str) -> bool:
    return (
        name in FILES
        or name in PARTS
        or name in (PERCEIVER, PERCEIVER_ARRAYS)
        or _LEROBOT_FILES.fullmatch(name) is not None
    )


def read_content(snapshot: Snapshot) -> dict[str, Any]:
    """The content of config.json, if this version can read the policy."""
    path, content = snapshot.folder / "config.json", snapshot.json("config.json")
    if isinstance(content, dict) and content.get("type") == "diffusion" and "input_features" in content:
        return {**content, "format": LEROBOT}
    if not isinstance(content, dict) or content.get("format") not in [FORMAT, NEURAL, EDITED]:
        raise LoadError(f"{path}: expected format {FORMAT!r}; this is not a policy saved by closedform")
    version = content.get("format_version")
    expected = POLICY_VERSION if content["format"] == FORMAT else FORMAT_VERSION
    if type(version) is not int or version != expected:
        older = type(version) is int and version < expected
        remedy = "an older version of closedform wrote it: fit it again from its demonstrations (closedform fit)"
        newer = "a newer version of closedform wrote it, and reading it needs that version"
        raise LoadError(
            f"{path}: expected format version {expected}, found {shown(version)}; {remedy if older else newer}"
        )
    return content


def whole_number(content: dict[str, Any], name: str, least: int = 0) -> int:
    """An entry that is a 64-bit integer, else a `ValueError`."""
    value = content[name]
    if type(value) is not int or not least <= value < 2**63:
        raise ValueError(f"{name} {shown(value)} instead of a whole number of at least {least}")
    return value


def sealed(content: dict[str, Any]) -> dict[str, Any]:
    """The content of a config.json with a checksum of itself."""
    return {**content, SEAL: _checksum(content)}


def check_seal(snapshot: Snapshot, content: dict[str, Any]) -> None:
    """Verifies the checksum of a configuration; older ones have none."""
    if SEAL in content and content[SEAL] != _checksum(content):
        raise LoadError(
            f"{snapshot.folder / 'config.json'}: checksum mismatch; if you changed it "
            f"on purpose, remove the line {SEAL!r} from it"
        )


def _checksum(content: dict[str, Any]) -> str:
    rest = {name: value for name, value in content.items() if name != SEAL}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()
    return f"{crc32_of_bytes(np.frombuffer(text, np.uint8)):08x}"


def write_content(folder: Path, content: dict[str, Any]) -> None:
    """Writes config.json, with its checksum."""
    (folder / "config.json").write_text(json.dumps(sealed(content), indent=2) + "\n", encoding="utf-8")


def write_folder(folder: Path, write: Callable[[Path], None], keep: tuple[str, ...] = ()) -> None:
    """Writes a folder that appears, or replaces the old one, only when it is completely on disk.

    A crash between moving the old folder away and the new one in leaves the old one beside it, where `find_folder`
    finds it.

    Args:
        folder: the path to write to.
        write: fills an empty folder.
        keep: files of the old folder that the new one keeps.
    """
    with saving(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with scratch_folder(folder) as scratch:
            new = scratch / folder.name
            new.mkdir()
            write(new)
            for path in (*new.rglob("*"), new):
                flush(path)
                path.chmod(0o755 if path.is_dir() else 0o644)  # temporary files are readable by their owner only
            with locked(folder.parent):  # concurrent saves take turns
                restore_folder(folder)
                for name in keep:
                    if (folder / name).exists():
                        _link(folder / name, new / name)
                _replace(folder, new)


def restore_folder(folder: Path) -> None:
    """Moves back the old folder that a crash left beside its path."""
    if not folder.exists() and _old(folder).is_dir():
        _old(folder).rename(folder)


def _replace(folder: Path, new: Path) -> None:
    old = _old(folder)
    if folder.exists():
        shutil.rmtree(old, ignore_errors=True)
        folder.rename(old)
    try:
        new.rename(folder)
    except BaseException:
        restore_folder(folder)
        raise
    flush(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without links
        shutil.copyfile(source, target)
        flush(target)


def _old(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.old") if folder.name else folder


def is_free(folder: Path, replaceable: Callable[[Path], bool]) -> bool:
    """Whether a path is free or a folder that may be replaced; another process may be replacing it right now."""
    with locked(folder.parent):
        return not folder.exists() or replaceable(folder)


def holds_only(folder: Path, allowed: Callable[[str], bool], formats: tuple[str, ...]) -> bool:
    """Whether a folder has only files with allowed names, and a configuration of one of the formats, or is empty."""
    if not folder.is_dir():
        return False
    names = [path.name for path in folder.iterdir()]
    if not all(map(allowed, names)):
        return False
    if "config.json" not in names:
        return not set(names) & {*FILES, *PARTS}
    try:
        with Snapshot(folder, lambda name: name == "config.json") as snapshot:
            return read_content(snapshot)["format"] in formats
    except LoadError:
        return False
