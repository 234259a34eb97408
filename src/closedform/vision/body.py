"""Body: what is known of one body in pictures, its colors and its shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from closedform.vision.background import Background
from closedform.vision.colors import color_table, frequencies
from closedform.vision.components import Component
from closedform.vision.pictures import opencv
from closedform.vision.template import Template

BLUR = 0.7  # pixels, standard deviation: makes edges smooth enough to follow
_UNKNOWN = 1e-5  # how often a body has a color that is as likely to be of something else
_RARE, _COMBINED = 1e-3, 0.9  # how often a body has its own colors, and share of such pixels in a combination
_MOST = 40  # regions that a shape is averaged over
_ROUNDS = 3  # of averaging
_GOOD = 0.7  # confidence from which on a region counts in the average
_HIDDEN = 2.0  # a pixel that is half of another body is hidden by it
_BORDER = 3  # pixels around the largest region


@dataclass(frozen=True)
class Body:
    """A rigid thing that moves in the plane.

    Attributes:
        colors: (16, 16, 16), how often it has each color.
        template: its shape.
    """

    colors: np.ndarray
    template: Template


def body_masks(tables: Sequence[np.ndarray], picture: np.ndarray, foreground: np.ndarray) -> np.ndarray:
    """(B, H, W) of float32, how sure it is that pixels are of each body, slightly blurred.

    Args:
        tables: the colors of the bodies.
        picture: in the background's light.
        foreground: (H, W), how sure it is that pixels are not of the background.
    """
    cv2, colors = opencv(), np.stack([frequencies(table, picture) for table in tables])
    shares = colors / (colors.sum(axis=0) + _UNKNOWN) * foreground
    return np.stack([cv2.GaussianBlur(one.astype(np.float32), (0, 0), BLUR) for one in shares])


def not_hidden(masks: np.ndarray, body: int) -> np.ndarray:
    """(H, W) of float32, how sure it is that no other body hides this one."""
    others = masks.sum(axis=0) - masks[body]
    return np.clip(1 - _HIDDEN * others, 0, 1).astype(np.float32)


def learn_bodies(
    pictures: Sequence[np.ndarray], background: Background, groups: Sequence[Sequence[Component]]
) -> list[Body]:
    """The bodies of groups of regions, the largest first: each region shows one, whole and by itself."""
    pixels = [np.concatenate([pictures[one.index][one.mask] for one in group]) for group in groups]
    tables = [color_table(some) for some in pixels]
    kept = [i for i in range(len(groups)) if not _is_combination(pixels[i], tables[i + 1 :])]
    groups, tables = [groups[i] for i in kept], [tables[i] for i in kept]
    return [
        Body(table, _learn_template(pictures, background, tables, number, group))
        for number, (table, group) in enumerate(zip(tables, groups, strict=True))
    ]


def _is_combination(pixels: np.ndarray, smaller: Sequence[np.ndarray]) -> bool:
    """Whether pixels (N, 3) have the colors of smaller bodies: of two that touch, and therefore of none by itself."""
    known = [frequencies(table, pixels[:, None]) > _RARE for table in smaller]
    return bool(known) and float(np.any(known, axis=0).mean()) > _COMBINED


def _learn_template(
    pictures: Sequence[np.ndarray],
    background: Background,
    tables: Sequence[np.ndarray],
    number: int,
    group: Sequence[Component],
) -> Template:
    """The average of a body's regions, each moved onto the others."""
    chosen = [group[i] for i in np.linspace(0, len(group) - 1, min(len(group), _MOST)).round().astype(int)]
    shown = [pictures[one.index] for one in chosen]
    masks = [body_masks(tables, picture, background.foreground(picture)) for picture in shown]
    seen = [not_hidden(one, number) for one in masks]
    radius = int(np.ceil(max(_reach(one) for one in chosen))) + _BORDER
    first = np.array([*chosen[0].center, 0.0])
    template = Template(_cut(masks[0][number], first, radius))
    poses = [template.search(mask[number], visible) for mask, visible in zip(masks, seen, strict=True)]
    for _ in range(_ROUNDS):
        total, weight = np.zeros_like(template.shape), np.full_like(template.shape, 1e-6)
        for mask, visible, pose in zip(masks, seen, poses, strict=True):
            if pose.confidence >= _GOOD:
                here = template.around(visible, pose)
                total += here * template.around(mask[number], pose)
                weight += here
        template = Template(total / weight)
        poses = [
            template.refine(mask[number], visible, np.array(pose[:3]))
            for mask, visible, pose in zip(masks, seen, poses, strict=True)
        ]
    return template


def _reach(region: Component) -> float:
    """The largest distance of a region's pixels from its center."""
    y, x = np.nonzero(region.mask)
    return float(np.hypot(x - region.center[0], y - region.center[1]).max())


def _cut(mask: np.ndarray, place: np.ndarray, radius: int) -> np.ndarray:
    size = (2 * radius + 1, 2 * radius + 1)
    return opencv().getRectSubPix(mask, size, (float(place[0]), float(place[1])))
