"""The robomimic tasks: robosuite's names for them and the layouts of their observations and actions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from closedform.geometry.layout import Entry, Layout

HANDS = ("hand", "hand1")


def _pose(body: str) -> tuple[Entry, ...]:
    return (Entry("position", 3, body), Entry("quaternion", 4, body))


# The pose of an object relative to the hand: its numbers follow from the poses.
_FROM_HAND = (Entry("other", 3), Entry("other", 4))


@dataclass(frozen=True)
class RobomimicTask:
    """A task of robomimic's benchmark.

    Attributes:
        name: its name on the command line.
        env_name: robosuite's name.
        n_arms: the number of Panda arms.
        max_steps: the length of an episode in Diffusion Policy's evaluation.
        objects: the entries of the key `object`, in robosuite's order.
    """

    name: str
    env_name: str
    n_arms: int
    max_steps: int
    objects: tuple[Entry, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """Diffusion Policy's observation keys, in its order."""
        hands = [f"robot{arm}_{what}" for arm in range(self.n_arms) for what in ("eef_pos", "eef_quat", "gripper_qpos")]
        return ("object", *hands)

    @cached_property
    def observation_layout(self) -> Layout:
        """The layout of all keys."""
        entries = [*self.objects]
        for hand in HANDS[: self.n_arms]:
            entries += [*_pose(hand), Entry("other", 2, hand)]
        return Layout(tuple(entries))

    @cached_property
    def action_layout(self) -> Layout:
        """Each hand's target pose in the world, and its gripper: -1 opens, 1 closes."""
        entries: list[Entry] = []
        for hand in HANDS[: self.n_arms]:
            entries += [Entry("position", 3, hand), Entry("axis_angle", 3, hand), Entry("other", 1, hand)]
        return Layout(tuple(entries))

    @cached_property
    def pose_columns(self) -> np.ndarray:
        """The columns of an observation that describe a body itself: its pose or its gripper."""
        own = [np.arange(c.start, c.stop) for entry, c in self.observation_layout.slices() if entry.body is not None]
        return np.concatenate(own)

    @cached_property
    def pose_layout(self) -> Layout:
        """The layout of `pose_columns`."""
        return Layout(tuple(entry for entry in self.observation_layout.entries if entry.body is not None))


TASKS = {
    task.name: task
    for task in (
        RobomimicTask("lift", "Lift", 1, 400, (*_pose("cube"), Entry("vector", 3))),
        RobomimicTask("can", "PickPlaceCan", 1, 400, (*_pose("can"), *_FROM_HAND)),
        RobomimicTask("square", "NutAssemblySquare", 1, 400, (*_pose("nut"), *_FROM_HAND)),
        RobomimicTask(
            "transport",
            "TwoArmTransport",
            2,
            700,
            (
                *(entry for body in ("payload", "trash", "lid") for entry in _pose(body)),
                *(Entry("position", 3, body) for body in ("target_bin", "trash_bin")),
                *(Entry("vector", 3),) * 4,
                *(Entry("other", 1),) * 2,
            ),
        ),
        RobomimicTask(
            "tool_hang",
            "ToolHang",
            1,
            700,
            (
                *(entry for body in ("stand", "frame", "tool") for entry in (*_pose(body), *_FROM_HAND)),
                *(Entry("other", 1),) * 2,
            ),
        ),
    )
}
BY_ENV_NAME = {task.env_name: task for task in TASKS.values()}
