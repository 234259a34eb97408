"""Training data: windows of demonstrations as tensors, and their normalization."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from closedform.demos.demos import Demos
from closedform.demos.faults import refuse_faults
from closedform.errors import DataError
from closedform.geometry.layout import Layout
from closedform.neural.config import NeuralConfig
from closedform.store.in_memory import InMemory
from closedform.store.spec import ModelSpec
from closedform.store.window_spec import WindowSpec
from closedform.transfer.transfer import TransferSpec
from closedform.weights.feature_map import GeometricFeatures
from closedform.weights.observation_kernel import KernelSpec


@dataclass(frozen=True)
class Normalization:
    """How observations and actions are normalized for a network.

    The observations of a window are encoded (angles and rotations as unit vectors), concatenated, and become
    (encoded - feature_offset) * feature_scale; actions are encoded and become (encoded - action_offset) * action_scale.

    Attributes:
        feature_offset, feature_scale: (D_z,)
        action_offset, action_scale: (D,)
        mean, covariance: (D_z,) and (D_z, D_z), of the features that the network was trained on.
    """

    feature_offset: np.ndarray
    feature_scale: np.ndarray
    action_offset: np.ndarray
    action_scale: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray


@dataclass(frozen=True)
class TrainingData:
    """Windows of demonstrations, normalized.

    Attributes:
        observation_layout, action_layout: of the demonstrations.
        features: (n, D_z), float32.
        chunks: (n, N_a, D), float32, in about [-1, 1].
        normalization: how they were normalized.
    """

    observation_layout: Layout
    action_layout: Layout
    features: np.ndarray
    chunks: np.ndarray
    normalization: Normalization


def training_data(demos: Demos, config: NeuralConfig, keep: np.ndarray | None = None) -> TrainingData:
    """Cuts demonstrations into windows and normalizes them.

    Args:
        demos: the demonstrations.
        config: the lengths of windows.
        keep: (n_steps,), whether to use the window that starts at each step; all by default.
    """
    demos.check_one_task()
    refuse_faults(demos)
    layouts = demos.observation_layout, demos.action_layout
    spec = ModelSpec(
        WindowSpec(*layouts, config.n_obs_steps, config.n_action_steps, padding=True),  # every step begins a window
        KernelSpec(GeometricFeatures(demos.observation_layout)),
        TransferSpec(*layouts, "world", config.n_action_steps),
    )
    model = InMemory.build(spec, demos.episodes, np.arange(len(demos)))
    rows = np.arange(len(model)) if keep is None else np.flatnonzero(keep)
    if len(rows) < 2:
        raise DataError(f"expected at least two windows to train on, found {len(rows)}")
    features = model.features_at(rows)
    chunks = model.normalized_chunks(rows, model.transfer.world).reshape(len(rows), config.n_action_steps, -1)
    return TrainingData(
        observation_layout=demos.observation_layout,
        action_layout=demos.action_layout,
        features=features.astype(np.float32),
        chunks=chunks.astype(np.float32),
        normalization=Normalization(
            feature_offset=model.kernel.offset,
            feature_scale=model.kernel.scale,
            action_offset=model.transfer.scaling.offset[0],
            action_scale=model.transfer.scaling.scale[0],
            mean=features.mean(0),
            covariance=np.cov(features, rowvar=False),
        ),
    )
