"""The runner: an episode in lockstep, its record, and everything that may interrupt it."""

import json
import os
import subprocess
import sys
import zlib

import numpy as np
import pytest

from closedform import ClosedFormPolicy, Demos, Layout, load_demos
from closedform.demos.recorder import RecordError
from closedform.errors import ArmError, ConfigError, DataError, LoadError
from closedform.robot.clocks import LockstepClock
from closedform.robot.command import Mode
from closedform.robot.control import LockstepControl
from closedform.robot.controller import Controller
from closedform.robot.journal import Journal, png, read_journal
from closedform.robot.run_config import RunConfig
from closedform.robot.runner import Runner
from tests.robot.arms import (
    ACTIONS,
    CONFIG,
    KINEMATICS,
    WORKSPACE,
    Camera,
    Eyes,
    LaggingArm,
    check_commands,
    joints_at,
    reaching_demos,
)

START = (100.0, 400.0)


@pytest.fixture(scope="module")
def policy():
    return ClosedFormPolicy(reaching_demos())


class Stage:
    """An arm, its controller and a runner in lockstep."""

    def __init__(self, policy, folder, *, eyes=None, config=None, freezes=np.inf, ahead=0.0, **more):
        self.clock, self.folder = LockstepClock(), folder
        self.arm = LaggingArm(joints_at((0.1, 0.4, 0.008)), self.clock)
        self.start = self.arm.joints.copy()
        controller = Controller(KINEMATICS, CONFIG, WORKSPACE)
        self.control = LockstepControl(self.arm, controller, self.clock, folder / "ticks")
        self.eyes = eyes or Eyes()
        self.runner = Runner(
            policy,
            self.control,
            Camera(self.clock, freezes=freezes, ahead=ahead),
            self.eyes,
            self.clock,
            KINEMATICS,
            WORKSPACE,
            folder=folder,
            config=config or RunConfig(max_steps=60),
            **more,
        )

    def at(self, time, action):
        """Does something when it is time."""
        self.clock.every(1e9, lambda _: action(), start=time)

    def finish(self):
        self.runner.close()
        self.control.close()
        check_commands(np.array(self.arm.sent), CONFIG.limits(KINEMATICS), CONFIG.period, self.start)

    def notes(self, kind):
        return [line for line in read_journal(self.folder / "journal.jsonl") if line["kind"] == kind]


def near(observation):
    return bool(np.linalg.norm(observation[:2] - observation[2:]) < 5)


def test_an_episode_reaches_its_target_and_is_on_record(tmp_path, policy):
    stage = Stage(policy, tmp_path, done=near, config=RunConfig(images=True))
    result = stage.runner.run(seed=0)
    stage.finish()
    assert result.done and result.reason == "done" and result.episode == 0 and 10 < result.steps < 60
    (episode,) = load_demos(tmp_path / "demos").episodes
    assert len(episode.actions) == result.steps
    steps = stage.notes("step")
    assert [line["step"] for line in steps] == list(range(result.steps))
    assert {line["by"] for line in steps} == {"policy"} and set(steps[0]["ms"]) == {"grab", "observe", "plan"}
    assert all(np.allclose(line["points"][0][:2], 1e-3 * a) for line, a in zip(steps, episode.actions, strict=True))
    (end,) = stage.notes("end")
    assert end["reason"] == "done" and end["mode"] == "HOLD" and end["steps"] == result.steps
    ticks = load_demos(tmp_path / "ticks")[0].actions
    assert set(ticks[:, 8].astype(int)) >= {line["sequence"] for line in steps}  # every command arrived
    assert len(list((tmp_path / "images").iterdir())) == result.steps
    again = Stage(policy, tmp_path, done=near, config=RunConfig(images=True, max_steps=3))  # a later run, same folder
    assert again.runner.run(seed=1).steps == 3
    again.finish()
    numbers = [line["image"] for line in again.notes("step")]
    assert numbers == list(range(result.steps + 3))
    assert {int(path.stem) for path in (tmp_path / "images").iterdir()} == set(numbers)


