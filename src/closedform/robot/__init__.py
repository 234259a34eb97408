"""From a policy to an arm: interfaces, perception, control and the runner that joins them."""

from closedform.robot.arm_setup import ArmSetup
from closedform.robot.clocks import LockstepClock, PacedClock, WallClock
from closedform.robot.command import Command, Mode, Status
from closedform.robot.control import Control, LockstepControl
from closedform.robot.control_config import ControlConfig, Workspace
from closedform.robot.control_process import ControlProcess, ControlSpec
from closedform.robot.controller import Controller
from closedform.robot.interfaces import Arm, ArmState, Clock, Estimate, Perception
from closedform.robot.journal import read_journal
from closedform.robot.kinematics import Kinematics
from closedform.robot.marker_perception import MarkerPerception
from closedform.robot.picture_folder import PictureFolder
from closedform.robot.run_config import RunConfig, RunResult
from closedform.robot.runner import Runner
from closedform.robot.workplane import Workplane

__all__ = [
    "Arm",
    "ArmSetup",
    "ArmState",
    "Clock",
    "Command",
    "Control",
    "ControlConfig",
    "ControlProcess",
    "ControlSpec",
    "Controller",
    "Estimate",
    "Kinematics",
    "LockstepClock",
    "LockstepControl",
    "MarkerPerception",
    "Mode",
    "PacedClock",
    "Perception",
    "PictureFolder",
    "RunConfig",
    "RunResult",
    "Runner",
    "Status",
    "WallClock",
    "Workplane",
    "Workspace",
    "read_journal",
]
