"""Shared by all figures: colors, style, and images embedded in HTML pages."""

from __future__ import annotations

import base64
import warnings
from io import BytesIO
from typing import Any

import numpy as np

from closedform.errors import MissingExtraError

INK, ACCENT, QUIET, PALE = "#2e3440", "#c8553d", "#8a93a6", "#d8dee9"
LARGEST = 1e30  # of what is drawn; matplotlib fails at axes of 1e300
COLORS = ("#2e6f9e", "#c8553d", "#4f8a5b", "#8a5fa3", "#b3862f", "#5e6a80")
PAGE_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #2e3440; max-width: 1060px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; } h3 { font-size: 1rem; margin-bottom: .3rem; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; padding: .3rem .6rem; }
th { border-bottom: 2px solid #d8dee9; } td { border-bottom: 1px solid #e5e9f0; vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
.error { color: #b00020; font-weight: 600; } .warning { color: #a65d00; font-weight: 600; } .note { color: #5e6a80; }
img { width: 100%; } code { font-size: .9em; background: #eceff4; padding: .1rem .3rem; }
"""


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


def embedded(content: bytes, kind: str) -> str:
    """A file embedded in a page as a data URL."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
