"""A figure of what was found in the images of demonstrations: background, bodies, tracks and residuals."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from closedform.demos.demos import Demos
from closedform.figures import COLORS, QUIET, literal, png, pyplot
from closedform.files import write_file
from closedform.vision.bodies_perceiver import BodiesPerceiver
from closedform.vision.perceiver import Perceiver
from closedform.vision.template import SeenPose

_N_SHOWN = 4  # images
_N_TRACKS = 30  # episodes


def draw_perception(perceiver: Perceiver, demos: Demos, path: Path) -> bool:
    """Draws into a PNG file what a perceiver found; False if it has nothing to show.

    Args:
        perceiver: of the demonstrations.
        demos: perceived.
        path: where to write.
    """
    if not isinstance(perceiver, BodiesPerceiver):
        return False
    bodies, examples = perceiver.view.bodies, perceiver.examples[:_N_SHOWN]
    columns = max(_N_SHOWN, 2 + len(bodies.bodies))
    figure, axes = pyplot().subplots(3, columns, figsize=(2.6 * columns, 8), layout="constrained")
    for axis in axes.flat:
        axis.set_axis_off()
    _show(axes[0, 0], bodies.background.picture / 255, "background")
    for number, body in enumerate(bodies.bodies):
        known = ", the hand" if number == perceiver.view.known else ""
        _show(axes[0, 1 + number], body.template.shape, f"body {number}{known}", COLORS[number % len(COLORS)], "gray_r")
    _draw_tracks(axes[0, columns - 1], perceiver, demos)
    for column, picture in enumerate(examples):
        poses = bodies.search(picture)
        sure = ", ".join(f"{pose.confidence:.2f}" for pose in poses)
        _show(axes[1, column], picture, f"confidence {sure}")
        for number, pose in enumerate(poses):
            _outline(axes[1, column], perceiver, number, pose, picture.shape[:2])
        left = bodies.residual(picture, poses)
        _show(axes[2, column], left, f"residual: {left.mean():.1%}", map_name="inferno", most=1.0)
    write_file(path, png(figure))
    return True


def _show(axis, picture: np.ndarray, title: str, color: str = "black", map_name: str = "gray", most=None) -> None:
    axis.imshow(np.clip(picture, 0, 255), cmap=map_name, vmin=0, vmax=most)
    axis.set_title(title, color=color)


def _outline(axis, perceiver: BodiesPerceiver, number: int, pose: SeenPose, size: tuple[int, int]) -> None:
    covered = perceiver.view.bodies.bodies[number].template.covered(pose, size)
    if covered.max() > 0.5:
        axis.contour(covered, levels=[0.5], colors=[COLORS[number % len(COLORS)]], linewidths=1.2)


def _draw_tracks(axis, perceiver: BodiesPerceiver, demos: Demos) -> None:
    """Draws the positions of all bodies in the images of some episodes, in pixels."""
    picture, layout = perceiver.view.bodies.background.picture, demos.observation_layout
    axis.imshow(np.full_like(picture, 255) / 255)
    similarity = perceiver.view.similarity
    positions = [part for entry, part in layout.slices() if entry.kind == "position"]
    hand = slice(perceiver.hand[0], perceiver.hand[0] + 2)
    seen = [part for part in positions if part.start >= perceiver.state_layout.width]
    numbers = [perceiver.view.known, *perceiver.view.others]
    for number, part in zip(numbers, [hand, *seen], strict=False):
        for episode in demos.episodes[:_N_TRACKS]:
            pixels = np.linalg.solve(similarity.matrix, (episode.observations[:, part] - similarity.shift).T)
            axis.plot(*pixels, linewidth=0.6, color=COLORS[number % len(COLORS)], alpha=0.6)
    height, width = picture.shape[:2]
    axis.set(xlim=(0, width), ylim=(height, 0), title=literal(f"tracks of {min(len(demos), _N_TRACKS)} episodes"))
    axis.add_patch(pyplot().Rectangle((0, 0), width, height, fill=False, edgecolor=QUIET, linewidth=0.8))
