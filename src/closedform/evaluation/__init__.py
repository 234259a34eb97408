"""Evaluation: environments, rollouts, statistics and reports."""
