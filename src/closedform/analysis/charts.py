"""Charts as SVG, in the colors of the page that they are part of."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import numpy as np

from closedform.figures import drawable

_WIDTH, _HEIGHT = 340, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 8, 8, 34
_N_COLORS = 6


class Chart:
    """A chart with two axes.

    Args:
        title: above it.
        x, y: what the axes are.
        x_range, y_range: what they show.
        whole: whether numbers on the horizontal axis are whole ones.
    """

    def __init__(
        self, title: str, x: str, y: str, x_range: Sequence[float], y_range: Sequence[float], *, whole: bool = False
    ):
        self.title, self.x, self.y = title, x, y
        self._x, self._y = _wide(x_range), _wide(y_range)
        self._whole = whole
        self._marks: list[str] = []

    def steps(self, x: Any, y: Any, color: int = 0) -> None:
        """A line that keeps each value of y until the next x."""
        xs, ys = np.repeat(drawable(x), 2)[1:], np.repeat(drawable(y), 2)[:-1]
        self.line(xs, ys, color)

    def line(self, x: Any, y: Any, color: int = 0) -> None:
        """A line through points; it is interrupted where a number is not finite."""
        parts, pen = [], "M"
        for px, py in zip(self._to_x(drawable(x)), self._to_y(drawable(y)), strict=True):
            if np.isfinite(px) and np.isfinite(py):
                parts.append(f"{pen}{px:.1f} {py:.1f}")
                pen = "L"
            else:
                pen = "M"
        self._marks.append(f'<path class="mark" stroke="{_color(color)}" d="{"".join(parts)}"/>')

    def points(self, x: Any, y: Any, color: int | str = 0, radius: float = 3, alpha: float = 0.65) -> None:
        """Points."""
        for px, py in zip(self._to_x(drawable(x)), self._to_y(drawable(y)), strict=True):
            if np.isfinite(px) and np.isfinite(py):
                fill = f'fill="{_color(color)}" fill-opacity="{alpha}"'
                self._marks.append(f'<circle cx="{px:.1f}" cy="{py:.1f}" r="{radius}" {fill}/>')

    def bars(self, left: Any, right: Any, height: Any, colors: Sequence[int | str] | None = None) -> None:
        """Bars from zero."""
        bottom = self._to_y(np.array([max(0.0, self._y[0])]))[0]
        for i, (a, b, top) in enumerate(
            zip(self._to_x(drawable(left)), self._to_x(drawable(right)), self._to_y(drawable(height)), strict=True)
        ):
            if np.isfinite(top):
                size = f'x="{a:.2f}" y="{top:.1f}" width="{max(0.4, b - a - 0.3):.2f}" height="{bottom - top:.1f}"'
                self._marks.append(f'<rect {size} fill="{_color(colors[i] if colors else 0)}"/>')

    def to_html(self) -> str:
        """The chart as a figure."""
        right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
        axes = [f'<path class="axis" d="M{_LEFT} {_TOP}V{bottom}H{right}"/>']
        for value in _ticks(*self._x, whole=self._whole):
            x = self._to_x(np.array([value]))[0]
            axes.append(f'<text x="{x:.1f}" y="{bottom + 15}" text-anchor="middle">{value:g}</text>')
        for value in _ticks(*self._y):
            y = self._to_y(np.array([value]))[0]
            axes.append(f'<path class="axis" d="M{_LEFT} {y:.1f}H{right}" stroke-opacity=".5"/>')
            axes.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
        middle = (_LEFT + right) / 2
        axes.append(f'<text x="{middle}" y="{_HEIGHT - 3}" text-anchor="middle">{html.escape(self.x)}</text>')
        turn = f'transform="translate(10 {(_TOP + bottom) / 2}) rotate(-90)"'
        axes.append(f'<text {turn} text-anchor="middle">{html.escape(self.y)}</text>')
        drawn = "".join(axes + self._marks)
        return (
            f'<figure class="chart"><figcaption>{html.escape(self.title)}</figcaption>'
            f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{html.escape(self.title)}">{drawn}</svg>'
            "</figure>"
        )

    def _to_x(self, values: np.ndarray) -> np.ndarray:
        low, high = self._x
        return _LEFT + (np.clip(values, low, high) - low) / (high - low) * (_WIDTH - _LEFT - _RIGHT)

    def _to_y(self, values: np.ndarray) -> np.ndarray:
        low, high = self._y
        return _HEIGHT - _BOTTOM - (np.clip(values, low, high) - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)


def legend(names: Sequence[str]) -> str:
    """Which color is which."""
    shown = "".join(f'<span><i style="background:{_color(i)}"></i>{html.escape(n)}</span>' for i, n in enumerate(names))
    return f'<p class="legend">{shown}</p>'


def _color(color: int | str) -> str:
    return f"var(--c{color % _N_COLORS})" if isinstance(color, int) else color


def _wide(limits: Sequence[float]) -> tuple[float, float]:
    low, high = (float(value) if np.isfinite(drawable(value)) else 0.0 for value in limits)
    return (low, high) if high > low else (low, low + max(1.0, abs(low)))


def _ticks(low: float, high: float, *, whole: bool = False) -> list[float]:
    """About four round numbers."""
    step = 10.0 ** np.floor(np.log10((high - low) / 3))
    step *= next(factor for factor in (5, 2, 1) if factor * step <= (high - low) / 3)
    step = max(step, 1.0) if whole else step
    return [float(round(k * step, 12)) for k in range(int(np.ceil(low / step)), int(np.floor(high / step + 1e-9)) + 1)]
