"""Devices: where a network runs."""

from __future__ import annotations

import torch

from closedform.errors import ConfigError


def choose_device(name: str) -> str:
    """The device to use: `auto` is a GPU if there is one; one that is asked for has to be there."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name != "cpu" and not ((name.startswith("cuda") and name[4:].removeprefix(":").isdigit()) or name == "cuda"):
        raise ConfigError(f"device: expected auto, cpu, cuda or cuda:NUMBER, found {name!r}")
    n_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name != "cpu" and int(name[5:] or 0) >= n_gpus:
        raise ConfigError(f"device: expected a GPU that torch can use, found {n_gpus or 'none'}; use --device cpu")
    return name
