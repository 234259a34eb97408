"""State: what an agent carries from one plan to the next, as an immutable value."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import numpy as np

from closedform.weights.penalty import Penalty

if TYPE_CHECKING:
    from closedform.store.store import Store

T = TypeVar("T", bound="RememberingTerm")


class Used(NamedTuple):
    """What a plan was made of.

    Attributes:
        store: that its rows refer to.
        rows, weights: (m,), its demonstrations, the largest weight first.
        distance: of the nearest window, in units of the metric.
        h: the bandwidth, in the same unit.
    """

    store: Store
    rows: np.ndarray
    weights: np.ndarray
    distance: float
    h: float


class RememberingTerm(ABC):
    """A term of the energy that depends on the plans before: a frozen value, which each plan replaces by the next.

    It adds to the squared distances of a few windows only.
    """

    @abstractmethod
    def penalty(self, state: State) -> Penalty:
        """What it adds to which rows; the state holds the other terms that remember."""

    @abstractmethod
    def after(self, used: Used) -> Self:
        """The term after a plan."""

    @abstractmethod
    def moved(self, old: Store, new: Store) -> Self:
        """The same for the rows of a store with other episodes; see `find_again`."""


@dataclass(frozen=True)
class State:
    """What an agent carries from one plan to the next.

    Attributes:
        terms: those of the energy that remember.
        store: that their rows refer to; None before the first plan.
        rewrites: what is needed to take plans back to actions, see `Rewrites`.
        once: added in the next plan, and only there; its rows refer to `store`.
    """

    terms: tuple[RememberingTerm, ...] = ()
    store: Store | None = None
    rewrites: tuple[Any, ...] = ()
    once: Penalty = field(default_factory=Penalty.none)

    @cached_property
    def penalty(self) -> Penalty:
        """What is added to the squared distances of the store's rows."""
        return Penalty.sum([*(term.penalty(self) for term in self.terms), self.once])

    def find(self, kind: type[T]) -> T | None:
        """The term of a kind; None if there is none."""
        return next((term for term in self.terms if isinstance(term, kind)), None)

    def on(self, store: Store) -> State:
        """The same for a store with other episodes."""
        if store is self.store:
            return self
        old = self.store
        if old is None:
            return replace(self, store=store)
        once = Penalty(*find_again(old, store, self.once.rows, self.once.values))
        return replace(self, store=store, terms=tuple(term.moved(old, store) for term in self.terms), once=once)

    def after(self, used: Used) -> State:
        """The state after a plan."""
        here = self.on(used.store)
        state = State(tuple(term.after(used) for term in here.terms), used.store, self.rewrites)
        _ = state.penalty  # now, so that the next plan need not wait for it
        return state


def find_again(old: Store, store: Store, rows: np.ndarray, *values: np.ndarray) -> tuple[Any, ...]:
    """The rows of a store in another one, and the values of those that are there."""
    found = store.rows_at(old.episode_ids[old.row_episodes[rows]], old.row_steps[rows], old.copies_of(rows))
    return found[found >= 0], *(each[found >= 0] for each in values)


def spread(
    rows: np.ndarray, weights: np.ndarray, first: Sequence[int] | np.ndarray | int, n_around: int
) -> tuple[np.ndarray, np.ndarray]:
    """The rows (m, 2 n + 1) around some rows, and a weight for each, less the further away it is."""
    offsets = np.arange(-n_around, n_around + 1)
    return rows[:, None] + first + offsets, (1 - np.abs(offsets) / (n_around + 1)) * weights[:, None]
