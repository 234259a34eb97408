"""Damage to files: changes as plain JSON, which can be drawn at random, applied and saved."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ODD = (None, True, False, -1, 0, 1, 7, 0.5, -0.0, 1e-320, 1e308, -1e308, 2**31, 2**63, 2**64, 10**400, float("nan"))
ODD += (float("inf"), "", "x", "NaN", "²", "$x^{$", "\udcff", "../x", "closedform", [], {}, [[]], [None], {"x": None})
ODD += ("fuzz_canary:run", [1, 2, 3], "9" * 50)
RAW = {"nested": "[" * 100_000 + "]" * 100_000, "digits": "9" * 5000, "overflow": "1e999", "broken": "{,"}
EMBEDDED = "@json"  # a step of a path into JSON: the text here is JSON itself


def draw_changes(rng: np.random.Generator, root: Path) -> list[dict[str, Any]]:
    """One to three random changes of a file, or of the files of a folder."""
    files = sorted(f.relative_to(root).as_posix() for f in root.rglob("*") if f.is_file()) if root.is_dir() else [""]
    changes = []
    for _ in range(int(rng.choice([1, 1, 1, 2, 3]))):
        file = str(rng.choice(files))
        content = (root / file).read_bytes()
        value = as_json(content) if content[:1] in (b"{", b"[") else None
        if value is not None and rng.random() < 0.75:
            changes.append({"file": file, **draw_json_change(rng, value)})
        else:
            changes.append({"file": file, **_draw_byte_change(rng, max(len(content), 1), files)})
    return changes


def draw_json_change(rng: np.random.Generator, value: Any) -> dict[str, Any]:
    """A random change of a value somewhere inside JSON."""
    at: list[Any] = []
    while True:
        if isinstance(value, str) and value[:1] in ("{", "[") and (inside := as_json(value)) is not None:
            at.append(EMBEDDED)
            value = inside
        if not isinstance(value, dict | list) or not value or (at and rng.random() < 0.2):
            break
        keys = sorted(value) if isinstance(value, dict) else range(len(value))
        step = keys[int(rng.integers(len(keys)))]
        at.append(step)
        value = value[step]
    if at and at[-1] != EMBEDDED and rng.random() < 0.15:
        return {"do": "json_delete", "at": at}
    if rng.random() < 0.12:
        return {"do": "json", "at": at, "raw": str(rng.choice(list(RAW)))}
    if isinstance(value, int | float) and not isinstance(value, bool) and rng.random() < 0.4:
        return {"do": "json", "at": at, "value": value * float(rng.choice([-1, 0.5, 1 + 1e-9, 2, 1e9]))}
    return {"do": "json", "at": at, "value": ODD[int(rng.integers(len(ODD)))]}


def _draw_byte_change(rng: np.random.Generator, size: int, files: Sequence[str]) -> dict[str, Any]:
    kind = str(rng.choice(["flip"] * 6 + ["truncate", "zero", "repeat", "insert", "remove", "copy", "link", "folder"]))
    at, length = int(rng.integers(min(size, int(rng.choice([64, 1024, size]))))), int(rng.integers(1, 64))
    match kind:
        case "flip":
            return {"do": kind, "at": at, "xor": int(rng.choice([1, 2, 4, 8, 16, 32, 64, 128, 255]))}
        case "truncate":
            return {"do": kind, "size": at}
        case "zero" | "repeat":
            return {"do": kind, "at": at, "length": length}
        case "insert":
            return {"do": kind, "at": at, "text": str(rng.choice(["\x00" * 8, "{", "[" * 50_000, "PK", "ÿ" * 9]))}
        case "copy":
            other = str(rng.choice(files))
            return {"do": kind, "to": other if rng.random() < 0.5 else re.sub(r"\d(?=\D*$)", "9", other)}
        case "link":
            return {"do": kind, "to": str(rng.choice(["nowhere", ".", "..", "itself"]))}
        case _:
            return {"do": kind}


def apply(root: Path, changes: Sequence[dict[str, Any]]) -> None:
    """Applies changes to a file or to the files of a folder; files that an earlier change removed are skipped."""
    for change in changes:
        rest = {name: value for name, value in change.items() if name not in ("do", "file")}
        path = root / change["file"] if change["file"] else root
        if path.is_file() or change["do"] in ("write", "json"):
            DO[change["do"]](path, root=root, **rest)


def edited(value: Any, at: Sequence[Any], change: Callable[[Any], Any]) -> Any:
    """JSON with the value at a path changed; a path that no longer exists changes nothing."""
    if not at:
        return change(value)
    if at[0] == EMBEDDED:
        return json.dumps(edited(json.loads(value), at[1:], change)) if isinstance(value, str) else value
    if isinstance(value, dict):
        return {**value, at[0]: edited(value.get(at[0]), at[1:], change)}
    if isinstance(value, list) and isinstance(at[0], int) and at[0] < len(value):
        return [edited(item, at[1:], change) if index == at[0] else item for index, item in enumerate(value)]
    return value


def set_json(text: str, at: Sequence[Any], value: Any = None, raw: str | None = None) -> str:
    """A JSON text with another value at a path, or with a raw text that no value produces."""
    marker = f"@{raw}@"
    text = json.dumps(edited(json.loads(text), at, lambda _: value if raw is None else marker), indent=1)
    return text if raw is None else re.sub(rf'\\*"{marker}\\*"', lambda _: RAW[raw], text)


def as_json(content: bytes | str) -> Any:
    """The value of a JSON text, or None if it is not JSON."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _flip(path: Path, at: int, xor: int, **_: Any) -> None:
    content = bytearray(path.read_bytes())
    if content:
        content[at % len(content)] ^= xor
    path.write_bytes(content)


