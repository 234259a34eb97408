"""Arms for tests: one that follows its commands with a lag, and where it stands."""

import numpy as np

from closedform.deploy.control_config import ControlConfig, Workspace
from closedform.deploy.interfaces import ArmState
from closedform.deploy.kinematics import Kinematics
from closedform.deploy.workplane import Workplane

KINEMATICS = Kinematics.of("ur5e", 0.15)
PLANE = Workplane((0.25, -0.256, 0.0), (1, 0, 0), (0, 1, 0))
CONFIG = ControlConfig()
WORKSPACE = Workspace(PLANE, np.array([-0.06, -0.06, 0.004]), np.array([0.572, 0.572, 0.1]))


def joints_at(point, kinematics=KINEMATICS, plane=PLANE, start=(3.1, -1.4, 2.0, -2.2, -1.57, 0.0)):
    """Joints (6,) that hold the tool vertical at a point (3,) of the workplane's frame."""
    from closedform.deploy.inverse import solve

    return solve(kinematics, plane, np.asarray(point, float), np.array(start), CONFIG.limits(kinematics))


class LaggingArm:
    """Follows its commands with a first-order lag; time passes with each command."""

    n_joints = 6

    def __init__(self, joints, clock=None, lag=0.02):
        self.joints, self.velocities, self.lag = np.array(joints, float), np.zeros(6), lag
        self.clock, self.stopped, self.calls, self.sent = clock, None, [], []
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
