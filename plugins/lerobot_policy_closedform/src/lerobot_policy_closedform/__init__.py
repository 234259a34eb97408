"""closedform as a LeRobot policy; importing it registers the type `closedform`."""

from lerobot_policy_closedform.configuration_closedform import ClosedformConfig
from lerobot_policy_closedform.modeling_closedform import ClosedformPolicy
from lerobot_policy_closedform.processor_closedform import make_closedform_pre_post_processors

__all__ = ["ClosedformConfig", "ClosedformPolicy", "make_closedform_pre_post_processors"]
