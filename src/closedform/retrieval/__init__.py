"""Finding the demonstrations that matter: feature maps, metrics, indexes and frames."""

from closedform.retrieval.build import build_model
from closedform.retrieval.faiss_index import FaissIndex
from closedform.retrieval.feature_map import (
    CustomFeatures,
    FeatureMap,
    GeometricFeatures,
    IdentityFeatures,
    ScaledFeatures,
)
from closedform.retrieval.frame import Frame
from closedform.retrieval.goal import Goal
from closedform.retrieval.hand import Hand
from closedform.retrieval.index import ExactIndex
from closedform.retrieval.model import Model
from closedform.retrieval.observation_kernel import ObservationKernel
from closedform.retrieval.penalty import Penalty
from closedform.retrieval.recall import Recall
from closedform.retrieval.store import Store
from closedform.retrieval.term import Term
from closedform.retrieval.transfer import Transfer

__all__ = [
    "CustomFeatures",
    "ExactIndex",
    "FaissIndex",
    "FeatureMap",
    "Frame",
    "GeometricFeatures",
    "Goal",
    "Hand",
    "IdentityFeatures",
    "Model",
    "ObservationKernel",
    "Penalty",
    "Recall",
    "ScaledFeatures",
    "Store",
    "Term",
    "Transfer",
    "build_model",
]
