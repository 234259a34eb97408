"""The packages that serving needs, imported where they are used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from closedform.errors import MissingExtraError


def require(module: str) -> Any:
    """Imports a module of the extra `serve`."""
    try:
        return import_module(module)
    except ImportError as error:
        package = {"zmq": "pyzmq"}.get(module.split(".")[0], module.split(".")[0])
        raise MissingExtraError(package, "serve", "serving a policy") from error
