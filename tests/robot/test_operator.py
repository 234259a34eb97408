"""A person takes over: what they hold on the picture leads the tool, in limits and on record, and nobody else does."""

import itertools
import json
import urllib.error
import urllib.request

import numpy as np
import pytest

from closedform import ClosedFormPolicy, load_demos
from closedform.geometry.rigid_pose import RigidPose
from closedform.robot.operator import SPEED, Operator
from closedform.vision.camera import Intrinsics
from tests.robot.arms import OBSERVATIONS, PLANE, WORKSPACE, reaching_demos
from tests.robot.test_runner import Stage, near

pytest.importorskip("cv2")
HEIGHT = 0.008


class Tracker:
    """A camera one meter above the middle of the workplane, that looks straight down."""

    intrinsics = Intrinsics((640, 480), np.array([[600.0, 0, 319.5], [0, 600, 239.5], [0, 0, 1]]), np.zeros(5))
    camera = RigidPose(np.diag([1.0, -1.0, -1.0]), PLANE.to_base(np.array([0.256, 0.256, 1.0]))).inverse
    found: dict[int, np.ndarray] = {}  # noqa: RUF012

    def pixel(self, position):
        """Where a position (2,) of the tip is seen."""
        x, y, z = self.camera(PLANE.to_base(PLANE.to_points(np.asarray(position, float), HEIGHT)))
        return self.intrinsics.matrix[:2, :2] @ [x / z, y / z] + self.intrinsics.matrix[:2, 2]


TRACKER = Tracker()


def make_operator(now=lambda: 0.0):
    return Operator(TRACKER, PLANE, HEIGHT, OBSERVATIONS, "hand", now=now)  # pyright: ignore[reportArgumentType]


def test_a_pixel_is_a_place_on_the_workplane():
    operator = make_operator()
    for position in ([256, 256], [10, 500], [400.5, 20]):
        found = operator.position(*TRACKER.pixel(position))
        assert found is not None
        np.testing.assert_allclose(found, position, atol=1e-6)


def test_the_tool_follows_while_it_is_led_and_the_policy_goes_on_after(tmp_path):
    stage = Stage(ClosedFormPolicy(reaching_demos()), tmp_path, done=near)
    operator, aside = make_operator(stage.clock.now), np.array([60.0, 60.0])
    for tenth in range(6, 26):
        stage.at(tenth / 10 - 0.05, lambda: operator.lead(*TRACKER.pixel(aside)))
    stage.at(2.55, operator.release)
    with operator.attached(stage.runner):
        result = stage.runner.run(seed=0)
    stage.finish()  # checks every command against the limits
    assert result.done and not operator.runs
    by = [line["by"] for line in stage.notes("step")]
    assert by == ["policy"] * 6 + ["hand"] * 20 + ["policy"] * (len(by) - 26)
    assert len(stage.notes("take over")) == len(stage.notes("hand back")) == 1
    (episode,) = load_demos(tmp_path / "demos").episodes
    led = np.concatenate([episode.observations[6:7, :2], episode.actions[6:26]])
    moves = np.linalg.norm(np.diff(led, axis=0), axis=1)
    assert moves.max() <= 1e3 * SPEED / 10 + 1e-6  # millimeters in a step
    assert np.linalg.norm(led[-1] - aside) < 1e-6 and np.linalg.norm(episode.observations[26, :2] - aside) < 15


def test_without_news_of_the_person_the_tool_stands_still_until_they_release_it(tmp_path):
    stage = Stage(ClosedFormPolicy(reaching_demos()), tmp_path)
    operator = make_operator(stage.clock.now)
    stage.at(0.55, lambda: operator.lead(*TRACKER.pixel([60.0, 60.0])))
    stage.at(4.05, operator.release)
    with operator.attached(stage.runner):
        stage.runner.run(seed=0)
    steps = stage.notes("step")
    by = [line["by"] for line in steps]
    assert by[:6] == ["policy"] * 6 and 4 <= by.count("hand") <= 6 and by[-1] == "policy"
    silence = [after["time"] - before["time"] for before, after in itertools.pairwise(steps)]
    assert max(silence) == pytest.approx(3.0, abs=0.2)
    stage.finish()


def test_the_tool_is_not_led_out_of_the_workspace(tmp_path):
    stage = Stage(ClosedFormPolicy(reaching_demos()), tmp_path)
    operator = make_operator(lambda: 0.0)
    stage.at(0.05, lambda: operator.lead(*TRACKER.pixel([-400.0, 400.0])))
    with operator.attached(stage.runner):
        stage.runner.run(seed=0)
    stage.finish()
    hand = load_demos(tmp_path / "demos").episodes[0].observations[:, :2]
    assert hand[-1, 0] == pytest.approx(1e3 * WORKSPACE.lower[0], abs=5)


def test_between_episodes_nothing_is_led():
    operator = make_operator()
    operator.lead(320.0, 240.0)
    for do in (operator.release, operator.pause, operator.resume, operator.stop):
        do()
    assert not operator.runs


class Told:
    """Notes what an operator is told."""

    def __init__(self):
        self.heard = []

    def __getattr__(self, name):
        return lambda *numbers: self.heard.append((name, *numbers))


@pytest.fixture
def page():
    from closedform.robot.page import Page

    told = Told()
    made = Page(None, told)  # pyright: ignore[reportArgumentType]
    yield made, told
    made.close()


def post(address, body=b"", **headers):
    request = urllib.request.Request(address, data=body, method="POST", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        error.read()
        return error.code


def test_a_page_passes_on_what_is_done_there(page):
    made, told = page
    at = made.address.replace("/?", "/{}?")
    assert post(at.format("lead"), json.dumps([12, 34.5]).encode()) == 204
    for name in ("release", "pause", "resume", "stop"):
        assert post(at.format(name)) == 204
    assert told.heard == [("lead", 12.0, 34.5), ("release",), ("pause",), ("resume",), ("stop",)]
    for body in (b"", b"[1]", b"[1, null]", b'["a", 2]', b"[NaN, 1]", b"[" * 150, b"[1, 2]" + b" " * 999):
        assert post(at.format("lead"), body) == 400
    assert post(at.format("jump")) == 400 and len(told.heard) == 5


def test_a_stranger_neither_sees_nor_moves_anything(page):
    made, told = page
    bare = made.address.split("?")[0]
    for address in (f"{bare}stop", f"{bare}stop?token=guess", f"{bare}lead?token=%C3%A9"):
        assert post(address, b"[1, 2]") == 403
    assert post(made.address.replace("/?", "/stop?"), Host="evil.example") == 403  # another name for this machine
    assert post(bare) == 403
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(f"{bare}stream", timeout=30)
    assert not told.heard
