"""Films of Push-T from pictures show the demonstrations as the policy uses them."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("gym_pusht")
pytest.importorskip("cv2")

from closedform import ClosedFormPolicy, load_demos
from closedform.demos.demos import Demos
from closedform.evaluation.pusht_film import carried, film_seen, followed, gif
from closedform.evaluation.pusht_pixels import PushTPixels

RECORDED = load_demos("pusht-embedded")
# States look like what is seen, so that the frames have the same names.
DEMOS = Demos(RECORDED.episodes[:40], PushTPixels.observation_layout, RECORDED.action_layout, RECORDED.rate)


def test_a_plan_is_the_average_of_the_demonstrations_that_are_shown():
    policy, frames = ClosedFormPolicy(DEMOS), set()
    for seed, episode in enumerate(RECORDED.episodes[40:80]):
        now = episode.observations[seed]
        plan = policy.plan(now, seed=seed)
        frames.add(plan.frame)
        average = np.zeros_like(plan.actions)
        for shown, step, weight in followed(policy, DEMOS, plan):
            at = np.minimum(step + np.arange(len(plan.actions)), len(shown) - 1)
            average += weight * carried(shown.actions[at], shown.observations[step], now, plan.frame)
        np.testing.assert_allclose(average, plan.actions, atol=2)  # of 512; weights that are very small are not listed
    assert "seen" in frames and len(frames) > 1


def test_a_film_has_a_picture_of_every_step(tmp_path):
    scene, policy = PushTPixels(), ClosedFormPolicy(DEMOS)
    scene.max_steps = 12
    rollout, images = film_seen(scene, policy, DEMOS, seed=3)
    assert len(images) == len(rollout.actions) + 1
    clean, shown = np.kron(scene.picture, np.ones((4, 4, 1), np.uint8)), images[-1][:, :384]
    outlined = np.any(clean != shown, axis=-1)
    assert 0.005 < outlined.mean() < 0.05  # outlines, and nothing else
    assert gif(images, 10.0).startswith(b"GIF89a")
