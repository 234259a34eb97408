"""Training-free imitation learning: diffusion policies whose score is computed in closed form from demonstrations."""

from closedform.demos.demos import Demos
from closedform.demos.episode import Episode
from closedform.demos.infer import InferredLayouts
from closedform.demos.load import load_demos, save_demos
from closedform.diffusion.denoiser import ClosedForm, Denoiser
from closedform.diffusion.process import DDPM, Flow, Process
from closedform.diffusion.sampler import Sampler, Step, ddim, ddpm, euler
from closedform.errors import ClosedFormError, ClosedFormWarning
from closedform.formats import load_policy
from closedform.geometry.layout import Entry, Layout
from closedform.policies.agent import Agent
from closedform.policies.choice import make_policy
from closedform.policies.closed_form import ClosedFormPolicy
from closedform.policies.config import ClosedFormConfig
from closedform.policies.nearest_neighbor import KernelRegressionPolicy, NearestNeighborPolicy, VINNPolicy
from closedform.policies.plan import Plan
from closedform.policies.policy import Policy
from closedform.weights.term import Term

__version__ = "0.1.0"

__all__ = [
    "DDPM",
    "Agent",
    "ClosedForm",
    "ClosedFormConfig",
    "ClosedFormError",
    "ClosedFormPolicy",
    "ClosedFormWarning",
    "Demos",
    "Denoiser",
    "Entry",
    "Episode",
    "Flow",
    "InferredLayouts",
    "KernelRegressionPolicy",
    "Layout",
    "NearestNeighborPolicy",
    "Plan",
    "Policy",
    "Process",
    "Sampler",
    "Step",
    "Term",
    "VINNPolicy",
    "ddim",
    "ddpm",
    "euler",
    "load_demos",
    "load_policy",
    "make_policy",
    "save_demos",
]
