"""The backends of the planner: the reference, compiled code, and a GPU; each fills one `PlanBatch`."""
