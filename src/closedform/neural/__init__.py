"""Neural diffusion policies: the network, its training and its checkpoints (extra `neural`)."""

from closedform.errors import MissingExtraError

try:
    import torch as _torch  # noqa: F401
except ImportError as _error:
    raise MissingExtraError("torch", "neural", "a neural policy") from _error
