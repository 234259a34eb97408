"""How much each demonstration weighs for an observation: features, metric and energy."""

from closedform.weights.energy import energies, log_weights
from closedform.weights.feature_map import (
    CustomFeatures,
    FeatureMap,
    GeometricFeatures,
    IdentityFeatures,
    ScaledFeatures,
)
from closedform.weights.observation_kernel import ObservationKernel
from closedform.weights.penalty import Penalty
from closedform.weights.state import RememberingTerm, State
from closedform.weights.term import Term
from closedform.weights.terms.goal import Goal

__all__ = [
    "CustomFeatures",
    "FeatureMap",
    "GeometricFeatures",
    "Goal",
    "IdentityFeatures",
    "ObservationKernel",
    "Penalty",
    "RememberingTerm",
    "ScaledFeatures",
    "State",
    "Term",
    "energies",
    "log_weights",
]
