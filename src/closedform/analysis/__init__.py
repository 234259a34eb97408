"""Analysis: dataset health, explanations, familiarity, tuning and reports."""
