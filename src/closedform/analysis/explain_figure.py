"""Figures of explanations (extra `plots`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from closedform.analysis.explain import Explanation
from closedform.analysis.stage import planar_columns
from closedform.evaluation.environment import Scene
from closedform.figures import GHOST, INK, LARGEST, LEVELS, POLICY, QUIET, drawable, literal, png, pyplot
from closedform.geometry.layout import Layout

_MOST_SHOWN = 40  # demonstrated chunks in one picture
_MOST_LISTED = 8


def draw_explanation(explanation: Explanation, action_layout: Layout, scene: Scene | None, title: str) -> bytes:
    """A PNG image: the demonstrations behind a plan, its sampling, and how familiar the observation is.

    Args:
        explanation: what `explain` or `explain_rollout` returned.
        action_layout: of the policy; a position in the plane is drawn as a path.
        scene: what to draw behind it, if the environment can.
        title: the line above.
    """
    plt = pyplot()
    n_levels = len(explanation.levels)
    figure = plt.figure(figsize=(14, 8 if n_levels else 4.6), layout="constrained")
    figure.suptitle(literal(title), x=0.01, ha="left", fontsize=12)
    grid = figure.add_gridspec(2 if n_levels else 1, 12, height_ratios=(1.25, 1) if n_levels else (1,))
    picture = scene.picture(explanation.observation) if scene else None
    extent = scene.extent if scene else None
    planar = planar_columns(action_layout)

    axis = figure.add_subplot(grid[0, :6])
    _draw_plan(axis, explanation, planar, picture, extent)
    _label(axis, planar, picture)
    axis.set_title(
        "Nearest demonstrations (gray), those with weight (violet),\nthe plan (black) and its executed part (blue)"
    )
    _draw_list(figure.add_subplot(grid[0, 6:9]), explanation)
    _draw_familiarity(figure.add_subplot(grid[0, 9:]), explanation)
    span = 12 // max(n_levels, 1)
    for i, (level, chunks) in enumerate(zip(explanation.levels, explanation.evolution, strict=True)):
        axis = figure.add_subplot(grid[1, i * span : (i + 1) * span])
        _backdrop(axis, picture, extent)
        for chunk in chunks:
            _line(axis, chunk, planar, color=POLICY, linewidth=1, alpha=0.6 - 0.5 * level, marker=".", markersize=3)
        _label(axis, planar, picture)
        axis.set_title(f"{len(chunks)} samples at noise level {level:.2f}")
    return png(figure)


def _draw_plan(
    axis: Any,
    explanation: Explanation,
    planar: tuple[int, int] | None,
    picture: np.ndarray | None,
    extent: tuple[float, float, float, float] | None,
) -> None:
    """Draws the plan and the chunks behind it over the scene."""
    _backdrop(axis, picture, extent)
    plan = explanation.plan
    for chunk in explanation.nearest_transferred:
        _line(axis, chunk, planar, color=QUIET, linewidth=1, marker=".", markersize=2)
    for chunk, weight in zip(explanation.transferred[:_MOST_SHOWN], plan.weights[:_MOST_SHOWN], strict=True):
        alpha = float(0.15 + 0.85 * weight / plan.weights[0])
        _line(axis, chunk, planar, color=GHOST, linewidth=1 + 2 * float(weight), alpha=alpha)
    _line(axis, plan.actions, planar, color=INK, linewidth=1.5, marker=".", markersize=5)
    done = plan.actions[: explanation.n_execute]
    _line(axis, done, planar, color=POLICY, linewidth=2.5, marker="o", markersize=4)


def _label(axis: Any, planar: tuple[int, int] | None, picture: np.ndarray | None) -> None:
    """Labels the axes if there is no scene behind them."""
    if picture is not None:
        return
    if planar is None:
        axis.set(xlabel="step of the chunk", ylabel="action")
        return
    axis.set_aspect("equal", adjustable="datalim")
    axis.set(xlabel=f"action {planar[0]}", ylabel=f"action {planar[1]}")


def _backdrop(axis: Any, picture: np.ndarray | None, extent: tuple[float, float, float, float] | None) -> None:
    if picture is None or extent is None:
        return
    axis.imshow(picture, extent=extent, alpha=0.55)
    axis.set(xlim=sorted(extent[:2]), ylim=extent[2:], xticks=[], yticks=[])


def _line(axis: Any, chunk: np.ndarray, planar: tuple[int, int] | None, **style: Any) -> None:
    chunk = drawable(chunk)
    if planar is None:
        axis.plot(chunk, **style)
    else:
        axis.plot(chunk[:, planar[0]], chunk[:, planar[1]], **style)


def _draw_list(axis: Any, explanation: Explanation) -> None:
    """Lists the demonstrations as text."""
    plan = explanation.plan
    axis.axis("off")
    axis.set_title("Demonstrations and their weights\n ")
    rows = list(zip(plan.episodes, plan.steps, plan.weights, strict=True))[:_MOST_LISTED]
    lines = [f"episode {e:4d}  step {s:4d}   {w:6.1%}" for e, s, w in rows]
    if len(plan.weights) > len(rows):
        lines.append(f"and {len(plan.weights) - len(rows)} more   {plan.weights[len(rows) :].sum():13.1%}")
    lines += ["", "nearest window of each episode"]
    lines += [f"episode {e:4d}  step {s:4d}   {d:6.2f}" for e, s, d in explanation.nearest[:_MOST_LISTED]]
    lines += [
        "",
        f"frame: {plan.frame}",
        *([f"holding: {plan.held}"] if plan.held else []),
        f"effective number: {plan.n_effective:.1f}",
    ]
    axis.text(0, 0.97, literal("\n".join(lines)), va="top", family="monospace", fontsize=9.5, transform=axis.transAxes)


def _draw_familiarity(axis: Any, explanation: Explanation) -> None:
    """Draws the distance of this plan among the leave-one-out distances."""
    familiarity, distance = explanation.usual, explanation.plan.distance
    far = min(max(distance, float(np.quantile(familiarity.distances, 0.995))), LARGEST) * 1.1
    axis.hist(familiarity.distances, bins=np.linspace(0, far, 50), color=QUIET)
    if np.isfinite(familiarity.threshold):
        axis.axvline(min(familiarity.threshold, LARGEST), color=INK, linestyle="--", linewidth=1)
    level = familiarity.level(distance)
    axis.axvline(min(distance, LARGEST), color=LEVELS[level], linewidth=2.5)
    axis.set(
        yticks=[],
        xlabel="distance to demonstrations",
        title=f"{level.capitalize()}\n{familiarity.scale(distance).replace(' of', chr(10) + 'of')}\n"
        + familiarity.describe().replace(" for", "\nfor"),
    )
