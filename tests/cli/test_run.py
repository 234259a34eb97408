"""The command `run`: what is wrong is said in one line before anything moves; the twin; and the whole chain."""

import json
import sys
import threading
import urllib.request
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from closedform import ClosedFormPolicy, load_demos, save_demos
from closedform.cli import main
from closedform.robot import ControlProcess, ControlSpec, Runner, WallClock, read_journal
from closedform.robot.commands import Run
from closedform.robot.run_config import RunConfig
from closedform.robot.twin.camera import twin_intrinsics
from closedform.robot.twin.place import PLANE, STICK_LENGTH, twin_cell
from closedform.robot.twin.settings import TwinSettings
from closedform.vision.camera import Intrinsics
from closedform.vision.camera_file import save_intrinsics
from tests.robot.arms import reaching_demos
from tests.robot.fake_process import can_listen, own_address
from tests.robot.twin.gl import rendering  # noqa: F401

QUIET = ["--false-alarm-rate", "0", "--steps", "4"]
LOOPBACK = pytest.mark.skipif(not can_listen(), reason="loopback addresses other than 127.0.0.1 cannot be used")


def said(capsys, *arguments):
    """The one line that a command ends with."""
    with pytest.raises(SystemExit) as stop:
        main(["run", *map(str, arguments)])
    line = capsys.readouterr().err.splitlines()[-1]
    assert stop.value.code == 2
    return line


def write_cell(folder, **changes):
    """The files that describe the twin as if it were a real cell."""
    pytest.importorskip("cv2")
    points = PLANE.to_base(np.array([[0.0, 0, 0], [0.4, 0, 0], [0, 0.4, 0]])).tolist()
    facts = {
        "arm": "ur5e",
        "tool_length": STICK_LENGTH,
        **dict(zip(("origin", "along_x", "along_y"), points, strict=True)),
    }
    (folder / "arm.json").write_text(json.dumps({**facts, "region": [0, 0, 512, 512], "margin": 0.06, **changes}))
    twin_cell().save(folder / "cell.json")
    save_intrinsics(folder / "camera.json", twin_intrinsics())
    return [
        *("--arm", "ur", "--setup", folder / "arm.json", "--cell", folder / "cell.json"),
        *("--calibration", folder / "camera.json", "--output", folder / "record"),
    ]


def test_a_watched_run_waits_for_its_page(monkeypatch, capsys):
    """An episode that began without its page would be over before somebody could stop it."""
    pytest.importorskip("cv2")
    command, begun, end = Run(view="browser"), threading.Event(), threading.Event()

    def watched():
        with command._viewing(SimpleNamespace(tracker=None), PLANE, None):  # pyright: ignore[reportArgumentType]
            begun.set()
            end.wait(60)

    thread = threading.Thread(target=watched)
    thread.start()
    try:
        printed = ""
        while "token=" not in printed:
            printed += capsys.readouterr().out
        address = printed.split()[1].rstrip(";")
        assert not begun.wait(0.2)
        with urllib.request.urlopen(address.replace("/?", "/stream?"), timeout=60):
            assert begun.wait(60)
    finally:
        end.set()
        thread.join()
    monkeypatch.setattr(sys.modules[Run.__module__], "_OPENED", 0.0)
    watched()
    assert "nobody opened the page within 0 s: it begins without" in capsys.readouterr().err


