"""Provenance: what produced a result, so that it can be reproduced."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_PACKAGES = (
    *("closedform", "numpy", "numba", "torch", "jax"),
    *("gymnasium", "gym-pusht", "pymunk", "robosuite", "metaworld", "mujoco"),
)


def versions() -> dict[str, str]:
    """The versions of Python and of the installed packages that a result can depend on."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, Any]:
    """The processor, its number of cores, and the GPU if torch is loaded and can use one."""
    processor = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        processor = lines[0].split(":", 1)[1].strip() if lines else processor
    torch = sys.modules.get("torch")
    gpu = {"gpu": torch.cuda.get_device_name()} if torch and torch.cuda.is_available() else {}
    return {"processor": processor, "cores": n_cores(), **gpu, "system": platform.system()}


def n_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def commit() -> str | None:
    """The commit of the checkout that the code runs from; None without a checkout or without git."""
    here = Path(__file__).parent

    def git(*arguments: str) -> str:
        asked = subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True, check=True)
        return asked.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)  # or it would be the commit of a stranger's checkout
        return git("describe", "--always", "--dirty", "--exclude=*")
    except (OSError, subprocess.CalledProcessError):
        return None


def command() -> str:
    """The command that this process was started with, without its path."""
    return shlex.join([Path(sys.argv[0]).name.replace("__main__.py", "closedform"), *sys.argv[1:]])


def now() -> str:
    """The current time in UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
