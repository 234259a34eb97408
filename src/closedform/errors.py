"""The exceptions and the warning that closedform raises."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any


class ClosedFormError(Exception):
    """Base of every error that closedform raises on purpose; its message is one line."""

    def __init__(self, message: str):
        super().__init__(" ".join(line.strip() for line in message.splitlines() if line.strip()))

    def __reduce__(self) -> tuple[Any, ...]:
        """Lets an error cross process boundaries, whatever arguments its class takes."""
        return _remade, (type(self), str(self))


def meant(word: str, names: Iterable[str]) -> str:
    """The second half of a message on an unknown name: the one that was probably meant, or all there are."""
    known = list(names)
    near = difflib.get_close_matches(word[:100], known, 1, 0.5)
    return f"did you mean {near[0]}?" if near else f"expected one of {', '.join(known)}"


def _remade(kind: type[ClosedFormError], message: str) -> ClosedFormError:
    error = kind.__new__(kind)
    ClosedFormError.__init__(error, message)
    return error


class ConfigError(ClosedFormError, ValueError):
    """A parameter is out of range, or two parameters contradict each other."""


class DataError(ClosedFormError, ValueError):
    """Demonstrations or observations cannot be used as they are."""


class LoadError(ClosedFormError):
    """A file or folder could not be read, or does not hold what it should."""


class SaveError(ClosedFormError):
    """A file or folder could not be written; what was there before is unchanged."""


class ArmError(ClosedFormError):
    """An arm or a camera cannot be reached, is not ready to move, or stopped."""


class ServeError(ClosedFormError):
    """A policy cannot be served at an address, or a server cannot be reached, or refused a request."""


class MissingExtraError(ClosedFormError, ImportError):
    """A feature needs a package that is not installed."""

    def __init__(self, package: str, extra: str, purpose: str):
        how = f"pip install 'closedform[{extra}]'{_in_clone(extra)}"
        super().__init__(f"{purpose} needs the package {package!r}: {how}")


def _in_clone(extra: str) -> str:
    """How to install an extra if this package is used from a clone, or was installed from one."""
    for clone in (Path(__file__).parents[2], _installed_from()):
        if clone is not None and (clone / "pyproject.toml").is_file() and (clone / "src").is_dir():
            return f", or in your clone {clone}: pip install '.[{extra}]'"
    return ""


def _installed_from() -> Path | None:
    """The folder that pip installed this package from, if it was one."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        origin = json.loads(distribution("closedform").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return None
    address = urlsplit(origin.get("url", ""))
    return Path(url2pathname(address.path)) if address.scheme == "file" and "dir_info" in origin else None


class ClosedFormWarning(UserWarning):
    """Something worth knowing that does not stop the work, such as a setting that had no effect."""
