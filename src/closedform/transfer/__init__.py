"""How a demonstrated chunk applies to the current scene: frames, hands and grasped objects."""

from closedform.transfer.frame import Frame
from closedform.transfer.hand import Hand
from closedform.transfer.transfer import Transfer

__all__ = ["Frame", "Hand", "Transfer"]
