"""All diffusion steps of many samples in one Triton kernel: one program per sample, everything in registers.

As in `kernels.diffuse`, few neighbors carry weight, and a bound proves at every step that the others do not. With
chunks measured from that of the best neighbor, D_i = A_i - A_0 and u = a - G A_0, the log weight of neighbor i under
perturbation j is

    l_ij = log w_i + (G / sigma^2) (u . D_i + eps_j . D_i - G |D_i|^2 / 2)

up to terms that are the same for every i. A step moves u along a mixture of the D_i, so that u . D_i follows from the
inner products of the chunks, and no chunk is read before the end.

The first TILE neighbors, in decreasing order of log w_i unless the caller knows better, get their exact weights. The
next WATCH are bounded with u . D_i <= |u| |D_i| and the largest of the eps_j . D_i; if that comes within `cut` of the
largest term, with u . D_i itself. For all others |D_i| may be anything: l_ij <= log w_i + (|u| + |eps_j|)^2 / (2
sigma^2). If a bound still comes too close, the sample is left over. A larger tile tries it again: it computes the
l_ij of the watched neighbors themselves, and measures from the neighbor that had the most weight in the end instead of
A_0, since the bounds are tightest near the sample. The caller handles what is left.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
ROUNDING = tl.constexpr(2.0**-9)  # more than the error of inner products of 10-bit numbers
SLACK = tl.constexpr(1e-3)  # of the lengths that |u| is composed of, more than its rounding error
TILES = ((16, 512, False), (64, 1024, True))  # neighbors weighted, and watched; whether with their own l_ij
SECOND_TILES = ((64, 2048, True),)  # the same for samples whose neighbors were put in a better order
BLOCK = 64  # neighbors measured at once


class DiffusionProblem(NamedTuple):
    """What all samples read. B plans, n samples each, k neighbors, M perturbations.

    Attributes:
        chunks, offsets: the chunk of neighbor i of plan b is `size` numbers from chunks + offsets[b, i].
        log_weights: (B, k), the largest being 0; those beyond the watched ones are in decreasing order.
        perturbations: (B, M, size); noise: (B, n, size); fresh: (S, B, n, size)
        steps: (S, 6) of gain, noise, keep, jump, spread, and drift: what a step adds to u along A_0.
        n_neighbors, n_samples, n_perturbations, size: k, n, M and the numbers of a chunk.
        cut: nats below the largest term at which terms are dropped.
    """

    chunks: Any
    offsets: Any
    log_weights: Any
    perturbations: Any
    noise: Any
    fresh: Any
    steps: Any
    n_neighbors: Any
    n_samples: Any
    n_perturbations: Any
    size: Any
    cut: Any


class Measured(NamedTuple):
    """|D_i| and a bound on max_j eps_j . D_i, (measurements, k) each, shared by several samples of a plan."""

    lengths: Any
    highest: Any
    n_samples: Any


class DiffusionState(NamedTuple):
    """The state of the samples.

    Attributes:
        samples: (B, n, size)
        centers: (B, n), which neighbor A_0 is; becomes the one with the most weight.
        left_over: (B, n), 1 for samples that are not done.
    """

    samples: Any
    centers: Any
    left_over: Any


@triton.jit
def _chunks_of(chunks, offsets, n_neighbors, first, size, COUNT: tl.constexpr, WIDTH: tl.constexpr):
    """Chunks (COUNT, WIDTH) of the neighbors from `first` on; zeros beyond the last."""
    i, d = first + tl.arange(0, COUNT), tl.arange(0, WIDTH)
    start = tl.load(offsets + i, mask=i < n_neighbors, other=0)
    mask = (i < n_neighbors)[:, None] & (d < size)[None, :]
    return tl.load(chunks + start[:, None] + d[None, :], mask=mask, other=0.0)


@triton.jit
def _perturbations_of(perturbations, plan, n_perturbations, size, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """(ROWS, WIDTH); zeros beyond the last."""
    j, d = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    mask = (j < n_perturbations)[:, None] & (d < size)[None, :]
    return tl.load(perturbations + (plan * n_perturbations + j[:, None]) * size + d[None, :], mask=mask, other=0.0)


@triton.jit
def _measure(problem, measured, state, BLOCK: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Fills `measured` for some neighbors of one measurement; see `DiffusionProblem` for the arguments."""
    chunks, perturbations, size = problem.chunks, problem.perturbations, problem.size
    n_neighbors, n_perturbations = problem.n_neighbors, problem.n_perturbations
    program = tl.program_id(0).to(tl.int64)
    if tl.load(state.left_over + program) == 0:
        return
    plan = program * measured.n_samples // problem.n_samples
    offsets = problem.offsets + plan * n_neighbors
    d = tl.arange(0, WIDTH)
    eps = _perturbations_of(perturbations, plan, n_perturbations, size, ROWS, WIDTH)
    longest = tl.sqrt(tl.max(tl.sum(eps * eps, 1), 0))
    center = tl.load(chunks + tl.load(offsets + tl.load(state.centers + program)) + d, mask=d < size, other=0.0)
    first = tl.program_id(1) * BLOCK
    i = first + tl.arange(0, BLOCK)
    rows = _chunks_of(chunks, offsets, n_neighbors, first, size, BLOCK, WIDTH) - center[None, :]
    length = tl.sqrt(tl.sum(rows * rows, 1))
    best = tl.max(tl.dot(rows, tl.trans(eps), input_precision="tf32"), 1)
    best = tl.maximum(best, 0.0) + ROUNDING * longest * length
    tl.store(measured.lengths + program * n_neighbors + i, length, mask=i < n_neighbors)
    tl.store(measured.highest + program * n_neighbors + i, best, mask=i < n_neighbors)


