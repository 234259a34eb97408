"""Devices: where networks and batches of plans run."""

from __future__ import annotations

import os
import re
import sys

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


def limit_threads(n: int) -> None:
    """Lets torch use n threads on the CPU, if it is loaded and the user has set no number (OMP_NUM_THREADS).

    Its default is one per core of the machine. A network that plans for a few observations at a time is no faster with
    more than one, and many times slower where other programs use the cores.
    """
    torch = sys.modules.get("torch")
    if torch is not None and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(n)


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
