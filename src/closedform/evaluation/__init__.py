"""Evaluation: environments, rollouts, statistics and results files."""

from closedform.evaluation.comparison import Comparison, compare
from closedform.evaluation.environment import (
    Environment,
    Renders,
    Scene,
    StepResult,
    environment_names,
    make_environment,
)
from closedform.evaluation.episode_result import EpisodeResult
from closedform.evaluation.evaluate import evaluate
from closedform.evaluation.evaluation_result import EvaluationResult
from closedform.evaluation.pool import EvaluationError
from closedform.evaluation.processes import Processes
from closedform.evaluation.pusht import PushT
from closedform.evaluation.ray_pool import Ray
from closedform.evaluation.record import record
from closedform.evaluation.rollout import Rollout, roll_out, roll_out_together
from closedform.evaluation.study import Study
from closedform.evaluation.sweep import SweepResult, sweep

__all__ = [
    "Comparison",
    "Environment",
    "EpisodeResult",
    "EvaluationError",
    "EvaluationResult",
    "Processes",
    "PushT",
    "Ray",
    "Renders",
    "Rollout",
    "Scene",
    "StepResult",
    "Study",
    "SweepResult",
    "compare",
    "environment_names",
    "evaluate",
    "make_environment",
    "record",
    "roll_out",
    "roll_out_together",
    "sweep",
]
