"""Analysis: dataset health, explanations, familiarity, tuning and reports."""

from closedform.analysis.explain import Explanation, explain, explain_rollout
from closedform.analysis.explain_figure import draw_explanation
from closedform.analysis.familiarity import Familiarity, measure_familiarity
from closedform.analysis.health import Health, Problem, examine
from closedform.analysis.leave_one_out import LeftOut, leave_one_out
from closedform.analysis.report import write_report
from closedform.analysis.tune import Trial, Tuning, tune

__all__ = [
    "Explanation",
    "Familiarity",
    "Health",
    "LeftOut",
    "Problem",
    "Trial",
    "Tuning",
    "draw_explanation",
    "examine",
    "explain",
    "explain_rollout",
    "leave_one_out",
    "measure_familiarity",
    "tune",
    "write_report",
]
