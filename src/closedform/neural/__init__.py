"""Neural diffusion policies: the network, its training and its checkpoints (extra `neural`)."""

from closedform.errors import MissingExtraError

try:
    import torch as _torch  # noqa: F401
except ImportError as _error:
    raise MissingExtraError("torch", "neural", "a neural policy") from _error

from closedform.neural.config import NeuralConfig, TrainingConfig, UNetConfig
from closedform.neural.data import TrainingData, training_data
from closedform.neural.policy import NeuralPolicy
from closedform.neural.training import Trainer

__all__ = [
    "NeuralConfig",
    "NeuralPolicy",
    "Trainer",
    "TrainingConfig",
    "TrainingData",
    "UNetConfig",
    "training_data",
]
