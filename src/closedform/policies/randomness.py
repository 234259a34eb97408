"""Randomness: seeds and generators."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from closedform.errors import ConfigError

Seed = int | np.random.Generator | None


def generator(seed: Seed) -> np.random.Generator:
    """A random generator from a seed; a generator is returned unchanged."""
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"seed: expected a whole number of 0 or more, or a generator, found {seed!r}") from error


class Streams:
    """Generators of several episodes, drawn from together: the numbers of each are those it would draw alone."""

    def __init__(self, generators: Sequence[np.random.Generator]):
        self.generators = list(generators)

    def __len__(self) -> int:
        return len(self.generators)

    def standard_normal(self, size: tuple[int, ...]) -> np.ndarray:
        """Normal numbers of a shape whose first axis is the episodes'."""
        if size[0] != len(self):
            raise ValueError(f"expected {len(self)} episodes on the first axis, found shape {size}")
        return np.stack([each.standard_normal(size[1:]) for each in self.generators])

    def spawn(self) -> Streams:
        """New streams, one for each episode; the current ones do not change."""
        return Streams([each.spawn(1)[0] for each in self.generators])
