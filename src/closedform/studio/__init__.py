"""The studio: a page where a person demonstrates with the mouse, lets go, and the policy drives."""

from closedform.studio.collection import Collection
from closedform.studio.edit_log import EditLog
from closedform.studio.pilot import Pilot
from closedform.studio.server import Server
from closedform.studio.session import StudioSession
from closedform.studio.tape import Tape

__all__ = ["Collection", "EditLog", "Pilot", "Server", "StudioSession", "Tape"]
