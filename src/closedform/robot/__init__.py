"""From a policy to an arm: interfaces, perception, control and the runner that joins them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from closedform.robot.public import (
        Arm,
        ArmSetup,
        ArmState,
        Clock,
        Command,
        Control,
        ControlConfig,
        Controller,
        ControlProcess,
        ControlSpec,
        Estimate,
        Kinematics,
        LockstepClock,
        LockstepControl,
        MarkerPerception,
        Mode,
        PacedClock,
        Perception,
        PictureFolder,
        RunConfig,
        Runner,
        RunResult,
        Status,
        WallClock,
        Workplane,
        Workspace,
        read_journal,
    )

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


def __getattr__(name: str) -> Any:
    """Imports the public names on first use, so that the commands of this room are found fast."""
    if name in __all__:
        from closedform.robot import public

        return getattr(public, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
