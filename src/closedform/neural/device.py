"""Devices: where a network runs."""

from __future__ import annotations

import torch

from closedform.errors import ConfigError


def choose_device(name: str) -> str:
    """The device to use: `auto` is a GPU if there is one; one that is asked for has to be there."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError("device: expected a GPU that torch can use, found none; use --device cpu")
    return name
