"""Named observations: the numbers of a dictionary, in the order in which a policy observes them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from closedform.demos.episode import real_array
from closedform.errors import DataError
from closedform.geometry.layout import Layout

_INDEX = re.compile(r"\[\d+\]$")


def entry_names(layout: Layout) -> dict[str, int]:
    """A name for each entry of a layout, such as `hand_position`, and its size."""
    plain = [f"{entry.body}_{entry.kind}" if entry.body else entry.kind for entry in layout.entries]
    count, seen, names = Counter(plain), Counter(), {}
    for name, entry in zip(plain, layout.entries, strict=True):
        names[f"{name}_{seen[name]}" if count[name] > 1 else name] = entry.size
        seen[name] += 1
    return names


def key_names(columns: Sequence[str]) -> dict[str, int]:
    """The keys that columns such as `cube_pos[0]`, `cube_pos[1]`, `open` come from, and their sizes."""
    return dict(Counter(_INDEX.sub("", column) for column in columns))


def read_named(observation: Mapping[Any, Any], layout: Layout, columns: Sequence[str] | None) -> np.ndarray:
    """The numbers (D_o,) of a dictionary, whatever the order of its keys; those that are not observed are left out.

    Args:
        observation: as gymnasium's Dict spaces have it: arrays or numbers by name.
        layout: of an observation.
        columns: the names of its numbers in the demonstrations, if they had some. Keys are these, or those of the
            layout's entries.
    """
    choices = [key_names(columns)] if columns else []
    choices.append(entry_names(layout))
    names = next((names for names in choices if names.keys() <= observation.keys()), None)
    if names is None:
        expected = ", ".join(f"{name} ({size})" for name, size in choices[0].items())
        missing = ", ".join(name for name in choices[0] if name not in observation)
        raise DataError(
            f"expected an observation of {layout.width} numbers, or a dictionary with {expected}; found one without "
            f"{missing}; images become numbers with closedform perceive"
        )
    parts = [np.ravel(real_array(observation[name], name)) for name in names]
    for (name, size), part in zip(names.items(), parts, strict=True):
        if len(part) != size:
            raise DataError(f"observation {name!r}: expected {size} numbers, found {len(part)}")
    return np.concatenate(parts)
