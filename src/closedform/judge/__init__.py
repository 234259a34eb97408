"""What the demonstrations themselves decide, by predicting episodes that were left out."""

from closedform.judge.relevance import relevances
from closedform.judge.shrinkage import choose_shrinkage
from closedform.judge.symmetry_search import find_mirrored

__all__ = ["choose_shrinkage", "find_mirrored", "relevances"]
