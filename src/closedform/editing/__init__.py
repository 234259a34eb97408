"""Editing: neural diffusion policies changed at inference time, with nothing but demonstrations (extra `neural`)."""

from closedform.errors import MissingExtraError

try:
    import torch as _torch  # noqa: F401
except ImportError as _error:
    raise MissingExtraError("torch", "neural", "editing a neural policy") from _error

from closedform.editing.augmented import Augmented
from closedform.editing.augmented_policy import AugmentedPolicy
from closedform.editing.edited_policy import EditedPolicy, demonstrations_for
from closedform.editing.guided import Guided
from closedform.editing.guided_policy import GuidedPolicy

__all__ = ["Augmented", "AugmentedPolicy", "EditedPolicy", "Guided", "GuidedPolicy", "demonstrations_for"]
