"""The neural policy with its network compiled by torch.compile."""

from __future__ import annotations

import shutil
from typing import Any, cast

import numpy as np
import torch
from torch._dynamo.exc import TorchDynamoException

from closedform.neural.policy import NeuralPolicy
from contenders import CannotRunError


def compiled(policy: NeuralPolicy, window: np.ndarray) -> NeuralPolicy:
    """The same policy with a compiled network, warmed up by one plan for a window (N_o, D_o)."""
    if not any(shutil.which(compiler) for compiler in ("g++", "clang++")):
        raise CannotRunError("torch.compile needs a C++ compiler, and there is neither g++ nor clang++")
    same = policy.with_sampling(policy.config.sampler, policy.config.n_sampling_steps)
    same.model = cast(Any, torch.compile(same.model))
    try:
        same.plan(window, seed=0)
    except TorchDynamoException as error:
        raise CannotRunError(f"torch.compile failed: {str(error).splitlines()[0]}") from error
    return same
