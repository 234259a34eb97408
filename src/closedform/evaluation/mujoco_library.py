"""MuJoCo, imported with a rendering library that is there."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

from closedform.errors import ConfigError


def import_mujoco() -> Any:
    """MuJoCo, with the rendering library in MUJOCO_GL; by default EGL without a display, or none if EGL is missing."""
    named = os.environ.get("MUJOCO_GL")
    if named is not None:
        try:
            return _imported()
        except AttributeError as error:  # PyOpenGL's way of saying that a library is not there
            raise ConfigError(
                f"expected the rendering library of MUJOCO_GL={named}, found none: install libegl1 for egl or "
                "libosmesa6 for osmesa, or unset MUJOCO_GL"
            ) from error
    if "mujoco" in sys.modules or os.environ.get("DISPLAY"):
        return _imported()
    for library in ("egl", "osmesa", "disable"):
        os.environ["MUJOCO_GL"] = library
        try:
            return _imported()
        except (ImportError, AttributeError):
            for name in [name for name in sys.modules if name.split(".")[0] in ("mujoco", "OpenGL")]:
                del sys.modules[name]
            os.environ.pop("PYOPENGL_PLATFORM", None)
    os.environ.pop("MUJOCO_GL")
    return _imported()


def _imported() -> Any:
    """MuJoCo with what it renders with, which not every version imports by itself."""
    mujoco = import_module("mujoco")
    import_module("mujoco.gl_context")
    return mujoco