def test_two_runs_are_the_same_to_the_bit(tmp_path, policy):
    found = []
    for name in ("a", "b"):
        stage = Stage(policy, tmp_path / name, config=RunConfig(max_steps=25, thinking=0.03))
        stage.at(0.51, stage.runner.pause)
        stage.at(0.92, stage.runner.resume)
        stage.runner.run(seed=3)
        stage.runner.run(seed=4)
        stage.finish()
        records = [load_demos(tmp_path / name / part) for part in ("demos", "ticks")]
        numbers = [e.observations.tobytes() + e.actions.tobytes() for record in records for e in record]
        lines = read_journal(tmp_path / name / "journal.jsonl")
        found.append((numbers, json.dumps([{k: v for k, v in line.items() if k != "ms"} for line in lines])))
    assert found[0] == found[1] and len(found[0][0]) == 3


def test_a_pause_holds_and_is_not_recorded(tmp_path, policy):
    shown, seen = [], []
    stage = Stage(policy, tmp_path, done=near, watch=shown.append)
    stage.at(0.55, stage.runner.pause)
    stage.at(1.45, lambda: seen.append(stage.control.status()))
    stage.at(2.55, stage.runner.resume)
    result = stage.runner.run(seed=0)
    stage.finish()
    assert seen[0].mode == Mode.HOLD and not seen[0].moving and result.done
    times = np.array([line["time"] for line in stage.notes("step")])
    assert not np.any((times > 0.56) & (times < 2.55)) and times[-1] > 2.55
    assert [line["kind"] for line in stage.notes("pause") + stage.notes("resume")] == ["pause", "resume"]
    paused = [step for step in shown if 0.6 < step.status.time < 2.5]
    assert len(paused) > 10 and {step.number for step in paused} == {6}  # pictures go on
    assert all(step.command is None for step in paused) and shown[-1].number == result.steps


def test_somebody_takes_over_and_hands_back(tmp_path, policy):
    stage, aside = Stage(policy, tmp_path, done=near), np.array([80.0, 80.0])
    stage.at(0.55, lambda: stage.runner.take_over(lambda estimate: aside))
    stage.at(1.55, lambda: stage.runner.take_over(lambda estimate: None))
    stage.at(2.05, stage.runner.hand_back)
    result = stage.runner.run(seed=0)
    stage.finish()
    assert result.done
    by = [line["by"] for line in stage.notes("step")]
    assert by[:6] == ["policy"] * 6 and by.count("hand") == 10 and by[-1] == "policy"
    (episode,) = load_demos(tmp_path / "demos").episodes
    assert np.array_equal(episode.actions[6:16], np.tile(aside, (10, 1)))
    times = [line["time"] for line in stage.notes("step")]
    assert max(np.diff(times)) > 0.45  # nobody acted


def test_it_stops_at_any_moment(tmp_path, policy):
    stage = Stage(policy, tmp_path)
    stage.at(0.757, lambda: stage.runner.stop("the red button"))
    result = stage.runner.run(seed=0)
    assert result.reason == "the red button" and not result.done and result.steps == 8
    status = stage.control.status()
    assert status.mode == Mode.HALT and status.reason == "the red button" and not status.moving
    ticks = stage.control.status().time
    assert ticks < 0.757 + 0.5
    again = stage.runner.run(seed=1)  # somebody started it again
    assert again.reason == "60 steps" and stage.control.status().mode == Mode.HOLD
    stage.finish()
    assert [line["reason"] for line in stage.notes("stop")] == ["the red button"]
    assert len(load_demos(tmp_path / "demos")) == 2


def test_a_stop_while_planning_is_not_undone_by_the_plan(tmp_path, policy):
    """Waypoints that were in the making when somebody stopped the arm are not sent."""
    stage = Stage(policy, tmp_path)
    look = stage.eyes.observe

    def observe(image, state):
        if state.time > 0.5:
            stage.runner.stop("now")
        return look(image, state)

    stage.eyes.observe = observe
    assert stage.runner.run(seed=0).reason == "now"
    status = stage.control.status()
    assert status.reason == "now" and status.time < 0.9  # before the watchdog would have stopped it
    stage.finish()
    ticks = load_demos(tmp_path / "ticks")[0]
    halted = ticks.actions[:, 6] == Mode.HALT
    assert halted.any() and np.all(np.diff(halted.astype(int)) >= 0)


