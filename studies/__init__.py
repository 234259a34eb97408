"""Studies: the paper's tables and figures and our own experiments, written to docs/results by `python -m studies`."""
