"""Evaluation: environments, rollouts, statistics and results files."""

from closedform.evaluation.episode_result import EpisodeResult
from closedform.evaluation.evaluate import evaluate
from closedform.evaluation.evaluation_result import EvaluationResult

__all__ = ["EpisodeResult", "EvaluationResult", "evaluate"]