def test_a_body_out_of_sight_stops_it(tmp_path, policy):
    stage = Stage(policy, tmp_path, eyes=Eyes(hidden=lambda time: time > 0.6))
    result = stage.runner.run(seed=0)
    stage.finish()
    assert result.reason == "no sight for 1 s: the target is hidden"
    alarms = [line["alarm"] for line in stage.notes("step")]
    assert alarms[:6] == [""] * 6 and "the target is hidden" in alarms


def test_a_camera_that_repeats_its_picture_stops_it(tmp_path, policy):
    """Its time stamps go on; while the arm stands still, the picture of a simulated camera may well be the same."""
    stage = Stage(policy, tmp_path, freezes=0.6)
    result = stage.runner.run(seed=0)
    stage.finish()
    assert result.reason.startswith("the camera has repeated its picture for 1.")
    assert stage.notes("step")[-1]["image_time"] == pytest.approx(0.6, abs=0.11)
    there = Stage(policy, tmp_path / "there", freezes=0.0, config=RunConfig(max_steps=30))
    there.runner.take_over(lambda estimate: estimate.observation[:2])
    assert there.runner.run(seed=0).reason == "30 steps"
    there.finish()


def test_pictures_of_the_future_stop_it(tmp_path, policy):
    stage = Stage(policy, tmp_path, ahead=1000.0)
    result = stage.runner.run(seed=0)
    stage.finish()
    assert "expected pictures of the present, found one from 1e+03 s ahead" in result.reason
    assert np.ptp(np.array(stage.arm.sent), axis=0).max() == 0


def test_it_does_not_move_before_everything_was_seen(tmp_path, policy):
    stage = Stage(policy, tmp_path, eyes=Eyes(hidden=lambda time: time < 0.72), done=near)
    result = stage.runner.run(seed=0)
    stage.finish()
    assert result.done and stage.notes("step")[0]["time"] > 0.72
    shown = []
    blind = Stage(policy, tmp_path / "blind", eyes=Eyes(hidden=lambda time: True), watch=shown.append)
    result = blind.runner.run(seed=0)
    blind.finish()
    assert result.reason == "no sight for 1 s: the target is hidden" and result.episode is None
    assert np.ptp(np.array(blind.arm.sent), axis=0).max() == 0
    assert len(shown) > 5 and all(step.estimate.alarm == "the target is hidden" for step in shown)


def test_alarms_that_last_stop_it(tmp_path, policy):
    stage = Stage(policy, tmp_path, alarm=lambda plan: "far from the demonstrations")
    result = stage.runner.run(seed=0)
    stage.finish()
    assert result.reason == "an alarm lasted for 1 s: far from the demonstrations"
    (stop,) = stage.notes("stop")
    assert stop["by"] == "controller" and stop["reason"] == result.reason


def test_a_protective_stop_ends_the_episode_and_can_be_recovered(tmp_path, policy):
    stage = Stage(policy, tmp_path, done=near)
    stage.at(0.7, lambda: setattr(stage.arm, "stopped", "protective stop"))
    assert stage.runner.run(seed=0).reason == "protective stop"
    stage.arm.recover()
    assert stage.runner.run(seed=0).done
    stage.runner.close()
    stage.control.close()


def test_an_error_halts_the_arm_and_keeps_the_record(tmp_path, policy):
    stage = Stage(policy, tmp_path)

    def broken(step):
        if step.status.time > 0.4:
            raise KeyboardInterrupt

    stage.runner._watch = broken
    with pytest.raises(KeyboardInterrupt):
        stage.runner.run(seed=0)
    assert stage.control.status().mode == Mode.HALT and not stage.control.status().moving
    stage.finish()
    assert len(load_demos(tmp_path / "demos")[0].actions) == len(stage.notes("step")) > 3
    assert stage.notes("end")[0]["reason"] == "interrupted (Ctrl-C)"


