"""What turns demonstrations into others that transfer better, and plans back."""

from closedform.rewrites.copies import Symmetry
from closedform.rewrites.rewrite import Rewrite, Rewrites
from closedform.rewrites.targets import Targets

__all__ = ["Rewrite", "Rewrites", "Symmetry", "Targets"]
