"""Policies made of demonstrations, and the agents that run them."""

from closedform.policies.agent import Agent
from closedform.policies.backends.batch_planner import BatchPlanner
from closedform.policies.choice import make_policy
from closedform.policies.closed_form import ClosedFormPolicy
from closedform.policies.config import ClosedFormConfig, KernelConfig, PolicyConfig
from closedform.policies.demonstration_policy import DemonstrationPolicy
from closedform.policies.nearest_neighbor import KernelRegressionPolicy, NearestNeighborPolicy, VINNPolicy
from closedform.policies.plan import Plan
from closedform.policies.policy import Policy
from closedform.policies.saving import load_policy

__all__ = [
    "Agent",
    "BatchPlanner",
    "ClosedFormConfig",
    "ClosedFormPolicy",
    "DemonstrationPolicy",
    "KernelConfig",
    "KernelRegressionPolicy",
    "NearestNeighborPolicy",
    "Plan",
    "Policy",
    "PolicyConfig",
    "VINNPolicy",
    "load_policy",
    "make_policy",
]
