"""The clock that compiled code reads: the one behind `time.perf_counter`."""

from __future__ import annotations

import sys

from numba.core import types

from closedform.kernels.jit import jit

_MONOTONIC = 6 if sys.platform == "darwin" else 1
_clock_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.voidptr))


@jit()
def seconds(scratch):
    """The time now; `scratch` is (2,), int64."""
    _clock_gettime(_MONOTONIC, scratch.ctypes)
    return scratch[0] + 1e-9 * scratch[1]
