"""The twin: an arm, a T and a camera in MuJoCo, behind the interfaces of the real ones."""

from closedform.twin.environment import Twin, TwinTruth
from closedform.twin.settings import TwinSettings
from closedform.twin.station import Station

__all__ = ["Station", "Twin", "TwinSettings", "TwinTruth"]
