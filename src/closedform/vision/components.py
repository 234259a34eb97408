"""Components: connected regions of the foreground, and the kinds of them that come up again and again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from closedform.vision.background import Background
from closedform.vision.pictures import opencv

_SMALLEST = 6  # pixels
_LOG_AREA = 40.0  # a factor of e in area is as different as this many levels of color
_SAME, _NEAR = 25.0, 15.0  # differences within a kind, and while looking for one
_SHARE = 0.2  # of the pictures that must show a kind by itself
_FEWEST = 8  # pictures
_STILL = 1.5  # pixels
_ISOLATED = 0.08  # in log area: regions of this size are the whole body and nothing else


@dataclass(frozen=True)
class Component:
    """A connected region of the foreground.

    Attributes:
        index: of its picture.
        mask: (H, W) of bool.
        area: in pixels.
        color: (3,), the mean.
        center: (2,), x and y of its centroid.
    """

    index: int
    mask: np.ndarray
    area: int
    color: np.ndarray
    center: np.ndarray

    @property
    def feature(self) -> np.ndarray:
        """(4,), what kinds are told apart by."""
        return np.array([_LOG_AREA * np.log(self.area), *self.color])


def components(pictures: Sequence[np.ndarray], background: Background) -> list[Component]:
    """The connected regions of the foregrounds of pictures."""
    cv2, found = opencv(), []
    for index, picture in enumerate(pictures):
        sure = (background.foreground(picture) > 0.5).astype(np.uint8)
        n, labels, facts, centers = cv2.connectedComponentsWithStats(sure, connectivity=8)
        for label in range(1, n):
            area = int(facts[label, cv2.CC_STAT_AREA])
            if area >= _SMALLEST:
                mask = labels == label
                found.append(Component(index, mask, area, picture[mask].mean(axis=0), centers[label]))
    return found


def labeled(pictures: Sequence[np.ndarray], masks: Sequence[np.ndarray]) -> list[list[Component]]:
    """The regions of each number in masks (H, W), the largest regions first; 0 is the background."""
    groups: dict[int, list[Component]] = {}
    for index, (picture, mask) in enumerate(zip(pictures, masks, strict=True)):
        for label in np.unique(mask[mask != 0]).tolist():
            here = mask == label
            y, x = np.nonzero(here)
            if len(x) >= _SMALLEST:
                region = Component(index, here, len(x), picture[here].mean(axis=0), np.array([x.mean(), y.mean()]))
                groups.setdefault(label, []).append(region)
    enough = [group for group in map(_isolated, groups.values()) if len(group) >= _FEWEST]
    return sorted(enough, key=lambda group: -group[0].area)


def kinds(found: Sequence[Component], n_pictures: int) -> list[list[Component]]:
    """Groups of regions of similar size and color, the largest regions first; each is a body by itself.

    Regions that are two bodies which touch are rare, and differ from each other: they are in no group.
    """
    features = np.array([one.feature for one in found]).reshape(-1, 4)
    left, groups = np.ones(len(found), bool), []
    enough = max(_FEWEST, _SHARE * n_pictures)
    while left.sum() >= enough:
        rows = np.flatnonzero(left)
        near = np.linalg.norm(features[rows, None] - features[rows], axis=-1) < _NEAR
        middle = np.median(features[rows[near[near.sum(axis=1).argmax()]]], axis=0)
        members = rows[np.linalg.norm(features[rows] - middle, axis=1) < _SAME]
        if len(members) < enough:
            break
        left[members] = False
        groups.append([found[row] for row in members])
    return sorted((_isolated(group) for group in groups), key=lambda group: -group[0].area)


def moves(group: Sequence[Component]) -> bool:
    """Whether regions are at different places; if not, they are background that a body has mostly covered."""
    return bool(np.std([one.center for one in group], axis=0).max() > _STILL)


def _isolated(group: list[Component]) -> list[Component]:
    """Those of about the median size: nothing hides them, and nothing touches them."""
    usual = np.median([np.log(one.area) for one in group])
    return [one for one in group if abs(np.log(one.area) - usual) < _ISOLATED]
