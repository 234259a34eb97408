"""The paper's tables and figures, and studies of our own: resumable, written to docs/results by `python -m studies`."""
