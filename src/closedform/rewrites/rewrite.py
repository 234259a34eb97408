"""Rewrite: turns demonstrations into ones that transfer better, and plans back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import numpy as np

from closedform.demos.episode import Episode
from closedform.geometry.layout import Layout

T = TypeVar("T", bound="Rewrite")


class Rewrite(ABC):
    """One way to read a demonstration: as others that say the same, or say it better elsewhere.

    Whatever is below, the store of windows and the planner, sees rewritten episodes only; their plans are taken back to
    actions of the robot. A rewrite is a frozen value.

    Attributes:
        name: in a saved policy.
    """

    name: ClassVar[str]

    @abstractmethod
    def episodes(self, episode: Episode) -> list[Episode]:
        """The episodes that a demonstration stands for, always as many; itself, rewritten, comes first."""

    @property
    def n_copies(self) -> int:
        """How many these are."""
        return 1

    @property
    def n_turned(self) -> int:
        """How many of them, the first ones, are not mirrored."""
        return self.n_copies

    def layouts(self, observations: Layout, actions: Layout) -> tuple[Layout, Layout]:
        """The layouts of rewritten observations and actions."""
        return observations, actions

    def begin(self) -> Any:
        """What has to be known of an episode to take plans back, before its first action; None if nothing is."""
        return None

    def acted(self, state: Any, action: np.ndarray) -> Any:
        """The same after an action (D_a,) of the robot."""
        return state

    def to_actions(self, chunks: np.ndarray, observations: np.ndarray, state: Any = None) -> np.ndarray:
        """The robot's actions for planned ones.

        Args:
            chunks: (..., N_a, D_a)
            observations: (..., D_o), of the current scenes.
            state: see `begin`; None for the beginning of an episode.
        """
        return chunks

    @abstractmethod
    def to_json(self) -> Any:
        """What was found in the demonstrations, as plain lists and dictionaries."""


@dataclass(frozen=True)
class Rewrites:
    """Several rewrites, one after the other; plans go back through them in the other order.

    Attributes:
        parts: the first one rewrites what was recorded.
    """

    parts: tuple[Rewrite, ...] = ()

    def find(self, kind: type[T]) -> T | None:
        """The part of a kind; None if there is none."""
        return next((part for part in self.parts if isinstance(part, kind)), None)

    @cached_property
    def n_copies(self) -> int:
        """How many episodes a demonstration stands for."""
        return int(np.prod([part.n_copies for part in self.parts], dtype=int))

    @cached_property
    def n_turned(self) -> int:
        """How many of them, the first ones, are not mirrored."""
        return int(np.prod([part.n_turned for part in self.parts], dtype=int))

    def episodes(self, recorded: Sequence[Episode]) -> list[Episode]:
        """What demonstrations stand for, that of each one after the other."""
        episodes = list(recorded)
        for part in self.parts:
            episodes = [rewritten for episode in episodes for rewritten in part.episodes(episode)]
        return episodes

    def layouts(self, observations: Layout, actions: Layout) -> tuple[Layout, Layout]:
        """The layouts of rewritten observations and actions."""
        for part in self.parts:
            observations, actions = part.layouts(observations, actions)
        return observations, actions

    def begin(self) -> tuple[Any, ...]:
        """The state of each part."""
        return tuple(part.begin() for part in self.parts)

    def acted(self, states: tuple[Any, ...], action: np.ndarray) -> tuple[Any, ...]:
        """The states after an action (D_a,) of the robot."""
        return tuple(part.acted(state, action) for part, state in zip(self.parts, states, strict=True))

    def to_actions(
        self, chunks: np.ndarray, observations: np.ndarray, states: tuple[Any, ...] | None = None
    ) -> np.ndarray:
        """The robot's actions for planned ones; see `Rewrite.to_actions`."""
        for part, state in zip(self.parts[::-1], (states or self.begin())[::-1], strict=True):
            chunks = part.to_actions(chunks, observations, state)
        return chunks
