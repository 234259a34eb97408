"""EnvironmentPool: the description of an environment, and the instances that this process has built."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from closedform.evaluation.environment import Environment, EnvironmentSpec, describe_environment, make_environment


class EnvironmentPool:
    """Builds environments on demand and reuses them.

    A pool that is sent to another process arrives there empty.

    Args:
        source: the name of an environment (see `make_environment`), or a function that makes one.
    """

    def __init__(self, source: str | Callable[[], Environment]):
        self.source = source
        self._free: list[Environment] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return EnvironmentPool, (self.source,)

    @cached_property
    def spec(self) -> EnvironmentSpec:
        """The description of the environments; one is built, and reused, only if their class does not provide it."""
        known = describe_environment(self.source) if isinstance(self.source, str) else None
        if known is not None:
            return known
        with self.borrow() as (environment,):
            return environment

    @contextmanager
    def borrow(self, n: int = 1) -> Iterator[list[Environment]]:
        """Lends n environments, building new ones if there are too few."""
        lent = [self._take() for _ in range(n)]
        yield lent
        self._free.extend(reversed(lent))  # not after an error: it may have left them in any state

    def _take(self) -> Environment:
        try:
            return self._free.pop()
        except IndexError:
            return make_environment(self.source) if isinstance(self.source, str) else self.source()
