"""Records: what the compiled planner reads and writes, grouped as a reader would.

Each is a NamedTuple of arrays and numbers, which numba passes without copying. Letters in shapes: B plans, n samples
each, k neighbors, N rows, F frames, H hands, S diffusion steps, M perturbations, D numbers of an encoded action, and
N_a actions in a chunk. On a GPU the same records hold torch tensors.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class RowsRecord(NamedTuple):
    """Demonstrated windows.

    Attributes:
        columns: (D_z, >= N), their features.
        n_rows: N.
        actions: (steps, D), encoded; those of row i begin at `starts[i]`.
        starts, episodes: (N,)
        poses: (N, bodies, pose width), of the bodies in the window's last observation.
        held: (N, H), the body that each hand has grasped; -1 for none.
    """

    columns: Any
    n_rows: int
    actions: Any
    starts: Any
    episodes: Any
    poses: Any
    held: Any


class Metric(NamedTuple):
    """The distances of rows from a query, and their weights.

    Attributes:
        factor: (D_z, D_z), the Cholesky factor of a metric that is the same everywhere; (0, 0) for the local one.
        regularization, shrinkage: of the local covariance.
        precision: 1 / (2 h^2).
        share: D_z over the number of features that count, over which the sphere's size is averaged.
    """

    factor: Any
    regularization: float
    shrinkage: float
    precision: float
    share: float = 1.0


class Candidates(NamedTuple):
    """The neighbors of a plan, as a term sees them: numpy arrays, or torch tensors for B plans.

    Attributes:
        query: (..., D_z), the current features.
        rows: (..., k), rows of the store.
        features: (..., k, D_z), of these rows.
        episodes: (..., k), the index of each row's episode in the store.
    """

    query: Any
    rows: Any
    features: Any
    episodes: Any


class GoalTerm(NamedTuple):
    """The goal's share of the squared distances; see `retrieval.goal.Goal`.

    Attributes:
        weight: g; 0 for none.
        columns, middle, scale: (G,)
        ends: (E, G)
        tolerance: t.
        references, ratios: (G,)
    """

    weight: float
    columns: Any
    ends: Any
    middle: Any
    scale: Any
    tolerance: float
    references: Any
    ratios: Any


class RelationTerm(NamedTuple):
    """The share of the squared distances that is due to relations; see `retrieval.relation.Relation`.

    Attributes:
        weight: w / l^2; 0 for none.
        hands: (H, d)
        objects: (B, d)
        axes: (B, 2 d)
        offset, inverse: (D_z,)
        touching: squared distance below which objects are about equally near.
    """

    weight: float
    hands: Any
    objects: Any
    axes: Any
    offset: Any
    inverse: Any
    touching: float


class Penalties(NamedTuple):
    """What is added to the squared distances of a few rows in each plan: the terms that remember, summed.

    Attributes:
        rows, values: (m,), of all plans, one after the other; the rows of each plan ascend.
        bounds: (B + 1,), where those of each plan begin, and where the last ones end.
    """

    rows: Any
    values: Any
    bounds: Any


class Transfers(NamedTuple):
    """How a demonstrated chunk can be transferred to the current scene.

    Attributes:
        n_action_steps: N_a.
        blocks: (blocks, 5) of start, size, turns, moves and hand, of an encoded action.
        frames: (F, 3) of body, turns, and 1 for a whole pose or 2 for a body without a rotation; body -1 is the world.
        hands: (H, 3) of body, position and rotation; -1 for what it lacks. One with a body and a position can grasp,
            and without a rotation it never turns.
        turns: (H, 3, 3), commanded axes relative to the observed axes.
        dimension: 2 or 3, of space.
        offset, scale: (F, D), normalized = (encoded - offset) * scale.
        weight: (D,), makes the variances in different frames comparable.
        n_voters: how many of the nearest neighbors choose the frame.
        preference: how many times less variance makes another frame better than the whole pose of a body.
        slack: (H,), how much farther than in demonstrated grasps a body may be from the hand while it is grasped.
    """

    n_action_steps: int
    blocks: Any
    frames: Any
    hands: Any
    turns: Any
    dimension: int
    offset: Any
    scale: Any
    weight: Any
    n_voters: int
    preference: float
    slack: Any


class Sampling(NamedTuple):
    """The sampler's steps and when they may be cut short.

    Attributes:
        steps: (S, 6) of gain, noise, keep, jump, spread and recall; see `StepWeights`.
        cut: nats below the largest term at which terms are dropped.
        stop_at: the time, of `clock.seconds`, after which no further step begins.
    """

    steps: Any
    cut: float
    stop_at: float


class RandomDraws(NamedTuple):
    """Random numbers.

    Attributes:
        noise: (B, n, N_a * D)
        perturbations: (B, M, N_a * D)
        fresh: (B, S, n, N_a * D), noise added at each step, or (B, 0, n, N_a * D).
    """

    noise: Any
    perturbations: Any
    fresh: Any


class Observed(NamedTuple):
    """The observations of some plans.

    Attributes:
        lifted: (B, D_z), what the feature map returns; features are (lifted - offset) * scale.
        offset, scale: (D_z,)
        poses: (B, bodies, pose width), current; no bodies if nothing is transferred.
    """

    lifted: Any
    offset: Any
    scale: Any
    poses: Any
