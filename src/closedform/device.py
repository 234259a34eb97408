"""Devices: where networks and batches of plans run."""

from __future__ import annotations

import re

from closedform.errors import ConfigError, MissingExtraError


def choose_device(name: str) -> str:
    """The device to use: `auto` is a GPU if there is one; a device named explicitly has to exist."""
    check_device(name)
    if name != "auto":
        return name
    try:
        import torch
    except ImportError:
        return "cpu"
    return "cuda" if torch.cuda.is_available() else "cpu"


def check_device(name: str) -> None:
    """Refuses names that are not devices, and GPUs that do not exist; torch is imported only for GPUs."""
    match = re.fullmatch(r"auto|cpu|cuda(?::([0-9]{1,4}))?", name) if isinstance(name, str) else None
    if match is None:
        raise ConfigError(f"device: expected auto, cpu, cuda or cuda:NUMBER, found {name!r}")
    if name in ("auto", "cpu"):
        return
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError("torch", "neural", f"the device {name!r}") from error
    n_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if int(match[1] or 0) >= n_gpus:
        raise ConfigError(f"device: expected a GPU that torch can use, found {n_gpus or 'none'}; use --device cpu")
