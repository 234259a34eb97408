"""Randomness: seeds and generators."""

from __future__ import annotations

import numpy as np

from closedform.errors import ConfigError

Seed = int | np.random.Generator | None


def generator(seed: Seed) -> np.random.Generator:
    """A generator of random numbers, from a seed or as it is."""
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"seed: expected a whole number of 0 or more, or a generator, found {seed!r}") from error