def test_it_travels_above_the_table(tmp_path, policy):
    stage = Stage(policy, tmp_path)
    before = len(stage.arm.sent)
    stage.runner.travel((420.0, 300.0))
    tips = np.array([WORKSPACE.plane.from_base(KINEMATICS.pose(q).position) for q in stage.arm.sent[before:]])
    assert np.allclose(tips[-1], [0.42, 0.3, CONFIG.height], atol=0.003)
    away = (np.linalg.norm(tips[:, :2] - tips[0, :2], axis=1) > 0.01) & (
        np.linalg.norm(tips[:, :2] - tips[-1, :2], axis=1) > 0.01
    )
    assert np.all(tips[away, 2] > CONFIG.clearance - 0.01)
    sent = len(stage.arm.sent)
    with pytest.raises(ArmError, match="unreachable target: expected one inside the workspace, found x = 900 mm"):
        stage.runner.travel((900.0, 300.0))
    assert len(stage.arm.sent) == sent
    stage.at(stage.clock.now() + 0.5, lambda: stage.runner.stop("enough"))
    with pytest.raises(ArmError, match="the arm stopped on its way to the start: enough"):
        stage.runner.travel(START)
    stage.finish()


def test_a_policy_that_does_not_fit_is_refused_before_anything_moves(tmp_path):
    demos = reaching_demos(3)
    cases = [
        (
            Demos(demos.episodes, Layout.of(("target", "position", 2), ("hand", "position", 2)), ACTIONS),
            r"expected one that observes hand position \(2\), target position \(2\), found target position",
        ),
        (
            Demos(demos.episodes, demos.observation_layout, Layout.of(("hand", "vector", 2))),
            r"expected actions that are positions of the tool .* found hand vector \(2\)",
        ),
    ]
    for i, (other, message) in enumerate(cases):
        with pytest.raises(DataError, match=f"the policy does not fit: .*{message}"):
            Stage(ClosedFormPolicy(other), tmp_path / str(i))


def test_journals_survive_being_cut_off(tmp_path):
    with Journal(tmp_path) as journal:
        journal.note("begin", time=0.0, numbers=np.arange(3), odd=np.array([np.nan, np.inf]), more=np.float32(1))
        journal.note("step", text="ä\n")
    path = tmp_path / "journal.jsonl"
    assert read_journal(path)[0] == {"kind": "begin", "time": 0.0, "numbers": [0, 1, 2], "odd": [None] * 2, "more": 1.0}
    whole = path.read_bytes()
    path.write_bytes(whole[:-4])
    assert len(read_journal(path)) == 1
    with Journal(tmp_path) as journal:
        journal.note("begin", time=1.0)
    assert [line["kind"] for line in read_journal(path)] == ["begin", "continued", "begin"]
    path.write_bytes(b"#" + whole[1:])
    with pytest.raises(LoadError, match=r"journal\.jsonl, line 1: expected a line of a journal"):
        read_journal(path)


def test_pictures_are_png_files():
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    data = png(pixels)
    assert data.startswith(b"\x89PNG\r\n\x1a\n") and data.endswith(b"IEND\xaeB`\x82")
    begin = data.index(b"IDAT") + 4
    rows = np.frombuffer(zlib.decompressobj().decompress(data[begin:]), np.uint8).reshape(5, -1)
    assert np.array_equal(rows[:, 1:].reshape(5, 7, 3), pixels) and not rows[:, 0].any()


@pytest.mark.parametrize("wrong", [{"rate": 0.0}, {"max_steps": 0}, {"thinking": 0.2}, {"sight_timeout": np.nan}])
def test_parameters_out_of_range_are_refused(wrong):
    with pytest.raises(ConfigError, match=f"{next(iter(wrong))}: expected"):
        RunConfig(**wrong)


KILLED = """
import os, sys
from pathlib import Path
from closedform.robot.journal import Journal

journal = Journal(Path(sys.argv[1]))
for number in range(1000):
    journal.note("step", number=number)
os.kill(os.getpid(), 9)
"""


def test_a_killed_process_loses_no_line(tmp_path):
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert [line["number"] for line in read_journal(tmp_path / "journal.jsonl")] == list(range(1000))


def test_a_journal_that_cannot_be_written_is_said(tmp_path):
    journal = Journal(tmp_path)
    os.close(journal._file.fileno())
    journal.note("step")
    with pytest.raises(RecordError, match=r"journal\.jsonl: expected to write the journal, found"):
        journal.check()
    with pytest.raises((RecordError, OSError)):
        journal.close()
