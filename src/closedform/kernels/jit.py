"""The compiler settings that all kernels share."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir
from numba.core import types
from numba.core.errors import NumbaWarning
from numba.extending import intrinsic

from closedform.kernels.cache import KernelCache

REORDER = {"reassoc", "contract", "nsz"}  # sums may be reordered, which lets them be vectorized


def jit(*, reorder: bool = False, inline: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Compiles a function on its first call and caches the result on disk.

    If neither the package's folder nor the user's cache folder can be written, it is compiled in each process. With
    `NUMBA_BOUNDSCHECK=1` in the environment every index is checked, which is slower; that code has a separate cache.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
        if reorder:
            options["fastmath"] = REORDER
        if inline:
            return numba.njit(inline="always", **options)(function)
        compiled: Any = numba.njit(**options)(function)
        with warnings.catch_warnings(), contextlib.suppress(RuntimeError, OSError):  # no folder for a cache
            warnings.simplefilter("ignore", NumbaWarning)
            compiled._cache = KernelCache(function)
        return compiled

    return decorate


def _float32_of_bits(typing_context: Any, bits: Any) -> Any:
    """Reads the 32 bits of an integer as a float."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


float32_of_bits: Any = intrinsic(_float32_of_bits)
