"""Squared distances in the local Mahalanobis metric in one Triton kernel: one program per plan."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 128  # neighbors read at once


@triton.jit
def _features_of(features, rows, first, BLOCK: tl.constexpr, K: tl.constexpr, WIDTH: tl.constexpr):
    """The features (BLOCK, WIDTH) of some neighbors; zeros beyond the last."""
    i, d = first + tl.arange(0, BLOCK), tl.arange(0, WIDTH)
    row = tl.load(rows + i, mask=i < K, other=0)
    return tl.load(features + row[:, None] * WIDTH + d[None, :], mask=(i < K)[:, None], other=0.0)


@triton.jit
def _metric(
    features,
    rows,
    queries,
    squared,
    regularization,
    shrinkage,
    share,
    width,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Covariance, Cholesky factor, its inverse, distances: `covariance_factor` and `squared_distances` of the reference
    for the K rows of one plan. Features are padded with zeros to WIDTH.
    """
    plan = tl.program_id(0).to(tl.int64)
    rows += plan * K
    d = tl.arange(0, WIDTH)
    origin = tl.load(features + tl.load(rows) * WIDTH + d)  # in the neighborhood, so that no digits are lost
    total = tl.zeros((WIDTH,), tl.float32)
    covariance = tl.zeros((WIDTH, WIDTH), tl.float32)
    for first in range(0, K, BLOCK):
        x = _features_of(features, rows, first, BLOCK, K, WIDTH) - origin[None, :]
        x = tl.where((first + tl.arange(0, BLOCK) < K)[:, None], x, 0.0)
        total += tl.sum(x, 0)
        covariance += tl.dot(tl.trans(x), x, input_precision="ieee")
    covariance = (covariance - total[:, None] * total[None, :] / K) / max(K - 1, 1)
    diagonal = d[:, None] == d[None, :]
    sphere = tl.sum(tl.sum(tl.where(diagonal, covariance, 0.0), 1), 0) / width * share
    added = tl.where(d < width, shrinkage * sphere + regularization, 1.0)
    covariance = (1 - shrinkage) * covariance + tl.where(diagonal, added[:, None], 0.0)
    inverse = tl.where(diagonal, 1.0, 0.0)  # becomes the inverse of the factor, as its columns are eliminated
    for c in range(WIDTH):
        column = tl.sum(tl.where(d[None, :] == c, covariance, 0.0), 1)
        left = tl.sum(tl.where(d == c, column, 0.0), 0)
        pivot = tl.sqrt(tl.maximum(left, regularization))
        kept = tl.where(left > regularization, 1.0, 0.0)  # else the column is rounding, as in `search.cholesky`
        column = tl.where(d > c, column / pivot * kept, 0.0)
        row = tl.sum(tl.where(d[:, None] == c, inverse, 0.0), 0) / pivot
        inverse = tl.where(d[:, None] == c, row[None, :], inverse - column[:, None] * row[None, :])
        covariance -= column[:, None] * column[None, :]
    query = tl.load(queries + plan * WIDTH + d)
    for first in range(0, K, BLOCK):
        x = _features_of(features, rows, first, BLOCK, K, WIDTH) - query[None, :]
        whitened = tl.dot(x, tl.trans(inverse), input_precision="ieee")
        i = first + tl.arange(0, BLOCK)
        tl.store(squared + plan * K + i, tl.sum(whitened * whitened, 1), mask=i < K)


def local_squared_distances(
    features: torch.Tensor,
    queries: torch.Tensor,
    rows: torch.Tensor,
    width: int,
    regularization: float,
    shrinkage: float,
    share: float = 1.0,
) -> torch.Tensor:
    """The metric of the rows' own covariance. (N, D_z), (B, D_z), (B, k) -> (B, k).

    Args:
        features, queries: padded with zeros to a power of two of at least 16 columns.
        rows: the neighbors.
        width: the number of columns without padding.
        regularization, shrinkage: see `covariance_factor`.
        share: `width` over the number of columns that count.
    """
    n_plans, k = rows.shape
    squared = torch.empty((n_plans, k), device=queries.device)
    _metric[(n_plans,)](
        features,
        rows,
        queries,
        squared,
        regularization,
        shrinkage,
        share,
        width,
        K=k,
        BLOCK=BLOCK,
        WIDTH=features.shape[1],
        num_warps=1 if width <= 16 else 4,  # pyright: ignore[reportCallIssue]
    )
    return squared
