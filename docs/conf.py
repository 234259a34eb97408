"""Sphinx builds the documentation with this: `make docs`."""

from importlib import import_module
from pathlib import Path
from typing import Any

from sphinx.util.logging import getLogger

import closedform

project = "closedform"
author = "the authors of closedform"
version = closedform.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton", "sphinx-mathjax-offline"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4  # links such as formats.md#layouts work as on GitHub

html_theme = "furo"
html_title = f"closedform {version}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
highlight_language = "sh"  # indented blocks are commands

default_role = "literal"  # docstrings have `code` in single backticks
autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
napoleon_custom_sections = [("Attributes", "params_style")]
napoleon_use_rtype = False


logger = getLogger(__name__)
PACKAGES = [path.parent.name for path in Path(closedform.__file__).parent.glob("*/__init__.py")]


def leave_out(app: Any, what: str, name: str, thing: object, skip: bool, options: Any) -> bool | None:
    """Leaves names of `closedform` itself out of the pages of its subpackages."""
    return True if what == "module" and app.env.docname != "api/closedform" and name in closedform.__all__ else None


def mark_code(app: Any, what: str, name: str, thing: object, options: Any, lines: list[str]) -> None:
    """Makes indented paragraphs code, as in Markdown."""
    for i in range(len(lines) - 3, -1, -1):
        if lines[i] and not lines[i].startswith(" ") and not lines[i + 1] and lines[i + 2].startswith("    "):
            lines[i + 1 : i + 1] = ["", ".. code-block:: python"]


def check_names(app: Any, env: Any) -> None:
    """Fails if a public name is missing from the reference."""
    documented = env.domaindata["py"]["objects"]
    for package in ("closedform", *(f"closedform.{package}" for package in PACKAGES)):
        for name in import_module(package).__all__:
            if f"{package}.{name}" not in documented and f"closedform.{name}" not in documented:
                logger.warning("%s.%s: expected in docs/api, found nowhere", package, name)


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-skip-member", leave_out)
    app.connect("autodoc-process-docstring", mark_code, priority=400)  # before napoleon
    app.connect("env-check-consistency", check_names)
