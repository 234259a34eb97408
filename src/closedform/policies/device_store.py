"""What a plan reads of a store, on a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from closedform.kernels.records import GoalTerm, Rows
from closedform.retrieval.store import Store

if TYPE_CHECKING:
    import torch

    from closedform.kernels.torch_plan import DeviceStore
    from closedform.policies.closed_form import ClosedFormPolicy


def on_device(
    policy: ClosedFormPolicy, store: Store, tensor: Callable[[np.ndarray], torch.Tensor]
) -> tuple[DeviceStore, np.ndarray]:
    """A store's arrays in float32 on a device, and the middle of its features, which they are measured from."""
    import torch

    from closedform.kernels.torch_plan import DeviceStore

    spec, goal = store.spec, store.goal
    features, actions, row_episodes = store.index.rows()[:], store.actions[:], store.row_episodes[:]
    center = features.mean(0)
    centered = tensor(padded(features - center))
    blocks, frames, hands = store.transfers.blocks, store.transfers.frames, store.transfers.hands
    hand_of = np.zeros(spec.encoding.width, np.int64)
    for start, size, _, _, hand in blocks:
        hand_of[start : start + size] = hand

    def whole(array: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(np.ascontiguousarray(array, np.int64)).to(centered.device)

    transfers = any(frame.body >= 0 for frame in spec.selected_frames) or any(hand.holds for hand in spec.hands)
    scaled = (actions - store.scaling.offset[0]) * store.scaling.scale[0]
    metric = store.metric_record(policy.config.metric, 1 / (2 * policy.h(store) ** 2))
    return DeviceStore(
        rows=Rows(
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
        goal=GoalTerm(
            weight=policy.config.goal_weight,
            columns=whole(goal.columns),
            ends=tensor(goal.ends),
            middle=tensor(goal.middle - center[goal.columns]),
            scale=tensor(goal.scale),
            tolerance=goal.tolerance,
        ),
        goal_still=tensor((goal.ends[row_episodes] - features[:, goal.columns]).T),
        transfers=store.transfers._replace(
            blocks=blocks.tolist(),
            frames=frames.tolist(),
            hands=hands.tolist(),
            **{name: tensor(getattr(store.transfers, name)) for name in ("turns", "offset", "scale", "weight")},
        ),
        frame_bodies=whole(frames[:, 0]),
        frame_turns=whole(frames[:, 1]) > 0,
        hand_blocks=tuple(
            tuple(block for block in spec.encoding.blocks if block.start in hand.columns) for hand in spec.hands
        ),
        hand_of=whole(hand_of),
        normalized=None if transfers else tensor(scaled),
        n_episodes=len(store.episodes),
    ), center


def padded(features: np.ndarray) -> np.ndarray:
    """With zeros up to a power of two of at least 16 columns, which a kernel reads faster."""
    width = max(16, 2 ** (features.shape[1] - 1).bit_length())
    return np.pad(features, ((0, 0), (0, width - features.shape[1])))