def test_what_is_missing_is_said(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "--arm ur: expected --host, found none" in said(capsys, "--arm", "ur")
    episodes = ["--arm", "ur", "--episodes", 2]
    assert "--arm ur: expected a terminal, where somebody confirms" in said(capsys, *episodes)
    assert "expected the description of an arm, found nothing there" in said(
        capsys, "--arm", "ur", "--host", "h", "--camera", "0", "--setup", "no.json"
    )
    assert "needs demonstrations, found none" in said(capsys)
    assert "--view: expected browser or the name of an mp4 file" in said(capsys, "--view", "film.avi")
    for name, value, message in (
        ("episodes", 0, "episodes: expected 1 or more, found 0"),
        ("steps", 0, "steps: expected 1 or more, found 0"),
        ("seed", -3, "expected seeds from 0 to 2^32 - 1, found -3"),
        ("coverage", 3, "coverage: expected 0 to 1, found 3"),
        ("latency", "nan", "latency: expected 0 to 1, found nan"),
        ("false-alarm-rate", 1, "false-alarm-rate: expected 0 to less than 1, found 1"),
        ("setup", "arm.json", "--arm twin: expected no --setup, which is for a real arm"),
    ):
        assert message in said(capsys, f"--{name}", value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changes", "start", "message"),
    [
        ({}, (), r"127.17.17.98: expected a robot that answers on port 29999, found Connection refused"),
        ({}, ("--start", 900, 100), "--start: unreachable target: expected one inside the workspace, found x = 900 mm"),
        ({"arm": "kuka"}, (), "unknown arm 'kuka'"),
    ],
)
def test_what_is_wrong_with_the_cell_is_said(capsys, tmp_path, monkeypatch, changes, start, message):
    monkeypatch.setattr("closedform.robot.drivers.ur.require_ur_rtde", lambda: (None, None))
    files = write_cell(tmp_path, **changes)
    options = ["--host", "127.17.17.98", "--camera", "0", "--demos", "pusht-embedded", *QUIET, *start]
    assert message in said(capsys, *files, *options)
    assert not (tmp_path / "record").exists()


@pytest.mark.usefixtures("rendering")
def test_the_twin_runs_and_records(capsys, tmp_path):
    arguments = [
        "--demos",
        "pusht-embedded",
        *QUIET,
        "--episodes",
        "2",
        "--images",
        "--output",
        str(tmp_path / "record"),
    ]
    main(["run", *arguments])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "seed 100000: ended after 4 steps: 4 steps" and lines[2].startswith("seed 100001: ")
    assert lines[-1] == f"0 of 2 episodes done; record: {tmp_path / 'record'}"
    assert [len(episode.actions) for episode in load_demos(tmp_path / "record" / "demos")] == [4, 4]
    assert len(load_demos(tmp_path / "record" / "ticks")) == 2
    assert len(list((tmp_path / "record" / "images").iterdir())) == 8
    save_demos(reaching_demos(3), tmp_path / "other")
    line = said(capsys, "--demos", tmp_path / "other", *QUIET, "--output", tmp_path / "no")
    assert "the policy does not fit: expected one that observes agent position (2)" in line
    assert not (tmp_path / "no").exists()


@pytest.fixture
def plant():
    pytest.importorskip("rtde_control", reason="needs ur_rtde, which has wheels for Python 3.11 and 3.12 on x86-64")
    from closedform.robot.twin.plant import Plant

    made = Plant(own_address(), TwinSettings(fps=10.0), frequency=125.0)
    yield made
    made.close()


@LOOPBACK
@pytest.mark.usefixtures("rendering")
def test_an_arm_is_run_as_a_person_would(capsys, tmp_path, monkeypatch, plant):
    """The files, the camera, ur_rtde and the controller's process, against the twin behind a fake controller."""
    plant.place(100000)
    sizes = []

    def camera(source, intrinsics, latency):
        sizes.append((source, intrinsics.size))
        return plant.camera

    monkeypatch.setattr("closedform.vision.video_camera.VideoCamera", camera)
    monkeypatch.setattr(plant.camera, "close", lambda: None)
    files = write_cell(tmp_path, control={"plan_timeout": 30.0, "state_timeout": 30.0, "alarm_patience": 30.0})
    options = ["--host", plant.host, "--camera", "3", "--demos", "pusht-embedded", *QUIET, "--start", "256", "60"]
    main(["run", *map(str, [*files, *options])])
    lines = capsys.readouterr().out.splitlines()
    assert sizes == [(3, (640, 480))] and lines[0].startswith("camera found from 4 markers on the table")
    assert lines[1] == "seed 100000: ended after 4 steps: 4 steps"
    (episode,) = load_demos(tmp_path / "record" / "ticks")
    sent = episode.actions[episode.actions[:, 9] > 0, :6]
    assert np.array_equal(plant.commands()[-len(sent) :, :6], sent)  # every command arrived


@LOOPBACK
@pytest.mark.usefixtures("rendering")
def test_a_camera_that_freezes_ends_in_a_smooth_halt(tmp_path, plant):
    from closedform.robot.control_config import ControlConfig
    from closedform.robot.drivers.ur import UrArm

    plant.place(100001)
    config = ControlConfig(plan_timeout=30.0, state_timeout=30.0, alarm_patience=30.0)  # a slow machine does not matter
    make_arm = partial(UrArm, plant.host, silence=30.0)
    control = ControlProcess(ControlSpec(make_arm, plant.kinematics, config, plant.workspace, tmp_path / "ticks"))
    policy, steps = ClosedFormPolicy(load_demos("pusht-embedded")), []

    def watch(step):
        steps.append(step)
        if len(steps) == 5:
            plant.freeze()

    parts = (plant.camera, plant.perception, WallClock(), plant.kinematics, plant.workspace)
    with Runner(
        policy,
        control,
        *parts,
        folder=tmp_path,
        control_config=config,
        config=RunConfig(sight_timeout=5.0),
        watch=watch,
    ) as runner:
        result = runner.run(seed=0)
    status = control.status()
    control.close()
    assert result.reason.startswith("the camera has repeated its picture for 5.") and not status.moving
    (stop,) = [line for line in read_journal(tmp_path / "journal.jsonl") if line["kind"] == "stop"]
    assert stop["reason"] == result.reason
    assert len(load_demos(tmp_path / "demos")[0].actions) == result.steps >= 5


def test_a_camera_of_another_size_is_refused(tmp_path):
    pytest.importorskip("cv2")
    from closedform.errors import DataError
    from closedform.vision.camera import Image
    from closedform.vision.extrinsics import find_camera

    image = Image(0.0, np.zeros((48, 64, 3), np.uint8))
    intrinsics = Intrinsics((640, 480), twin_intrinsics().matrix, np.zeros(5))
    with pytest.raises(DataError, match="64 x 48 pixels instead of the 640 x 480"):
        find_camera(twin_cell(), intrinsics, [image])
