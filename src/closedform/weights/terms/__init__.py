"""The terms of the energy, one a file: whatever prefers one demonstration to another.

A term that is a function of the observation is a `Term`; one that depends on the plans before is a `RememberingTerm`.
Each declares its parameters in its own file. A term may have a compiled form beside it (`goal_compiled.py`), which
`policies/backends/compiled_plan.py` lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from closedform.weights.state import RememberingTerm
from closedform.weights.term import Term
from closedform.weights.terms.continuation import Continuation, ContinuationParameters
from closedform.weights.terms.goal import Goal, GoalParameters
from closedform.weights.terms.loop_memory import LoopMemory, LoopMemoryParameters
from closedform.weights.terms.relation import Relation, RelationParameters


@dataclass(frozen=True)
class TermParameters(RelationParameters, GoalParameters, ContinuationParameters, LoopMemoryParameters):
    """The parameters of all built-in terms."""


def built_in(parameters: TermParameters) -> tuple[Term, ...]:
    """The built-in terms that are a function of the observation."""
    return tuple(term for term in (Goal.of(parameters), Relation.of(parameters)) if term is not None)


def remembering(parameters: TermParameters, n_execute: int, fitted: Sequence[Term]) -> tuple[RememberingTerm, ...]:
    """The built-in terms that remember, before the first plan.

    Args:
        parameters: of the terms.
        n_execute: actions executed of each plan.
        fitted: the other terms; where objects have a goal, the end of an episode is nothing to stay at.
    """
    hold = parameters.hold_at_end and not any(isinstance(term, Goal) for term in fitted)
    memory = LoopMemory(parameters.loop_memory, n_execute, hold, parameters.loop_delay)
    ahead = Continuation(parameters.continuation, n_execute, hold)
    return (memory, ahead) if ahead.weight else (memory,) if memory.distance else ()
