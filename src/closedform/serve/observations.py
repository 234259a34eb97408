"""ObservationReader: finds the numbers of an observation in a request, by name or in one array."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from closedform.demos.episode import real_array
from closedform.demos.layout import Layout
from closedform.errors import DataError
from closedform.policies.named_observation import entry_names

WHOLE = "observation"
_WHOLE = (WHOLE, "state", "observation/state", "observation.state")  # as openpi's and LeRobot's clients call it
_PREFIXES = ("", "observation/", "observation.")


class ObservationReader:
    """Finds the numbers of an observation in a request.

    They are in one array under `observation` (or `state`), in the order of the layout, or each entry of the layout has
    a key of its own: `hand_position`, `block_angle`; an entry of no body is called after its kind, `other`, and
    entries of the same name are numbered, `other_0`, `other_1`. Keys may begin with `observation/`, and may be in a map
    under `observation`. Arrays have one row, or one for each step of a window.

    Args:
        layout: of an observation.
        n_obs_steps: N_o, observations in a window.
        newest: whether windows of any other length are read too, as their newest observation.
    """

    def __init__(self, layout: Layout, n_obs_steps: int, *, newest: bool = False):
        self._n_obs_steps, self._width, self._newest = n_obs_steps, layout.width, newest
        self.keys = entry_names(layout)

    def read(self, request: Mapping[Any, Any]) -> tuple[np.ndarray, list[str]]:
        """The observation (D_o,) or window (N_o, D_o) of a request, and the keys that were used."""
        nested = request.get(WHOLE)
        if isinstance(nested, Mapping):
            return self._read(nested)[0], [WHOLE]
        return self._read(request)

    def _read(self, request: Mapping[Any, Any]) -> tuple[np.ndarray, list[str]]:
        whole = [key for key in _WHOLE if key in request]
        named = {name: key for name in self.keys for prefix in _PREFIXES if (key := prefix + name) in request}
        if len(whole) == 1 and not named:
            return self._rows(request[whole[0]], whole[0], self._width), whole
        if whole:
            found = [*whole, *named.values()]
            raise DataError(f"expected the observation once, found {_listed(found)} in the request")
        missing = [name for name in self.keys if name not in named]
        if missing:
            raise DataError(
                f"expected {WHOLE!r}, an array of {self._width} numbers, or the keys {self._described()}; found "
                f"{_listed(request)}" + (f", without {_listed(missing)}" if named else "")
            )
        parts = [self._rows(request[named[name]], named[name], size) for name, size in self.keys.items()]
        if len({part.shape[:-1] for part in parts}) > 1:
            shapes = ", ".join(f"{key} {part.shape}" for key, part in zip(named.values(), parts, strict=True))
            raise DataError(f"expected keys of an observation with as many rows each, found {shapes}")
        return np.concatenate(parts, axis=-1), list(named.values())

    def _rows(self, value: Any, key: str, width: int) -> np.ndarray:
        array = real_array(value, key)
        if width == 1 and array.shape in ((), (self._n_obs_steps,)) and array.shape != (1,):
            array = array[..., None]
        if self._newest and array.ndim == 2 and 0 < len(array) != self._n_obs_steps:
            array = array[-1]
        if array.shape not in ((width,), (self._n_obs_steps, width)):
            window = f", or a window of {self._n_obs_steps} times {width}" if self._n_obs_steps > 1 else ""
            raise DataError(f"{key}: expected {width} numbers{window}, found shape {array.shape}")
        return array.reshape(width) if self._n_obs_steps == 1 else array

    def _described(self) -> str:
        return ", ".join(f"{name} ({size})" for name, size in self.keys.items())


def _listed(keys: Any) -> str:
    """The first few keys of a request, as text for a message."""
    shown = [str(key)[:40] if isinstance(key, str | bytes) else repr(key)[:40] for key in keys]
    return ", ".join(shown[:12]) + (f" and {len(shown) - 12} more" if len(shown) > 12 else "") or "nothing"
