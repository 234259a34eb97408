"""MarkerPerception: observations of a policy from the arm's joints and from markers in pictures."""

from __future__ import annotations

import numpy as np

from closedform.errors import ConfigError
from closedform.geometry.layout import Entry, Layout
from closedform.geometry.rigid_pose import RigidPose
from closedform.robot.interfaces import ArmState, Estimate
from closedform.robot.kinematics import Kinematics
from closedform.robot.workplane import Workplane
from closedform.vision.camera import Image
from closedform.vision.marker_tracker import MarkerTracker


class MarkerPerception:
    """Makes observations: the hand's position from the arm's joints, bodies from their markers.

    Bodies are predicted to the time of the arm's state, which makes up for the camera's latency. After a body was not
    seen for too long, estimates carry an alarm.

    Args:
        layout: of observations: positions (2 numbers on the workplane, or 3) and angles on the workplane.
        hand: the name of the hand in the layout; all other bodies are those of the tracker.
        tracker: finds the bodies.
        kinematics: of the arm, with its tool.
        plane: whose units observations are in.
    """

    def __init__(self, layout: Layout, hand: str, tracker: MarkerTracker, kinematics: Kinematics, plane: Workplane):
        self._layout, self._hand, self._plane = layout, hand, plane
        self.tracker, self._kinematics = tracker, kinematics
        known = {hand, *(body.name for body in tracker.cell.bodies)}
        for entry in layout.entries:
            if entry.body not in known or entry.kind not in ("position", "angle"):
                raise ConfigError(
                    f"observations from markers: expected positions and angles of {', '.join(sorted(known))}, found "
                    f"the entry '{entry.body or '-'} {entry.kind} {entry.size}' in the policy's layout"
                )
        self.reset()

    @property
    def observation_layout(self) -> Layout:
        """What the numbers of an observation are."""
        return self._layout

    def reset(self) -> None:
        """Forgets what was seen."""
        self.tracker.reset()
        self._image_time: float | None = None

    def observe(self, image: Image | None, state: ArmState) -> Estimate:
        """The observation at `state.time`; the picture may be older, the same again, or None where there is none."""
        if image is not None and (self._image_time is None or image.time > self._image_time):
            self._image_time = image.time
            self.tracker.update(image)
        tip = self._kinematics.pose(state.joints)
        estimates = self.tracker.at(state.time)
        poses = {self._hand: tip}
        poses |= {name: one.pose for name, one in estimates.items() if one.pose is not None}
        numbers = [self._numbers(entry, poses.get(str(entry.body))) for entry in self._layout.entries]
        alarms = [one.lost for one in estimates.values() if one.lost]
        age = max((one.age for one in estimates.values()), default=0.0)
        error = max((one.deviation for one in estimates.values()), default=0.0)
        return Estimate(state.time, np.concatenate(numbers), error, state.time - age, "; ".join(alarms))

    def _numbers(self, entry: Entry, pose: RigidPose | None) -> np.ndarray:
        """The entry's numbers; zeros for a body that was never seen, which the estimate's error and alarm say."""
        if pose is None:
            return np.zeros(entry.size)
        if entry.kind == "angle":
            x, y, _ = self._plane.axes.T @ pose.rotation[:, 0]
            return np.array([np.arctan2(y, x) % (2 * np.pi)])
        return self._plane.from_base(pose.position)[: entry.size] / self._plane.scale
