"""The paper's mathematics: processes, denoisers and samplers, for numpy arrays and torch tensors."""

from closedform.diffusion.denoiser import ClosedForm, Denoiser
from closedform.diffusion.predictor import Predictor
from closedform.diffusion.process import DDPM, Flow, Process
from closedform.diffusion.sampler import Sampler, Step, ddim, ddpm, euler

__all__ = ["DDPM", "ClosedForm", "Denoiser", "Flow", "Predictor", "Process", "Sampler", "Step", "ddim", "ddpm", "euler"]
