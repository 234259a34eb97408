"""Limits: allocations that would be too large are refused in advance."""

from __future__ import annotations

from closedform.errors import ConfigError

MOST_NUMBERS = 2**30  # in one allocation, 8 GiB


def check_size(n_numbers: int, what: str, remedy: str) -> None:
    """Refuses an allocation of more than 8 GiB.

    Args:
        n_numbers: how many numbers of 8 bytes.
        what: what they are, for the error message.
        remedy: what to do about it.
    """
    if n_numbers > MOST_NUMBERS:
        expected, found = MOST_NUMBERS / 2**27, min(n_numbers, 10**300) / 2**27
        raise ConfigError(f"{what}: expected at most {expected:g} GiB of memory, found {found:.3g} GiB; {remedy}")