@triton.jit
def _diffuse_tile(
    problem,
    measured,
    state,
    STEPS: tl.constexpr,
    TILE: tl.constexpr,
    WATCH: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    EXACT: tl.constexpr,
    HAS_FRESH: tl.constexpr,
):
    """One sample of one plan through all steps. Logits are in units of log 2.

    Args:
        problem: `DiffusionProblem`.
        measured: `Measured`, as `_measure` fills it.
        state: `DiffusionState`.
        STEPS: S.
        TILE, WATCH, BLOCK: neighbors that are weighted, that are bounded, and that are bounded at once.
        EXACT: whether to compute the watched neighbors' own l_ij if the better bound comes too close as well.
        ROWS, WIDTH: powers of two that hold the perturbations and a chunk.
        HAS_FRESH: whether noise is added at each step.
    """
    chunks, perturbations, steps, fresh = problem.chunks, problem.perturbations, problem.steps, problem.fresh
    n_neighbors, n_perturbations, size = problem.n_neighbors, problem.n_perturbations, problem.size
    samples, centers, left_over, cut = state.samples, state.centers, state.left_over, problem.cut
    program = tl.program_id(0).to(tl.int64)
    if tl.load(left_over + program) == 0:
        return
    plan = program // problem.n_samples
    offsets = problem.offsets + plan * n_neighbors
    log_weights = problem.log_weights + plan * n_neighbors
    lengths = measured.lengths + program // measured.n_samples * n_neighbors
    highest = measured.highest + program // measured.n_samples * n_neighbors
    i, j, d = tl.arange(0, TILE), tl.arange(0, ROWS), tl.arange(0, WIDTH)
    is_perturbation = j < n_perturbations
    eps = _perturbations_of(perturbations, plan, n_perturbations, size, ROWS, WIDTH)
    longest = tl.sqrt(tl.max(tl.sum(eps * eps, 1), 0))
    center = tl.load(chunks + tl.load(offsets + tl.load(centers + program)) + d, mask=d < size, other=0.0)
    tile = _chunks_of(chunks, offsets, n_neighbors, 0, size, TILE, WIDTH)
    tile = tl.where((i < n_neighbors)[:, None], tile - center[None, :], 0.0)
    log_w = LOG2_E * tl.load(log_weights + i, mask=i < n_neighbors, other=-float("inf"))
    half_squares = 0.5 * tl.sum(tile * tile, 1)
    norms = tl.sqrt(2 * half_squares)
    shifts = tl.dot(tile, tl.trans(eps), input_precision="ieee")
    inner = tl.dot(tile, tl.trans(tile), input_precision="ieee")
    along = tl.sum(tile * center[None, :], 1)
    center_norm = tl.sqrt(tl.sum(center * center, 0))
    w = TILE + tl.arange(0, WATCH)
    watched = LOG2_E * tl.load(log_weights + w, mask=w < n_neighbors, other=-float("inf"))
    watched_norms = tl.load(lengths + w, mask=w < n_neighbors, other=0.0)
    watched_highest = tl.load(highest + w, mask=w < n_neighbors, other=0.0)
    unseen = -float("inf")  # the largest log weight of the others
    if n_neighbors > TILE + WATCH:
        unseen = LOG2_E * tl.load(log_weights + TILE + WATCH)

    start = tl.load(problem.noise + program * size + d, mask=d < size, other=0.0)
    first_u = start - tl.load(steps) * center
    first_products = tl.sum(tile * first_u[None, :], 1)
    first_along = tl.sum(first_u * center, 0)
    first_square = tl.sum(first_u * first_u, 0)
    # u = kept * first_u + the mixture of the D_i + drifted * A_0 + added; the sample likewise, from `start` and the A_i
    kept, drifted = 1.0, 0.0
    mixture = tl.zeros((TILE,), tl.float32)
    mixed_products = tl.zeros((TILE,), tl.float32)  # of the mixture with each D_i
    products = first_products  # u . D_i
    added = tl.zeros((WIDTH,), tl.float32)
    shares = tl.zeros((TILE,), tl.float32)
    margin = float("inf")
    for s in range(STEPS):
        gain, sigma = tl.load(steps + 6 * s), tl.load(steps + 6 * s + 1)
        keep, jump, drift = tl.load(steps + 6 * s + 2), tl.load(steps + 6 * s + 3), tl.load(steps + 6 * s + 5)
        sharpness = LOG2_E / (sigma * sigma)
        slope = gain * sharpness
        base = log_w + slope * (products - gain * half_squares)
        logits = base[:, None] + slope * shifts
        largest = tl.max(logits, 0)
        weights = tl.exp2(logits - largest[None, :])
        totals = tl.sum(weights, 0) * n_perturbations
        shares = tl.sum(weights * tl.where(is_perturbation, 1.0 / totals, 0.0)[None, :], 1)

        square = kept * kept * first_square + tl.sum(mixture * (2 * kept * first_products + mixed_products), 0)
        square += drifted * (
            2 * (kept * first_along + tl.sum(mixture * along, 0)) + drifted * center_norm * center_norm
        )
        parts = kept * tl.sqrt(first_square) + tl.sum(mixture * norms, 0) + tl.abs(drifted) * center_norm
        reach = tl.sqrt(tl.maximum(square, 0.0)) + SLACK * parts
        if HAS_FRESH:
            reach += tl.sqrt(tl.sum(added * added, 0))
        least = tl.min(tl.where(is_perturbation, largest, float("inf")), 0)
        others = unseen + 0.5 * sharpness * (reach + longest) * (reach + longest)
        bound = tl.max(watched + slope * (watched_norms * (reach - 0.5 * gain * watched_norms) + watched_highest), 0)
        closest = least - bound
        if closest < cut * LOG2_E:
            u = kept * first_u + tl.sum(mixture[:, None] * tile, 0) + drifted * center + added
            closest = tl.full((), float("inf"), tl.float32)
            for first in range(TILE, TILE + WATCH, BLOCK):
                i_w = first + tl.arange(0, BLOCK)
                rows = _chunks_of(chunks, offsets, n_neighbors, first, size, BLOCK, WIDTH) - center[None, :]
                log_w_w = LOG2_E * tl.load(log_weights + i_w, mask=i_w < n_neighbors, other=-float("inf"))
                base_w = log_w_w + slope * tl.sum(rows * (u[None, :] - 0.5 * gain * rows), 1)
                best = tl.load(highest + i_w, mask=i_w < n_neighbors, other=0.0)
                nearest = least - tl.max(base_w + slope * best, 0)
                if EXACT:  # noqa: SIM102 - decided while compiling
                    if nearest < cut * LOG2_E:
                        shifts_w = tl.dot(rows, tl.trans(eps), input_precision="ieee")
                        below = largest - tl.max(base_w[:, None] + slope * shifts_w, 0)
                        nearest = tl.min(tl.where(is_perturbation, below, float("inf")), 0)
                closest = tl.minimum(closest, nearest)
        margin = tl.minimum(margin, tl.minimum(closest, least - others))

        mixed = tl.sum(inner * shares[None, :], 1)
        products = keep * products + jump * mixed + drift * along
        mixed_products = keep * mixed_products + jump * mixed
        mixture = keep * mixture + jump * shares
        kept, drifted = keep * kept, keep * drifted + drift
        if HAS_FRESH:
            at = (tl.num_programs(0).to(tl.int64) * s + program) * size
            more = tl.load(steps + 6 * s + 4) * tl.load(fresh + at + d, mask=d < size, other=0.0)
            added = keep * added + more
            products += tl.sum(tile * more[None, :], 1)
    sample = kept * start + added + tl.sum(mixture[:, None] * tile, 0) + tl.sum(mixture, 0) * center
    tl.store(samples + program * size + d, sample, mask=d < size)
    if margin >= cut * LOG2_E:
        tl.store(left_over + program, 0)
    else:
        tl.store(centers + program, tl.argmax(shares, 0))


