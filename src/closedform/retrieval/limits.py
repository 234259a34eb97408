"""Limits: what is too large to be allocated is refused before it is."""

from __future__ import annotations

from closedform.errors import ConfigError

MOST_NUMBERS = 2**30  # that are held at once for one purpose, 8 GiB


def check_size(n_numbers: int, what: str, remedy: str) -> None:
    """Refuses what would hold more than 8 GiB of numbers.

    Args:
        n_numbers: how many numbers of 8 bytes.
        what: they are, for the message.
        remedy: what to do about it.
    """
    if n_numbers > MOST_NUMBERS:
        expected, found = MOST_NUMBERS / 2**27, min(n_numbers, 10**300) / 2**27
        raise ConfigError(f"{what}: expected at most {expected:g} GiB of memory, found {found:.3g} GiB; {remedy}")
