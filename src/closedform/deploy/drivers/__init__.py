"""Drivers: arms that can be bought, behind the interface of `closedform.deploy.interfaces.Arm`."""
