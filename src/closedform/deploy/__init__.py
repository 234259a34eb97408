"""From a policy to an arm: interfaces, perception, control and the runner that joins them."""

from closedform.deploy.arm_setup import ArmSetup
from closedform.deploy.clocks import LockstepClock, PacedClock, WallClock
from closedform.deploy.command import Command, Mode, Status
from closedform.deploy.control import Control, LockstepControl
from closedform.deploy.control_config import ControlConfig, Workspace
from closedform.deploy.control_process import ControlProcess, ControlSpec
from closedform.deploy.controller import Controller
from closedform.deploy.interfaces import Arm, ArmState, Camera, Clock, Estimate, Image, Intrinsics, Perception
from closedform.deploy.journal import read_journal
from closedform.deploy.kinematics import Kinematics
from closedform.deploy.run_config import RunConfig, RunResult
from closedform.deploy.runner import Runner
from closedform.deploy.workplane import Workplane

__all__ = [
    "Arm",
    "ArmSetup",
    "ArmState",
    "Camera",
    "Clock",
    "Command",
    "Control",
    "ControlConfig",
    "ControlProcess",
    "ControlSpec",
    "Controller",
    "Estimate",
    "Image",
    "Intrinsics",
    "Kinematics",
    "LockstepClock",
    "LockstepControl",
    "Mode",
    "PacedClock",
    "Perception",
    "RunConfig",
    "RunResult",
    "Runner",
    "Status",
    "WallClock",
    "Workplane",
    "Workspace",
    "read_journal",
]
