"""Tracker: follows bodies from picture to picture."""

from __future__ import annotations

from typing import Any

import numpy as np

from closedform.vision.body import not_hidden
from closedform.vision.planar_bodies import LOST, PlanarBodies
from closedform.vision.template import SeenPose

_HIDDEN = 0.3  # of a shape that must be visible to be followed


class Tracker:
    """The poses of bodies over time: near the last pose, or anywhere if a body is not found there.

    Attributes:
        poses: the last ones; empty before the first picture.
    """

    def __init__(self, bodies: PlanarBodies):
        self.bodies = bodies
        self.poses: list[SeenPose] = []

    def reset(self) -> None:
        """Forgets the last poses, as before a new episode."""
        self.poses = []

    def follow(self, picture: Any) -> list[SeenPose]:
        """The poses in the next picture; refuses pictures of another scene.

        A body that others hide almost entirely stays where it was, with the confidence 0.
        """
        masks = self.bodies.masks(picture)
        poses = [self._pose(masks, number) for number in range(len(masks))]
        if not self.poses:
            self.bodies.check_first(picture, poses)
        self.bodies.check(picture, poses)
        self.poses = poses
        return poses

    def _pose(self, masks: np.ndarray, number: int) -> SeenPose:
        template, mask, seen = self.bodies.bodies[number].template, masks[number], not_hidden(masks, number)
        last = self.poses[number] if self.poses else None
        if last is not None:
            near = template.refine(mask, seen, np.array(last[:3]))
            if near.confidence >= LOST and near.visible >= _HIDDEN:
                return near
        anywhere = template.search(mask, seen)
        if last is not None and (anywhere.confidence < LOST or anywhere.visible < _HIDDEN):
            return last._replace(confidence=0.0, visible=anywhere.visible)
        return anywhere
