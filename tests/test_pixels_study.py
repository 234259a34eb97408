"""The study of pictures: errors of poses, and its page."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("gym_pusht")
pytest.importorskip("cv2")

from closedform.demos.demos import Demos
from closedform.demos.episode import Episode
from closedform.evaluation.pusht import PushT
from closedform.evaluation.pusht_pixels import PushTPixels
from closedform.evaluation.rollout import Rollout
from studies.pixels import DEVELOPMENT_SEED, HARDER, N_DEVELOPMENT, SEED, names
from studies.pixels.bodies import PoseErrors
from studies.pixels.features import BEST, CANDIDATES, layout_of
from studies.pixels.page import write_page
from studies.runner import FIGURES, Runner


def seen_of(states: np.ndarray) -> np.ndarray:
    """Poses of a body whose center and zero angle are not the T's."""
    angle = states[:, 4]
    turn = np.stack([np.stack([np.cos(angle), -np.sin(angle)], -1), np.stack([np.sin(angle), np.cos(angle)], -1)], -2)
    return np.c_[states[:, :2], states[:, 2:4] + turn @ [3.0, -40.0], np.angle(np.exp(1j * (angle + 0.4)))]


def demos_of(observations: np.ndarray, layout) -> Demos:
    return Demos([Episode(observations, observations[:, :2])], layout, PushT.action_layout, PushT.rate)


@pytest.fixture(scope="module")
def errors() -> PoseErrors:
    states = np.random.default_rng(0).uniform([0] * 4 + [0], [500] * 4 + [2 * np.pi], (200, 5))
    return PoseErrors.fit(
        demos_of(seen_of(states), PushTPixels.observation_layout), demos_of(states, PushT.observation_layout)
    )


def test_errors_are_away_from_the_truth_wherever_the_center_of_the_body_is(errors: PoseErrors):
    state = np.array([10.0, 20.0, 200.0, 300.0, 6.0])
    exact = seen_of(state[None])[0, 2:]
    np.testing.assert_allclose(errors.of(exact, state), (0, 0), atol=1e-6)
    np.testing.assert_allclose(errors.of(exact + np.array([3, -4, 0.1]), state), (5, np.degrees(0.1)), atol=1e-6)


def test_the_truth_is_replayed(errors: PoseErrors):
    simulator, actions = PushT(), np.linspace([100, 100], [400, 400], 15)
    states = np.array([simulator.reset(7), *(simulator.step(action).observation for action in actions)])
    assert np.ptp(states[:, 2:], axis=0).max() > 5  # the T was pushed
    rollout = Rollout(7, seen_of(states), actions, np.zeros(15), False, [], np.empty(0), 8)
    found = errors(rollout)
    assert max(found["position_errors"]) < 0.01 and len(found["angle_errors"]) == 16


def test_evaluations_have_names_and_development_seeds_are_not_reported():
    assert len(set(names())) == len(names())
    assert BEST in CANDIDATES
    assert DEVELOPMENT_SEED + N_DEVELOPMENT <= SEED
    assert all(layout_of(one).width == 2 + one.rank for one in CANDIDATES)


def test_the_page_has_every_row(tmp_path):
    figures = {**dict.fromkeys(FIGURES, 0.5), "episodes": 9, "seed": SEED}
    no_errors = dict.fromkeys(["position_error", "position_error_p95", "angle_error", "angle_error_p95"], 1.25)
    rows = [
        {"key": key, **figures, **no_errors, "frame_ms": None, "frame_ms_p95": None}
        for key in ("poses", "bodies", *HARDER, "features")
    ]
    tried = [
        {
            **{"encoder": one.encoder, "readout": "moments", "projection": one.projection, "rank": one.rank},
            **{"layout": one.layout, "settings": " ".join(one.settings), **figures},
        }
        for one in CANDIDATES
    ]
    runner = Runner("pixels", tmp_path, tmp_path / "work")
    write_page(runner, rows, tried, [("typical", "seed 1")], HARDER, ["try_lite0"], 206)
    page = (tmp_path / "README.md").read_text()
    assert all(words in page for words in (*HARDER.values(), "typical.gif", "Not evaluated", "lite0-3", "1.25°"))
    assert page.count("\n|") == 3 * 2 + 3 + len(HARDER) + 1 + len(CANDIDATES)
