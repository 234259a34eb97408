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
from closedform.evaluation.evaluate import EvaluationError, evaluate
from closedform.evaluation.evaluation_result import EvaluationResult
from closedform.evaluation.pusht import PushT
from closedform.evaluation.record import record
from closedform.evaluation.rollout import Rollout, roll_out, roll_out_together
from closedform.evaluation.study import Study

__all__ = [
    "Comparison",
    "Environment",
    "EpisodeResult",
    "EvaluationError",
    "EvaluationResult",
    "PushT",
    "Renders",
    "Rollout",
    "Scene",
    "StepResult",
    "Study",
    "compare",
    "environment_names",
    "evaluate",
    "make_environment",
    "record",
    "roll_out",
    "roll_out_together",
]
