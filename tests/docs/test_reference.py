"""The API reference: every public name is in it, with its parameters."""

import enum
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

import closedform

DOCS = Path(__file__).parents[2] / "docs"
FOLDERS = Path(closedform.__file__).parent.glob("*/__init__.py")
PACKAGES = ["closedform", *(f"closedform.{path.parent.name}" for path in FOLDERS)]
MODULES = {"closedform.neural": "torch", "closedform.editing": "torch"}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_has_a_page_in_the_reference(package):
    """Its names follow from `__all__`: the page documents all of them, and `make docs` fails if one is missing."""
    if package in MODULES:
        pytest.importorskip(MODULES[package])
    page = package.rpartition(".")[2]
    assert f".. automodule:: {package}\n" in (DOCS / "api" / f"{page}.md").read_text()
    assert page in (DOCS / "api" / "index.md").read_text().split()
    assert import_module(package).__all__


def test_every_name_of_the_package_itself_is_on_its_page():
    """They are grouped there by what they are for, so each is listed by name."""
    page = (DOCS / "api" / "closedform.md").read_text()
    listed = re.findall(r"\.\. auto(?:class|function|exception|data):: closedform\.(\w+)\n", page)
    assert sorted(listed) == sorted(closedform.__all__)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_says_what_its_parameters_are(package):
    if package in MODULES:
        pytest.importorskip(MODULES[package])
    module = import_module(package)
    silent = {name: missing for name in module.__all__ if (missing := undocumented(getattr(module, name)))}
    assert not silent


def undocumented(thing: object) -> list[str]:
    """Parameters of a class or function that neither its docstring nor those of its bases and fields name."""
    if isinstance(thing, closedform.Sampler):  # an object of a documented class
        thing = type(thing).__call__
    if not callable(thing) or (inspect.isclass(thing) and issubclass(thing, enum.Enum | Exception)):
        return []
    bases = [base for base in inspect.getmro(thing) if base is not object] if inspect.isclass(thing) else [thing]
    said = "\n".join(base.__doc__ or "" for base in bases)
    for base in bases:
        if inspect.isclass(base) and base.__module__.startswith("closedform."):
            said += "\n" + "\n".join(re.findall(r'^    (\w+): .*\n    """', inspect.getsource(base), re.MULTILINE))
    named = inspect.signature(thing).parameters
    return [name for name in named if name not in ("self", "args", "kwargs") and not re.search(rf"\b{name}\b", said)]


def test_a_parameter_that_is_not_documented_is_found():
    def plan(observation, seed=0):
        """Plans for an observation."""

    assert undocumented(plan) == ["seed"]


def test_help_lists_the_kinds_of_layout_entries():
    from typing import get_args

    from closedform.geometry.layout import Kind

    for kind in get_args(Kind):
        assert f"`{kind}`" in (closedform.Layout.__doc__ or "")
