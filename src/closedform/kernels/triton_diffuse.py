"""All diffusion steps of many samples in one Triton kernel: a program a sample, everything in its registers.

As in `kernels.diffuse`, few neighbours carry weight, and that the others do not is proven at every step. With chunks
measured from that of the best neighbour, D_i = A_i - A_0 and u = a - G A_0, the weight of neighbour i under
perturbation j has the logarithm

    l_ij = log w_i + (G / sigma^2) (u . D_i + eps_j . D_i - G |D_i|^2 / 2)

up to terms that are the same for every i. A step moves u along a mixture of the D_i, so that u . D_i follows from the
inner products of the chunks, and no chunk is read before the end.

The first TILE neighbours, in falling order of log w_i, get their exact weights. The next WATCH are bounded with
u . D_i <= |u| |D_i| and the best of the eps_j . D_i; where that comes within `cut` of the largest term, with u . D_i
itself. For all others |D_i| may be anything: l_ij <= log w_i + (|u| + |eps_j|)^2 / (2 sigma^2). Where a bound still
comes too near the sample is left over. A larger tile takes it up, which looks at the l_ij of the watched ones
themselves, and measures from the neighbour that had most weight in the end instead of A_0: the bounds are best where
the sample is near. The caller takes what is left.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
ROUNDING = tl.constexpr(2.0**-9)  # more than inner products of numbers with 10 bits can be off by
SLACK = tl.constexpr(1e-3)  # of the lengths that |u| is made of, more than rounding can take from it
TILES = ((16, 512, False), (64, 1024, True))  # neighbours weighed, and watched; whether with their own l_ij
BLOCK = 64  # neighbours that are measured at once


@triton.jit
def _chunks_of(chunks, offsets, n_neighbours, first, size, COUNT: tl.constexpr, WIDTH: tl.constexpr):
    """Chunks (COUNT, WIDTH) of the neighbours from `first` on; zeros where there are fewer."""
    i, d = first + tl.arange(0, COUNT), tl.arange(0, WIDTH)
    start = tl.load(offsets + i, mask=i < n_neighbours, other=0)
    mask = (i < n_neighbours)[:, None] & (d < size)[None, :]
    return tl.load(chunks + start[:, None] + d[None, :], mask=mask, other=0.0)


@triton.jit
def _perturbations_of(perturbations, plan, n_perturbations, size, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """(ROWS, WIDTH); zeros where there are fewer."""
    j, d = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    mask = (j < n_perturbations)[:, None] & (d < size)[None, :]
    return tl.load(perturbations + (plan * n_perturbations + j[:, None]) * size + d[None, :], mask=mask, other=0.0)


@triton.jit
def _measure(
    chunks,
    offsets,
    perturbations,
    centres,
    left_over,
    lengths,
    highest,
    n_samples,
    n_neighbours,
    n_perturbations,
    size,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Fills |D_i| and a bound on max_j eps_j . D_i, (B * n, k) each, of some neighbours of one sample."""
    program = tl.program_id(0).to(tl.int64)
    if tl.load(left_over + program) == 0:
        return
    plan = program // n_samples
    offsets += plan * n_neighbours
    d = tl.arange(0, WIDTH)
    eps = _perturbations_of(perturbations, plan, n_perturbations, size, ROWS, WIDTH)
    longest = tl.sqrt(tl.max(tl.sum(eps * eps, 1), 0))
    centre = tl.load(chunks + tl.load(offsets + tl.load(centres + program)) + d, mask=d < size, other=0.0)
    first = tl.program_id(1) * BLOCK
    i = first + tl.arange(0, BLOCK)
    rows = _chunks_of(chunks, offsets, n_neighbours, first, size, BLOCK, WIDTH) - centre[None, :]
    length = tl.sqrt(tl.sum(rows * rows, 1))
    best = tl.max(tl.dot(rows, tl.trans(eps), input_precision="tf32"), 1)
    best = tl.maximum(best, 0.0) + ROUNDING * longest * length
    tl.store(lengths + program * n_neighbours + i, length, mask=i < n_neighbours)
    tl.store(highest + program * n_neighbours + i, best, mask=i < n_neighbours)


