"""The package as a whole."""

import re
import subprocess
import sys
import tomllib
import zlib
from importlib import import_module
from pathlib import Path

import pytest

import closedform

LIGHT = (
    "demos",
    "diffusion",
    "kernels",
    "weights",
    "transfer",
    "geometry",
    "rewrites",
    "judge",
    "store",
    "policies",
    "evaluation",
    "analysis",
    "experts",
    "robot",
    "serve",
    "studio",
    "fleet",
    "vision",
)
NEURAL = ("neural", "editing")


@pytest.mark.parametrize(
    "name",
    ["closedform", "closedform.client", *(f"closedform.{package}" for package in (*LIGHT, "robot.twin"))],
)
def test_importing_is_light(name):
    heavy = "numba torch h5py matplotlib zarr faiss gymnasium tyro scipy websockets msgpack zmq lancedb pyarrow"
    code = f"import sys, {name}; print([m for m in '{heavy}'.split() if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_every_public_name_exists():
    assert len(set(closedform.__all__)) == len(closedform.__all__)
    for name in closedform.__all__:
        assert getattr(closedform, name).__doc__


@pytest.mark.parametrize("package", [*LIGHT, *NEURAL, "cli"])
def test_every_subpackage_says_what_is_public(package):
    if package in NEURAL:
        pytest.importorskip("torch")
    module = import_module(f"closedform.{package}")
    assert module.__all__ and len(set(module.__all__)) == len(module.__all__)
    assert not [name for name in module.__all__ if name.startswith("_") or not hasattr(module, name)]
    for name in module.__all__:
        assert getattr(module, name) is not sys.modules.get(f"closedform.{package}.{name}"), "a module hides it"
    with pytest.raises(AttributeError):
        _ = module.nothing_of_this_name


def test_every_subpackage_is_tested_here():
    folders = {path.parent.name for path in Path(closedform.__file__).parent.glob("*/__init__.py")}
    assert folders == {*LIGHT, *NEURAL, "cli"}


def test_the_package_is_typed():
    """Type checkers read the annotations of an installed package only with this file."""
    assert (Path(closedform.__file__).parent / "py.typed").is_file()


def test_type_checkers_may_use_the_annotations():
    assert (Path(closedform.__file__).parent / "py.typed").is_file()


def test_an_index_page_has_no_dead_links_and_the_first_lines_of_the_readme():
    root = Path(__file__).parent.parent
    named = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["readme"]
    shown, readme = (root / named).read_text("utf-8"), (root / "README.md").read_text("utf-8")
    assert not re.findall(r"\]\((?!https?://)[^)]*\)", shown)
    assert (
        re.findall(r"```python\n(.*?)```", shown, re.DOTALL)
        == re.findall(r"```python\n(.*?)```", readme, re.DOTALL)[:1]
    )


def test_a_wheel_has_at_most_9_megabytes():
    """Wheels are compressed file by file, as here."""
    root = Path(closedform.__file__).parent
    files = [path for path in root.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert sum(len(zlib.compress(path.read_bytes())) for path in files) < 9e6