def _splice(path: Path, at: int, length: int, new: Callable[[bytes], bytes]) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:at] + new(content[at : at + length]) + content[at + length :])


def _json(path: Path, at: Sequence[Any], value: Any = None, raw: str | None = None, **_: Any) -> None:
    if path.is_file() and as_json(path.read_bytes()) is not None:
        path.write_text(set_json(path.read_text(), at, value, raw), encoding="utf-8", errors="surrogateescape")


def _json_delete(path: Path, at: Sequence[Any], **_: Any) -> None:
    def without(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: item for key, item in value.items() if key != at[-1]}
        return [item for index, item in enumerate(value) if index != at[-1]] if isinstance(value, list) else value

    value = as_json(path.read_bytes())
    if value is not None:
        path.write_text(json.dumps(edited(value, at[:-1], without)))


def _copy(path: Path, root: Path, to: str, **_: Any) -> None:
    target = root / to if to else root
    if root.is_dir() and target != path and not target.is_dir():
        if target.is_symlink():
            target.unlink()
        shutil.copy(path, target)


def _link(path: Path, to: str, **_: Any) -> None:
    path.unlink()
    path.symlink_to(path.name if to == "itself" else to)


def _folder(path: Path, **_: Any) -> None:
    path.unlink()
    path.mkdir()


def _write(path: Path, text: str, **_: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode("latin-1"))


DO: dict[str, Callable[..., None]] = {
    "flip": _flip,
    "truncate": lambda path, size, **_: path.write_bytes(path.read_bytes()[:size]),
    "zero": lambda path, at, length, **_: _splice(path, at, length, lambda part: bytes(len(part))),
    "repeat": lambda path, at, length, **_: _splice(path, at, length, lambda part: part * 2),
    "insert": lambda path, at, text, **_: _splice(path, at, 0, lambda _: text.encode("latin-1")),
    "remove": lambda path, **_: path.unlink(),
    "copy": _copy,
    "link": _link,
    "folder": _folder,
    "json": _json,
    "json_delete": _json_delete,
    "write": _write,
}