@triton.jit
def _diffuse_tile(
    chunks,
    offsets,
    log_weights,
    lengths,
    highest,
    perturbations,
    noise,
    fresh,
    steps,
    samples,
    centres,
    left_over,
    n_neighbours,
    n_samples,
    n_measured,
    n_perturbations,
    size,
    cut,
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
        chunks, offsets: the chunk of neighbour i of plan b is `size` numbers from chunks + offsets[b, i].
        log_weights: (B, k), the largest first, which is 0.
        lengths, highest: as `_measure` fills them, for so many samples of a plan together as `n_measured` says.
        perturbations: (B, M, size); noise, samples: (B, n, size); fresh: (S, B, n, size)
        steps: (S, 6) of gain, noise, keep, jump, spread, and drift: what a step adds to u along A_0.
        centres: (B, n), which neighbour A_0 is; becomes the one with most weight.
        left_over: (B, n), 1 where there is something to do still.
        STEPS: S.
        TILE, WATCH, BLOCK: neighbours that are weighed, that are bounded, and so many at once.
        EXACT: whether the watched ones' l_ij are looked at where a bound comes too near, or a better bound.
        ROWS, WIDTH: powers of two that hold the perturbations and a chunk.
    """
    program = tl.program_id(0).to(tl.int64)
    if tl.load(left_over + program) == 0:
        return
    plan = program // n_samples
    offsets += plan * n_neighbours
    log_weights += plan * n_neighbours
    lengths += program // n_measured * n_neighbours
    highest += program // n_measured * n_neighbours
    i, j, d = tl.arange(0, TILE), tl.arange(0, ROWS), tl.arange(0, WIDTH)
    is_perturbation = j < n_perturbations
    eps = _perturbations_of(perturbations, plan, n_perturbations, size, ROWS, WIDTH)
    longest = tl.sqrt(tl.max(tl.sum(eps * eps, 1), 0))
    centre = tl.load(chunks + tl.load(offsets + tl.load(centres + program)) + d, mask=d < size, other=0.0)
    tile = _chunks_of(chunks, offsets, n_neighbours, 0, size, TILE, WIDTH)
    tile = tl.where((i < n_neighbours)[:, None], tile - centre[None, :], 0.0)
    log_w = LOG2_E * tl.load(log_weights + i, mask=i < n_neighbours, other=-float("inf"))
    half_squares = 0.5 * tl.sum(tile * tile, 1)
    norms = tl.sqrt(2 * half_squares)
    shifts = tl.dot(tile, tl.trans(eps), input_precision="ieee")
    inner = tl.dot(tile, tl.trans(tile), input_precision="ieee")
    along = tl.sum(tile * centre[None, :], 1)
    centre_norm = tl.sqrt(tl.sum(centre * centre, 0))
    w = TILE + tl.arange(0, WATCH)
    watched = LOG2_E * tl.load(log_weights + w, mask=w < n_neighbours, other=-float("inf"))
    watched_norms = tl.load(lengths + w, mask=w < n_neighbours, other=0.0)
    watched_highest = tl.load(highest + w, mask=w < n_neighbours, other=0.0)
    unseen = -float("inf")  # the largest log weight of the others
    if n_neighbours > TILE + WATCH:
        unseen = LOG2_E * tl.load(log_weights + TILE + WATCH)

    start = tl.load(noise + program * size + d, mask=d < size, other=0.0)
    first_u = start - tl.load(steps) * centre
    first_products = tl.sum(tile * first_u[None, :], 1)
    first_along = tl.sum(first_u * centre, 0)
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
            2 * (kept * first_along + tl.sum(mixture * along, 0)) + drifted * centre_norm * centre_norm
        )
        parts = kept * tl.sqrt(first_square) + tl.sum(mixture * norms, 0) + tl.abs(drifted) * centre_norm
        reach = tl.sqrt(tl.maximum(square, 0.0)) + SLACK * parts
        if HAS_FRESH:
            reach += tl.sqrt(tl.sum(added * added, 0))
        least = tl.min(tl.where(is_perturbation, largest, float("inf")), 0)
        others = unseen + 0.5 * sharpness * (reach + longest) * (reach + longest)
        bound = tl.max(watched + slope * (watched_norms * (reach - 0.5 * gain * watched_norms) + watched_highest), 0)
        closest = least - bound
        if closest < cut * LOG2_E:
            u = kept * first_u + tl.sum(mixture[:, None] * tile, 0) + drifted * centre + added
            closest = tl.full((), float("inf"), tl.float32)
            for first in range(TILE, TILE + WATCH, BLOCK):
                i_w = first + tl.arange(0, BLOCK)
                rows = _chunks_of(chunks, offsets, n_neighbours, first, size, BLOCK, WIDTH) - centre[None, :]
                log_w_w = LOG2_E * tl.load(log_weights + i_w, mask=i_w < n_neighbours, other=-float("inf"))
                base_w = log_w_w + slope * tl.sum(rows * (u[None, :] - 0.5 * gain * rows), 1)
                if EXACT:
                    shifts_w = tl.dot(rows, tl.trans(eps), input_precision="ieee")
                    below = largest - tl.max(base_w[:, None] + slope * shifts_w, 0)
                    closest = tl.minimum(closest, tl.min(tl.where(is_perturbation, below, float("inf")), 0))
                else:
                    best = tl.load(highest + i_w, mask=i_w < n_neighbours, other=0.0)
                    closest = tl.minimum(closest, least - tl.max(base_w + slope * best, 0))
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
    if margin >= cut * LOG2_E:
        sample = kept * start + added + tl.sum(mixture[:, None] * tile, 0) + tl.sum(mixture, 0) * centre
        tl.store(samples + program * size + d, sample, mask=d < size)
        tl.store(left_over + program, 0)
    else:
        tl.store(centres + program, tl.argmax(shares, 0))


def diffuse(
    chunks: torch.Tensor,
    offsets: torch.Tensor,
    log_weights: torch.Tensor,
    perturbations: torch.Tensor,
    noise: torch.Tensor,
    fresh: torch.Tensor | None,
    steps: torch.Tensor,
    cut: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Runs noise (B, n, D) through all steps; see `_diffuse_tile` for the arguments.

    Returns:
        The chunks (B, n, D), and (B, n) what is left over: 1 where more neighbours matter than were weighed.
    """
    n_plans, n_samples, size = noise.shape
    n_perturbations, n_neighbours = perturbations.shape[1], log_weights.shape[1]
    rows, width = _power_of_two(n_perturbations), _power_of_two(size)
    samples = torch.empty_like(noise)
    left_over = torch.ones((n_plans, n_samples), dtype=torch.int32, device=noise.device)
    centres = torch.zeros_like(left_over)
    n_measured = n_samples  # at first all samples of a plan are measured from the same neighbour
    for tile, watch, exact in TILES:
        n_measurements = n_plans * n_samples // n_measured
        lengths, highest = (torch.empty((n_measurements, n_neighbours), device=noise.device) for _ in range(2))
        _measure[(n_measurements, triton.cdiv(n_neighbours, BLOCK))](
            chunks,
            offsets,
            perturbations,
            centres,
            left_over,
            lengths,
            highest,
            n_samples // n_measured,
            n_neighbours,
            n_perturbations,
            size,
            BLOCK=BLOCK,
            ROWS=rows,
            WIDTH=width,
            num_warps=4 if width <= 64 else 8,  # pyright: ignore[reportCallIssue]
        )
        _diffuse_tile[(n_plans * n_samples,)](
            chunks,
            offsets,
            log_weights,
            lengths,
            highest,
            perturbations,
            noise,
            noise if fresh is None else fresh,
            steps,
            samples,
            centres,
            left_over,
            n_neighbours,
            n_samples,
            n_measured,
            n_perturbations,
            size,
            cut,
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
        if n_neighbours <= tile:
            break
    return samples, left_over


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
