"""Feature maps: from a window of observations to the features z = phi(o) that retrieval compares."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from closedform.errors import ConfigError, DataError
from closedform.finite import all_finite
from closedform.geometry.encoding import Encoding
from closedform.geometry.layout import Layout
from closedform.weights.feature_statistics import Statistics, half_ranges


class FeatureMap(ABC):
    """z = (lift(o) - offset) * scale, where only offset and scale depend on the demonstrations."""

    name: str

    @abstractmethod
    def lift(self, windows: np.ndarray) -> np.ndarray:
        """(n, N_o, D_o) -> (n, D_z), float64, the same for every set of demonstrations; perhaps not finite."""

    def scaling(self, lifted: Statistics) -> tuple[np.ndarray, np.ndarray]:
        """The offset and scale, (D_z,) each, for demonstrations with these statistics."""
        width = lifted.low.shape[1]
        return np.zeros(width), np.ones(width)


class IdentityFeatures(FeatureMap):
    """The observations as they are, without ignored entries.

    Args:
        layout: the layout of one observation; None if nothing is ignored.
    """

    name = "identity"

    def __init__(self, layout: Layout | None = None):
        self.columns = np.array(layout.used_columns) if layout is not None and layout.ignores else None

    def lift(self, windows: np.ndarray) -> np.ndarray:
        """Flattens each window."""
        windows = np.asarray(windows, np.float64)
        used = windows if self.columns is None else windows[..., self.columns]
        return used.reshape(len(windows), -1)


class ScaledFeatures(IdentityFeatures):
    """The observations with each entry scaled to [-1, 1]: the paper's choice, with the scaling it leaves open."""

    name = "scaled"

    def scaling(self, lifted: Statistics) -> tuple[np.ndarray, np.ndarray]:
        """The middle and half the range of each entry."""
        low, high = lifted.range
        return (low + high) / 2, 1 / half_ranges(low, high)


class GeometricFeatures(FeatureMap):
    """Positions in one common unit, angles and rotations as unit vectors, everything else scaled to [-1, 1].

    Distances between features do not change when a whole scene is moved or rotated: all positions share one scale, and
    a rotation enters as the columns of its matrix. Scales are powers of 2^(1/4), so that adding an episode seldom
    changes them.

    Args:
        layout: the layout of one observation.
        rotation_weight: the length of a rotation's unit vectors, where positions fill about [-1, 1].
    """

    name = "geometric"

    def __init__(self, layout: Layout, rotation_weight: float = 0.4):
        self.encoding = Encoding(layout)
        self.rotation_weight = rotation_weight

    def lift(self, windows: np.ndarray) -> np.ndarray:
        """Encodes each observation and flattens each window."""
        return self.encoding.encode(windows).reshape(len(windows), -1)

    def scaling(self, lifted: Statistics) -> tuple[np.ndarray, np.ndarray]:
        """A uniform distribution on [-1, 1] has standard deviation 1 / sqrt(3); positions are scaled to that."""
        width = self.encoding.width
        n_obs_steps = lifted.low.shape[1] // width
        low, high = (bound.reshape(n_obs_steps, width) for bound in lifted.range)
        variance = lifted.variance.reshape(n_obs_steps, width)
        scale = np.empty((n_obs_steps, width))
        pooled = {
            moves: [
                variance[:, block.start : block.start + block.size]
                for block in self.encoding.blocks
                if block.turns and not block.unit and block.moves == moves
            ]
            for moves in (True, False)
        }
        for block in self.encoding.blocks:
            columns = slice(block.start, block.start + block.size)
            if block.unit:
                scale[:, columns] = self.rotation_weight
            elif block.turns:
                spread = float(np.mean(np.concatenate(pooled[block.moves], axis=1)))
                scale[:, columns] = _quarter_octave(1 / np.sqrt(3 * spread)) if spread > 0 else 1.0
            else:
                half = half_ranges(low[:, columns].min(0), high[:, columns].max(0))
                scale[:, columns] = _quarter_octave(1 / half)
        return np.zeros(n_obs_steps * width), scale.ravel()


class CustomFeatures(FeatureMap):
    """A user's function or torch module.

    Args:
        function: takes the windows, flattened to (n, N_o * D_o), and returns (n, D_z). It sees all numbers, including
            ignored entries. A torch module gets a float32 tensor on the device of its parameters, runs without
            gradients, and is put into evaluation mode.
    """

    name = "custom"

    def __init__(self, function: Callable[[Any], Any]):
        self.function = function
        torch = sys.modules.get("torch")
        self.torch = torch if torch is not None and isinstance(function, torch.nn.Module) else None
        if self.torch is not None:
            function.eval()  # pyright: ignore[reportFunctionMemberAccess]

    def lift(self, windows: np.ndarray) -> np.ndarray:
        """Calls the function and checks the result."""
        flat = np.asarray(windows, np.float64).reshape(len(windows), -1)
        if self.torch is None:
            features = np.asarray(self.function(flat), np.float64)
        else:
            parameter = next(self.function.parameters(), None)  # pyright: ignore[reportFunctionMemberAccess]
            device = None if parameter is None else parameter.device
            with self.torch.no_grad():
                out = self.function(self.torch.as_tensor(flat, dtype=self.torch.float32, device=device))
            features = out.cpu().numpy().astype(np.float64)
        if features.ndim != 2 or len(features) != len(windows) or not features.shape[1]:
            raise DataError(
                f"the feature map must return ({len(windows)}, D_z) for {len(windows)} windows, found {features.shape}"
            )
        if not np.isfinite(features).all():
            raise DataError("the feature map returned numbers that are not finite")
        return features


def scaled(lifted: np.ndarray, offset: np.ndarray, scale: np.ndarray, what: str) -> np.ndarray:
    """z = (lifted - offset) * scale, with an error if it is not finite. (n, D_z) -> (n, D_z).

    Args:
        lifted: what a feature map returned.
        offset, scale: (D_z,)
        what: what the rows are, for the error message.
    """
    features = (lifted - offset) * scale
    if not all_finite(features):
        row, column = np.argwhere(~np.isfinite(features))[0]
        raise DataError(
            f"{what} {row}: expected finite features, found {features[row, column]} at feature {column}: "
            "are its numbers too large to be squared?"
        )
    return features


def make_feature_map(choice: str | Callable[[Any], Any], layout: Layout, rotation_weight: float) -> FeatureMap:
    """Builds a feature map from its name or a function."""
    if callable(choice):
        return CustomFeatures(choice)
    match choice:
        case "identity":
            return IdentityFeatures(layout)
        case "scaled":
            return ScaledFeatures(layout)
        case "geometric":
            return GeometricFeatures(layout, rotation_weight)
    raise ConfigError(f"expected features 'identity', 'scaled', 'geometric' or a function, found {choice!r}")


def _quarter_octave(value: Any) -> Any:
    return np.exp2(np.round(4 * np.log2(value)) / 4)
