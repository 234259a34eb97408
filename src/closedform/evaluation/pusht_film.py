"""Films of Push-T from pictures: what was found in each, and the demonstrations that the policy followed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import Any

import numpy as np

from closedform.demos.demos import Demos
from closedform.demos.episode import Episode
from closedform.errors import MissingExtraError
from closedform.evaluation.pusht_pixels import PushTPixels
from closedform.evaluation.rollout import Rollout, roll_out
from closedform.policies.demonstration_policy import DemonstrationPolicy
from closedform.policies.plan import Plan
from closedform.policies.policy import Policy
from closedform.rewrites.copies import Symmetry
from closedform.vision.pictures import opencv

_ZOOM = 4
_FOUND = ((200, 85, 61), (46, 111, 158))  # colors of the bodies that are found
_SHOWN, _PLAN = (79, 138, 91), (30, 30, 30)
_N_SHOWN = 6  # demonstrations
_AHEAD = 3  # times the length of a plan that is shown of them
_N_COLORS = 96


def film_seen(
    environment: PushTPixels, policy: Policy[Any], demos: Demos, seed: int
) -> tuple[Rollout, list[np.ndarray]]:
    """An episode, and an image (384, 768, 3) of every step.

    On the left is what the camera took, with the outlines of the bodies that were found in it. On the right are the
    demonstrations that the current plan follows and how they went on, carried over to the present as the policy carries
    them, and in black the plan itself.
    """
    pictures: list[tuple[np.ndarray, list[np.ndarray]]] = []

    def watch() -> None:
        size = environment.picture.shape[0], environment.picture.shape[1]
        outlines = [body.template.covered(pose, size) for body, pose in environment.found]
        pictures.append((environment.picture, outlines))

    rollout = roll_out(environment, policy, seed, watch)
    starts, plans = zip(*rollout.plans, strict=True)
    images = []
    for step, (picture, outlines) in enumerate(pictures):
        current = max(int(np.searchsorted(starts, step, "right")) - 1, 0)
        observation = rollout.observations[starts[current]]
        images.append(
            np.concatenate(
                [
                    _outlined(picture, outlines),
                    _planned(environment, policy, demos, picture, plans[current], observation),
                ],
                axis=1,
            )
        )
    return rollout, images


def gif(images: Sequence[np.ndarray], rate: float, every: int = 1) -> bytes:
    """A GIF of every so many of some images, at the speed of the episode."""
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError("PIL", "plots", "making a GIF") from error
    palette = Image.fromarray(np.concatenate(images[:: max(len(images) // 8, 1)])).quantize(_N_COLORS)
    frames = [Image.fromarray(one).quantize(palette=palette, dither=Image.Dither.NONE) for one in images[::every]]
    buffer = BytesIO()
    frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:], duration=round(1000 * every / rate), loop=0)
    return buffer.getvalue()


def _enlarged(picture: np.ndarray, faded: float = 0.0) -> np.ndarray:
    cv2 = opencv()
    large = cv2.resize(picture, None, fx=_ZOOM, fy=_ZOOM, interpolation=cv2.INTER_NEAREST)
    return np.round(large * (1 - faded) + 255 * faded).astype(np.uint8)


def _outlined(picture: np.ndarray, outlines: list[np.ndarray]) -> np.ndarray:
    cv2, image = opencv(), _enlarged(picture)
    for outline, color in zip(outlines, _FOUND, strict=False):
        large = cv2.resize(outline, image.shape[1::-1], interpolation=cv2.INTER_LINEAR)
        edges, _ = cv2.findContours((large > 0.5).astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
        cv2.drawContours(image, edges, -1, color, 2, cv2.LINE_AA)
    return image


def _planned(
    environment: PushTPixels,
    policy: Policy[Any],
    demos: Demos,
    picture: np.ndarray,
    plan: Plan,
    observation: np.ndarray,
) -> np.ndarray:
    cv2, image = opencv(), _enlarged(picture, faded=0.6)
    to_pixels = np.linalg.inv(environment.view.similarity.matrix)

    def draw(positions: np.ndarray, color: tuple[int, int, int], width: int) -> None:
        pixels = (positions - environment.view.similarity.shift) @ to_pixels.T
        points = np.round((pixels + 0.5) * _ZOOM).astype(np.int32)
        cv2.polylines(image, [points[:, None]], False, color, width, cv2.LINE_AA)

    for shown, step, _ in list(followed(policy, demos, plan))[:_N_SHOWN]:
        path = shown.actions[step : step + _AHEAD * len(plan.actions)]
        draw(carried(path, shown.observations[step], observation, plan.frame), _SHOWN, 4)
    draw(plan.actions, _PLAN, 2)
    return image


def followed(policy: Policy[Any], demos: Demos, plan: Plan) -> Iterator[tuple[Episode, int, float]]:
    """The demonstrations behind a plan as they count in it, which may be as mirror images, with steps and weights."""
    symmetry = policy.model.spec.rewrites.find(Symmetry) if isinstance(policy, DemonstrationPolicy) else None
    images = np.zeros(len(plan.episodes), int) if plan.copies is None else plan.copies
    for (number, step, weight), image in zip(plan.demonstrations, images, strict=True):
        episode = demos.episodes[number]
        yield episode if symmetry is None else symmetry.image(episode, int(image)), step, weight


def carried(path: np.ndarray, then: np.ndarray, now: np.ndarray, frame: str) -> np.ndarray:
    """Positions (T, 2) of a demonstration, as they are at another observation (5,) in a frame of Push-T."""
    if frame == "world":
        return path
    body = slice(0, 2) if frame.startswith("agent") else slice(2, 4)
    angle = now[4] - then[4] if frame == "seen" else 0.0
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return (path - then[body]) @ turn.T + now[body]
