"""Shared by all figures: colors, style, and images embedded in HTML pages."""

from __future__ import annotations

import base64
import html
import warnings
from collections.abc import Iterable
from io import BytesIO
from typing import Any

import numpy as np

from closedform.errors import MissingExtraError

INK, ACCENT, QUIET, PALE = "#2e3440", "#c8553d", "#8a93a6", "#d8dee9"
GHOST, POLICY = "#8a63c9", "#2f6fd6"  # demonstrations behind a plan, and what is executed, as on pages
LEVELS = {"familiar": "#1f8a60", "rare": "#b87800", "out of range": "#c8343f"}  # of familiarity, likewise
LARGEST = 1e30  # of what is drawn; matplotlib fails at axes of 1e300
COLORS = ("#2e6f9e", "#c8553d", "#4f8a5b", "#8a5fa3", "#b3862f", "#5e6a80")


def pyplot() -> Any:
    """matplotlib's pyplot with the file-only backend and our style."""
    try:
        import matplotlib
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plots", "drawing a figure") from error
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update(
        {
            "font.size": 10,
            "text.color": INK,
            "axes.edgecolor": QUIET,
            "axes.labelcolor": INK,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlesize": 10.5,
            "axes.titlelocation": "left",
            "xtick.color": INK,
            "ytick.color": INK,
            "legend.frameon": False,
        }
    )
    return plt


def literal(text: str) -> str:
    """Text drawn verbatim: matplotlib reads dollar signs as formulas and fails on unpaired surrogates."""
    return text.replace("$", r"\$").encode("utf-8", "backslashreplace").decode("utf-8")


def drawable(values: Any) -> np.ndarray:
    """Numbers for a figure: those that are not finite, or too large to label an axis, become NaN."""
    values = np.asarray(values, np.float64)
    return np.where(np.abs(values) <= LARGEST, values, np.nan)


def png(figure: Any, dpi: int = 130) -> bytes:
    """A figure as the bytes of a PNG file; the figure is closed."""
    buffer = BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)  # it draws a box instead
        figure.savefig(buffer, format="png", dpi=dpi)
    pyplot().close(figure)
    return buffer.getvalue()


def html_table(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """A small table for a notebook; everything is escaped."""
    lines = "".join(
        f'<tr><th style="text-align:left">{html.escape(name)}</th><td style="text-align:left">{html.escape(value)}</td>'
        "</tr>"
        for name, value in rows
    )
    return f"<div><b>{html.escape(title)}</b><table>{lines}</table></div>"


def embedded(content: bytes, kind: str) -> str:
    """A file embedded in a page as a data URL."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
