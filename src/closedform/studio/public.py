"""The public names of `closedform.studio`, which imports them on first use."""

from closedform.studio.collection import Collection
from closedform.studio.edit_log import EditLog
from closedform.studio.pilot import Pilot
from closedform.studio.server import Server
from closedform.studio.session import StudioSession
from closedform.studio.tape import Tape

__all__ = ["Collection", "EditLog", "Pilot", "Server", "StudioSession", "Tape"]
