"""The terms of the energy, one a file: whatever prefers one demonstration to another.

A term that is a function of the observation is a `Term`; one that depends on the plans before is a `RememberingTerm`.
A term may have a compiled form beside it (`goal_compiled.py`), which `policies/backends/compiled_plan.py` lists.
"""
