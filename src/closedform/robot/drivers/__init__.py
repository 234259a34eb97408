"""Drivers: arms that can be bought, behind the interface of `closedform.robot.interfaces.Arm`."""

__all__: list[str] = []  # its modules are imported by name
