"""What a plan reads of a model, on a device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from closedform.errors import DataError
from closedform.kernels.records import GoalTerm, RowsRecord
from closedform.store.model import Model
from closedform.weights.term import Term
from closedform.weights.terms.goal import Goal

if TYPE_CHECKING:
    import torch

    from closedform.policies.backends.torch_plan import DeviceStore


def on_device(model: Model, tensor: Callable[[np.ndarray], torch.Tensor]) -> tuple[DeviceStore, np.ndarray]:
    """A model's arrays in float32 on a device, and the center of its features, which is subtracted."""
    import torch

    from closedform.policies.backends.torch_plan import DeviceStore

    if model.store.removed is not None:
        raise DataError("expected a policy without removed episodes in its index; index the others again for a GPU")
    store, transfer, kernel = model.store, model.transfer, model.kernel
    features, actions, row_episodes = model.index.rows()[:], store.actions[:], store.row_episodes[:]
    center = features.mean(0)
    centered = tensor(padded(features - center))
    record, metric = transfer.record, kernel.record
    goal = next((term for term in kernel.terms if isinstance(term, Goal)), Goal(0.0)).record()
    hand_of = np.zeros(transfer.encoding.width, np.int64)
    for start, size, _, _, hand in record.blocks:
        hand_of[start : start + size] = hand

    def whole(array: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(np.ascontiguousarray(array, np.int64)).to(centered.device)

    def moved(term: Term) -> Term:
        arrays = {f.name: getattr(term, f.name) for f in fields(cast(Any, term))}
        kinds = {name: array.dtype.kind for name, array in arrays.items() if isinstance(array, np.ndarray)}
        return replace(
            cast(Any, term), **{name: (tensor if kinds[name] == "f" else whole)(arrays[name]) for name in kinds}
        )

    transfers = any(frame.body >= 0 for frame in transfer.frames) or any(hand.holds for hand in transfer.hands)
    scaled = (actions - transfer.scaling.offset[0]) * transfer.scaling.scale[0]
    no_goal = not goal.weight or not len(goal.columns)
    return DeviceStore(
        rows=RowsRecord(
            columns=centered.T,
            n_rows=len(features),
            actions=tensor(actions),
            starts=whole(store.starts[:]),
            episodes=whole(row_episodes),
            poses=tensor(store.poses[:]),
            held=whole(store.held),
        ),
        width=features.shape[1],
        half_norms=0.5 * (centered * centered).sum(1),
        metric=metric._replace(factor=tensor(metric.factor) if metric.factor.size else None),
        goal=goal._replace(
            columns=whole(goal.columns),
            ends=tensor(goal.ends),
            middle=tensor(goal.middle - center[goal.columns] + goal.ratios * center[goal.references]),
            scale=tensor(goal.scale),
            references=whole(goal.references),
            ratios=tensor(goal.ratios),
        ),
        goal_still=tensor(np.empty((0, len(features))) if no_goal else _still(goal, features, row_episodes)),
        terms=tuple(moved(term) for term in kernel.terms if not isinstance(term, Goal)),
        center=tensor(center),
        transfers=record._replace(
            blocks=record.blocks.tolist(),
            frames=record.frames.tolist(),
            hands=record.hands.tolist(),
            slack=record.slack.tolist(),
            **{name: tensor(getattr(record, name)) for name in ("turns", "offset", "scale", "weight")},
        ),
        frame_bodies=whole(record.frames[:, 0]),
        frame_turns=whole(record.frames[:, 1]) > 0,
        hand_blocks=tuple(
            tuple(block for block in transfer.encoding.blocks if block.start in hand.columns) for hand in transfer.hands
        ),
        hand_of=whole(hand_of),
        normalized=None if transfers else tensor(scaled),
        n_episodes=len(store.episodes),
    ), center


def _still(goal: GoalTerm, features: np.ndarray, row_episodes: np.ndarray) -> np.ndarray:
    """(G, n), the remaining motion of each row."""
    return (goal.ends[row_episodes] - features[:, goal.columns]).T


def padded(features: np.ndarray) -> np.ndarray:
    """Pads with zeros to a power of two of at least 16 columns, which a kernel reads faster."""
    width = max(16, 2 ** (features.shape[1] - 1).bit_length())
    return np.pad(features, ((0, 0), (0, width - features.shape[1])))