def diffuse(
    chunks: torch.Tensor,
    offsets: torch.Tensor,
    log_weights: torch.Tensor,
    perturbations: torch.Tensor,
    noise: torch.Tensor,
    fresh: torch.Tensor | None,
    steps: torch.Tensor,
    cut: float,
    tiles: tuple[tuple[int, int, bool], ...] = TILES,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Runs noise (B, n, D) through all steps; see `DiffusionProblem` for the arguments.

    Returns:
        The chunks (B, n, D), and (B, n) what is left over: 1 if more neighbors matter than were weighted, so that the
        chunk is only an approximation.
    """
    n_plans, n_samples, size = noise.shape
    n_perturbations, n_neighbors = perturbations.shape[1], log_weights.shape[1]
    rows, width = _power_of_two(n_perturbations), _power_of_two(size)
    problem = DiffusionProblem(
        chunks,
        offsets,
        log_weights,
        perturbations,
        noise,
        noise if fresh is None else fresh,
        steps,
        n_neighbors,
        n_samples,
        n_perturbations,
        size,
        cut,
    )
    left_over = torch.ones((n_plans, n_samples), dtype=torch.int32, device=noise.device)
    state = DiffusionState(torch.empty_like(noise), torch.zeros_like(left_over), left_over)
    n_measured = n_samples  # at first all samples of a plan are measured from the same neighbor
    for tile, watch, exact in tiles:
        n_measurements = n_plans * n_samples // n_measured
        lengths, highest = (torch.empty((n_measurements, n_neighbors), device=noise.device) for _ in range(2))
        measured = Measured(lengths, highest, n_measured)
        _measure[(n_measurements, triton.cdiv(n_neighbors, BLOCK))](
            problem,
            measured,
            state,
            BLOCK=BLOCK,
            ROWS=rows,
            WIDTH=width,
            num_warps=4 if width <= 64 else 8,  # pyright: ignore[reportCallIssue]
        )
        _diffuse_tile[(n_plans * n_samples,)](
            problem,
            measured,
            state,
            STEPS=len(steps),
            TILE=tile,
            WATCH=watch,
            BLOCK=BLOCK,
            ROWS=rows,
            WIDTH=width,
            EXACT=exact,
            HAS_FRESH=fresh is not None,
            num_warps=_warps(tile, max(rows, width)),  # pyright: ignore[reportCallIssue]
        )
        n_measured = 1
        if n_neighbors <= tile:
            break
    return state.samples, left_over


def steps_with_drift(steps: torch.Tensor) -> torch.Tensor:
    """(S, 5) of gain, noise, keep, jump, spread -> (S, 6), as `_diffuse_tile` reads them.

    After a step u' = keep u + jump (denoised - A_0) + drift A_0; the flow's Euler steps have no drift.
    """
    gain, keep, jump = steps[:, 0], steps[:, 2], steps[:, 3]
    after = torch.cat([gain[1:], torch.ones_like(gain[:1])])
    return torch.cat([steps, (keep * gain - after + jump)[:, None]], 1).float().contiguous()


def _warps(tile: int, width: int) -> int:
    return min(8, max(1, tile * width // 1024))


def _power_of_two(n: int) -> int:
    return max(16, 1 << (n - 1).bit_length())
