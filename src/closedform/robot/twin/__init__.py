"""The twin: an arm, a T and a camera in MuJoCo, behind the interfaces of the real ones."""

from closedform.robot.twin.environment import Twin, TwinTruth
from closedform.robot.twin.settings import TwinSettings
from closedform.robot.twin.station import Station

__all__ = ["Station", "Twin", "TwinSettings", "TwinTruth"]
