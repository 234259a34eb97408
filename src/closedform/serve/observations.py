"""ObservationReader: finds the numbers of an observation in a request, by name or in one array."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from closedform.demos.episode import real_array
from closedform.errors import DataError
from closedform.geometry.layout import Layout
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
        keys: those of a request whose numbers, in this order, are an observation, instead of the names above.
        newest: whether windows of any other length are read too, as their newest observation.

    Attributes:
        keys: those of a request, with their sizes, which are 0 if they are not known.
    """

    def __init__(self, layout: Layout, n_obs_steps: int, keys: Sequence[str] = (), *, newest: bool = False):
        self._n_obs_steps, self._width, self._newest = n_obs_steps, layout.width, newest
        self._chosen = tuple(keys)
        self.keys = dict.fromkeys(keys, 0) or entry_names(layout)

    def read(self, request: Mapping[Any, Any]) -> tuple[np.ndarray, list[str]]:
        """The observation (D_o,) or window (N_o, D_o) of a request, and the keys that were used."""
        nested = request.get(WHOLE)
        if isinstance(nested, Mapping):
            return self._read(nested)[0], [WHOLE]
        return self._read(request)

    def _read(self, request: Mapping[Any, Any]) -> tuple[np.ndarray, list[str]]:
        if self._chosen:
            return self._read_chosen(request), list(self._chosen)
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

    def _read_chosen(self, request: Mapping[Any, Any]) -> np.ndarray:
        """The numbers under the chosen keys, which share their rows."""
        missing = [key for key in self._chosen if key not in request]
        if missing:
            raise DataError(f"expected the keys {_listed(self._chosen)} in a request, found none of {missing[0]!r}")
        parts = [np.atleast_1d(real_array(request[key], key)) for key in self._chosen]
        if self._newest:
            parts = [part[-1] if part.ndim > 1 and len(part) else part for part in parts]
        if len({part.shape[:-1] for part in parts}) > 1:
            shapes = ", ".join(f"{key} {part.shape}" for key, part in zip(self._chosen, parts, strict=True))
            raise DataError(f"expected keys of an observation with as many rows each, found {shapes}")
        return self._rows(np.concatenate(parts, axis=-1), " and ".join(self._chosen), self._width)

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
