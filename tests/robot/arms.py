"""Arms for tests: one that follows its commands with a lag, and where it stands."""

import numpy as np

from closedform import Demos, Layout
from closedform.robot.control_config import ControlConfig, Workspace
from closedform.robot.interfaces import ArmState, Estimate
from closedform.robot.kinematics import Kinematics
from closedform.robot.workplane import Workplane
from closedform.vision.camera import Image, Intrinsics

KINEMATICS = Kinematics.of("ur5e", 0.15)
PLANE = Workplane((0.25, -0.256, 0.0), (1, 0, 0), (0, 1, 0))
CONFIG = ControlConfig()
WORKSPACE = Workspace(PLANE, np.array([-0.06, -0.06, 0.004]), np.array([0.572, 0.572, 0.1]))


def joints_at(point, kinematics=KINEMATICS, plane=PLANE, start=(3.1, -1.4, 2.0, -2.2, -1.57, 0.0)):
    """Joints (6,) that hold the tool vertical at a point (3,) of the workplane's frame."""
    from closedform.robot.inverse import solve

    return solve(kinematics, plane, np.asarray(point, float), np.array(start), CONFIG.limits(kinematics))


class LaggingArm:
    """Follows its commands with a first-order lag; time passes with each command."""

    n_joints = 6

    def __init__(self, joints, clock=None, lag=0.02):
        self.joints, self.velocities, self.lag = np.array(joints, float), np.zeros(6), lag
        self.stopped: str | None = None
        self.clock, self.calls, self.sent = clock, [], []
        self.time = 0.0

    def connect(self):
        self.calls.append("connect")

    def state(self):
        time = self.time if self.clock is None else self.clock.now()
        return ArmState(time, self.joints.copy(), self.velocities.copy(), self.stopped)

    def servo(self, joints, dt):
        self.sent.append(joints.copy())
        moved = (joints - self.joints) * (1 - np.exp(-dt / self.lag))
        self.joints, self.velocities = self.joints + moved, moved / dt
        self.time += dt

    def stop(self):
        self.calls.append("stop")

    def recover(self):
        self.stopped = None
        self.calls.append("recover")

    def disconnect(self):
        self.calls.append("disconnect")


def wall_clock_arm():
    """An arm for another process."""
    from closedform.robot.clocks import WallClock

    return LaggingArm(joints_at((0.256, 0.256, 0.008)), WallClock())


def unready_arm():
    """An arm that stands where it must not be started."""
    return LaggingArm(np.zeros(6))


def check_commands(joints, limits, period, start=None):
    """Refuses commanded joints (n, 6) that break limits; the arm was at rest at `start` (6,), or the first of them."""
    velocities = np.diff(joints, axis=0, prepend=joints[:1] if start is None else start[None]) / period
    assert np.all(np.abs(velocities) <= limits.speed * (1 + 1e-9))
    changes = np.diff(velocities, axis=0, prepend=np.zeros((1, 6)))
    assert np.all(np.abs(changes) <= limits.acceleration * period * (1 + 1e-6) + 1e-9)


OBSERVATIONS = Layout.of(("hand", "position", 2), ("target", "position", 2))
ACTIONS = Layout.of(("hand", "position", 2))


def reaching_demos(n=12):
    """Demonstrations that move the hand to a target, in millimeters on the workplane, at 0.2 m/s."""
    rng, episodes = np.random.default_rng(0), []
    for _ in range(n):
        hand, target = rng.uniform(60, 450, (2, 2))
        rows = []
        while np.linalg.norm(target - hand) > 1:
            way = target - hand
            ahead = hand + way * min(1.0, 20 / float(np.linalg.norm(way)))
            rows.append((np.concatenate([hand, target]), ahead))
            hand = ahead
        rows += [(np.concatenate([target, target]), target)] * 12
        episodes.append(tuple(np.array(column) for column in zip(*rows, strict=True)))
    return Demos(episodes, OBSERVATIONS, ACTIONS, rate=10)


class Eyes:
    """Perception of a target that does not move; `hidden` tells at which times it is not seen."""

    observation_layout = OBSERVATIONS

    def __init__(self, target=(350.0, 150.0), hidden=lambda time: False):
        self.target, self.hidden, self.seen = np.array(target), hidden, -np.inf

    def reset(self):
        self.seen = -np.inf

    def observe(self, image, state):
        if not self.hidden(state.time):
            self.seen = state.time
        tip = PLANE.to_positions(PLANE.from_base(KINEMATICS.pose(state.joints).position))
        error = 0.001 if np.isfinite(self.seen) else np.inf
        alarm = "" if self.seen == state.time else "the target is hidden"
        return Estimate(state.time, np.concatenate([tip, self.target]), error, self.seen, alarm)


class Camera:
    """Gray pictures with noise, until they freeze; their time may be ahead."""

    intrinsics = Intrinsics((8, 6), np.eye(3), np.zeros(5))

    def __init__(self, clock, *, freezes=np.inf, ahead=0.0):
        self.clock, self.freezes, self.ahead = clock, freezes, ahead

    def grab(self):
        noise = np.random.default_rng(round(1e6 * min(self.clock.now(), self.freezes)))
        return Image(self.clock.now() + self.ahead, noise.integers(120, 136, (6, 8, 3), np.uint8))

    def close(self):
        return
