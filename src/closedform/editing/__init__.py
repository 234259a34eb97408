"""Editing: neural diffusion policies changed at inference time, with nothing but demonstrations (extra `neural`)."""

from closedform.errors import MissingExtraError

try:
    import torch as _torch  # noqa: F401
except ImportError as _error:
    raise MissingExtraError("torch", "neural", "editing a neural policy") from _error
