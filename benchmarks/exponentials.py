"""Exponentials: how many a plan needs, how many the fused kernel evaluates, and how many a GPU computes per second."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from closedform.kernels.triton_diffuse import TILES
from closedform.policies.backends.batch_planner import BatchPlanner

N_LOOPS, N_NUMBERS = 4096, 2**22


@triton.jit
def _only_exponentials(numbers, LOOPS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(numbers + at)
    for _ in range(LOOPS):
        x = tl.exp2(-x)
    tl.store(numbers + at, x)


def rate() -> float:
    """Exponentials per second when nothing else is done."""
    numbers = torch.rand(N_NUMBERS, device="cuda")
    times = []
    for _ in range(5):
        torch.cuda.synchronize()
        start = time.perf_counter()
        kernel: Any = _only_exponentials[(N_NUMBERS // 1024,)]
        kernel(numbers, LOOPS=N_LOOPS, BLOCK=1024)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return N_NUMBERS * N_LOOPS / min(times)


def count(planner: BatchPlanner, observations: np.ndarray) -> dict[str, Any]:
    """The average counts of a plan over some observations."""
    queries = planner.queries(planner.policy.windows(observations))
    numbers = planner.draw(len(queries), 1, torch.Generator("cuda").manual_seed(0))
    near = planner.neighbors(queries, everything=True)
    cut = planner.policy.diffusion.cut(planner._k)
    needed = 0
    sample = numbers.noise
    chunks = planner.gathered(near, sample.shape[2])
    shifts = numbers.perturbations @ chunks.mT
    for gain, sigma, keep, jump, _ in planner._steps.tolist():
        distances = torch.cdist(sample, gain * chunks, compute_mode="donot_use_mm_for_euclid_dist") ** 2
        base = near.log_weights[:, None] - distances / (2 * sigma**2)
        logits = base[:, :, None] + gain / sigma**2 * shifts[:, None]
        needed += int((logits > logits.amax(-1, keepdim=True) - cut).sum())
        sample = keep * sample + jump * (torch.softmax(logits, -1).mean(2) @ chunks)
    fused = planner.neighbors(queries)
    first_tile = TILES[0][0]
    return {
        "needed": needed / len(queries),
        "all": len(planner._steps) * numbers.perturbations.shape[1] * planner._k,
        "evaluated": len(planner._steps) * numbers.perturbations.shape[1] * min(first_tile, fused.log_weights.shape[1]),
        "cut": cut,
        "rate": rate(),
    }
