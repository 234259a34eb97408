"""The controller's surroundings: shared memory, clocks, and a process that outlives the policy's."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from closedform import load_demos
from closedform.demos.recorder import read_part
from closedform.errors import ArmError, ConfigError
from closedform.robot.clocks import LockstepClock, WallClock
from closedform.robot.command import (
    COMMAND_SIZE,
    STATUS_SIZE,
    Command,
    Mode,
    Status,
    pack_command,
    pack_status,
    unpack_command,
    unpack_status,
    without_waypoints,
)
from closedform.robot.commander import Commander
from closedform.robot.control import LockstepControl
from closedform.robot.control_loop import ControlLoop
from closedform.robot.control_process import ControlProcess, ControlSpec, drive
from closedform.robot.controller import Controller
from closedform.robot.interfaces import ArmState
from closedform.robot.mailbox import Mailbox
from tests.robot.arms import (
    CONFIG,
    KINEMATICS,
    WORKSPACE,
    LaggingArm,
    check_commands,
    joints_at,
    unready_arm,
    wall_clock_arm,
)

ROOT = Path(__file__).parents[2]
CENTER, FAR = np.array([0.256, 0.256, 0.008]), np.array([0.45, 0.35, 0.008])
LONG = 60.0  # seconds after which something that should have happened did not


def toward(point, sequence, issued, **more):
    return Command(sequence, issued, Mode.RUN, np.array([issued]), np.array([point]), **more)


@pytest.fixture
def mailbox():
    box = Mailbox(256)
    yield box
    box.close()


@given(st.lists(st.binary(max_size=256), max_size=12))
@settings(max_examples=30, deadline=None)
def test_the_newest_message_is_read(messages):
    box = Mailbox(256)
    try:
        other = Mailbox(256, box.name)
        assert other.read() is None
        for number, message in enumerate(messages, 1):
            assert box.write(message) == number
            assert other.read() == (number, message) and other.read() == (number, message)
        other.close()
    finally:
        box.close()


def test_a_writer_that_stops_at_any_byte_leaves_the_message_before(mailbox):
    """A process may be stopped between any two stores; every prefix of what it writes is tried."""
    reader = Mailbox(256, mailbox.name)
    for number in range(1, 6):
        mailbox.write(bytes([number]) * 200)
    before = bytes(mailbox._bytes)
    mailbox.write(b"\xff" * 200)
    after = bytes(mailbox._bytes)
    changed = [i for i in range(len(before)) if before[i] != after[i] and i >= 8]
    for stores in (changed, changed[::-1]):  # whichever order they become visible in
        mailbox._bytes[:] = before
        for i in stores:
            assert reader.read() == (5, bytes([5]) * 200)
            mailbox._bytes[i] = after[i]
    mailbox._bytes[:] = before
    mailbox._bytes[:8] = after[:8]  # the number is visible before the message
    assert reader.read() == (5, bytes([5]) * 200)
    mailbox._bytes[:] = after
    assert reader.read() == (6, b"\xff" * 200)
    reader.close()


def write_many(name, enough):
    box, number = Mailbox(256, name), 0
    while not enough.is_set():
        number += 1
        box.write(number.to_bytes(8, "little") * 32)
    box.close()


def test_a_reader_beside_a_writer_sees_only_whole_messages_in_order(mailbox):
    context = multiprocessing.get_context("spawn")
    enough, last, seen = context.Event(), 0, 0
    process = context.Process(target=write_many, args=(mailbox.name, enough))
    process.start()
    try:
        while seen < 200:
            assert process.is_alive()
            if (found := mailbox.read()) is None:
                continue
            number, message = found
            assert message == number.to_bytes(8, "little") * 32 and number >= last
            seen, last = seen + (number > last), number
    finally:
        enough.set()
        process.join()


def test_messages_that_are_too_long_are_refused(mailbox):
    with pytest.raises(ConfigError, match="at most 256 bytes, found 257"):
        mailbox.write(b"x" * 257)
    with pytest.raises(ConfigError, match="bytes of shared memory, found"):
        Mailbox(100000, mailbox.name)


@given(st.integers(0, 80), st.text(max_size=300), st.sampled_from(list(Mode)), st.integers(0, 2**40))
@settings(max_examples=40, deadline=None)
def test_commands_and_statuses_are_read_as_written(n, text, mode, number):
    rng = np.random.default_rng(n)
    command = Command(number, 1.5, mode, rng.random(n), rng.random((n, 3)), text, 3, text[::-1])
    message = pack_command(command)
    assert len(message) <= COMMAND_SIZE
    found = unpack_command(message)
    assert found[:3] == command[:3] and found.resumes == 3
    assert np.array_equal(found.times, command.times[:64]) and np.array_equal(found.points, command.points[:64])
    assert text.rstrip("\0").startswith(found.alarm) and (found.alarm == text or len(text) > 50 or "\0" in text)
    state = ArmState(0.5, rng.random(6), rng.random(6), text or None)
    status = Status(2.5, number, mode, True, text, 7, number, rng.random(6), state, 0.001)
    packed = pack_status(status)
    assert len(packed) <= STATUS_SIZE
    again = unpack_status(packed)
    assert again[:4] == status[:4] and again.stops == 7 and again.lateness == 0.001
    assert np.array_equal(again.joints, status.joints) and np.array_equal(again.state.joints, state.joints)


def test_lockstep_time_passes_while_somebody_sleeps():
    clock, seen = LockstepClock(), []
    clock.every(0.1, lambda time: seen.append(("a", time)))
    clock.every(0.05, lambda time: seen.append(("b", time)), start=0.1)
    clock.sleep_until(0.2)
    assert seen == [("a", 0.0), ("a", 0.1), ("b", 0.1), ("b", 0.15000000000000002)] and clock.now() == 0.2
    clock.sleep_until(0.1)
    assert clock.now() == 0.2
    clock.sleep_until(1000.0)
    times = [time for name, time in seen if name == "a"]
    assert times == [i * 0.1 for i in range(10000)]
    with pytest.raises(ConfigError, match="period"):
        clock.every(0.0, print)


def test_the_wall_clock_sleeps_no_shorter_than_asked():
    clock = WallClock()
    due = clock.now() + 0.01
    clock.sleep_until(due)
    assert clock.now() >= due
    clock.sleep_until(due - 100)


def test_lockstep_control_records_every_tick(tmp_path):
    clock = LockstepClock()
    arm = LaggingArm(joints_at(CENTER), clock)
    control = LockstepControl(arm, Controller(KINEMATICS, CONFIG, WORKSPACE), clock, tmp_path / "ticks")
    for i in range(10):
        control.send(toward(FAR, i + 1, clock.now()))
        clock.sleep_until((i + 1) / 10)
    status = control.status()
    control.close()
    control.close()
    clock.sleep_until(2.0)
    assert arm.calls == ["connect", "stop", "disconnect"] and control.status().ticks == status.ticks
    (episode,) = load_demos(tmp_path / "ticks").episodes
    assert len(episode.actions) == status.ticks == len(arm.sent) and status.sequence == 10
    assert np.array_equal(episode.actions[:, :6], arm.sent)
    check_commands(episode.actions[:, :6], CONFIG.limits(KINEMATICS), CONFIG.period)
    assert np.allclose(np.diff(episode.observations[:, 0]), CONFIG.period)


def test_an_arm_that_stands_wrong_is_not_started(tmp_path):
    arm, clock = unready_arm(), LockstepClock()
    with pytest.raises(ArmError, match="the arm is not started: the tool is outside the workspace"):
        LockstepControl(arm, Controller(KINEMATICS, CONFIG, WORKSPACE), clock)
    assert arm.calls == ["connect", "disconnect"] and not arm.sent
    with pytest.raises(ArmError, match="the arm is not started: the tool is outside the workspace"):
        ControlProcess(ControlSpec(unready_arm, KINEMATICS, CONFIG, WORKSPACE))


class Slow(LockstepClock):
    """A clock on which every look at the time takes a while, as on a busy machine."""

    def now(self):
        self._now += 0.0007
        return self._now


@pytest.mark.parametrize("orphan", [False, True])
def test_the_loop_of_the_process_ends_at_rest(orphan):
    clock = Slow()
    arm = LaggingArm(joints_at(CENTER), clock)
    loop = ControlLoop(arm, Controller(KINEMATICS, CONFIG, WORKSPACE))
    commands, statuses, sent = Mailbox(COMMAND_SIZE), Mailbox(STATUS_SIZE), []

    def say(time):
        if time < 1.0:
            commands.write(pack_command(toward(FAR, len(sent) + 1, time)))
        elif not orphan:
            commands.write(pack_command(without_waypoints(Mode.END, len(sent) + 1, time, reason="enough")))
        sent.append(time)

    clock.every(0.1, say)
    drive(loop, clock, commands, statuses, lambda: orphan and len(sent) > 10)
    found = statuses.read()
    assert found is not None
    status = unpack_status(found[1])
    assert status.mode == Mode.HALT and not status.moving and status.lateness > 0
    assert status.reason == ("no fresh plan for 0.3 s" if orphan else "enough")
    check_commands(np.array(arm.sent), CONFIG.limits(KINEMATICS), CONFIG.period, joints_at(CENTER))
    for box in (commands, statuses):
        box.close()


def test_a_process_follows_and_ends(tmp_path):
    control = ControlProcess(ControlSpec(wall_clock_arm, KINEMATICS, CONFIG, WORKSPACE, tmp_path / "ticks"))
    assert control.note == "" or control.note.startswith("no real-time scheduling")
    clock, end = WallClock(), time.monotonic() + LONG
    status, sequence = control.status(), 0
    while clock.now() < end and np.linalg.norm(status.joints - joints_at(CENTER)) < 0.1:
        sequence += 1
        control.send(toward(FAR, sequence, clock.now(), resumes=status.stops))  # a busy machine may be late
        clock.sleep_until(clock.now() + 0.05)
        status = control.status()
    assert np.linalg.norm(status.joints - joints_at(CENTER)) >= 0.1 and 0 < status.sequence <= sequence
    control.close()
    (episode,) = load_demos(tmp_path / "ticks").episodes
    assert episode.actions[-1, 6] == Mode.HALT and np.array_equal(*episode.actions[-2:, :6])
    check_commands(episode.actions[:, :6], CONFIG.limits(KINEMATICS), CONFIG.period)
    with pytest.raises(ArmError, match="the control process ended"):
        control.status()


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="the system cannot stop processes")
def test_a_control_process_that_is_stopped_is_noticed_and_moves_nothing_when_it_goes_on(tmp_path):
    control, clock = ControlProcess(ControlSpec(wall_clock_arm, KINEMATICS, CONFIG, WORKSPACE)), WallClock()
    try:
        commander, end = Commander(control, clock), time.monotonic() + LONG

        def follow():
            commander.follow(clock.now(), np.array([clock.now()]), FAR[None])
            time.sleep(0.02)

        while not commander.newest().moving and time.monotonic() < end:
            commander.acknowledge()
            follow()
        assert control.pid is not None
        os.kill(control.pid, signal.SIGSTOP)
        try:
            with pytest.raises(ArmError, match=r"no news of the controller for \d"):
                while time.monotonic() < end:
                    commander.status()
                    follow()
            stopped = commander.newest()
        finally:
            os.kill(control.pid, signal.SIGCONT)
        while commander.newest().ticks < stopped.ticks + 20 and time.monotonic() < end:
            follow()  # as fresh as ever
        status = commander.newest()
        assert status.mode == Mode.HALT and "the controller stood still for" in status.reason and not status.moving
    finally:
        control.close()


POLICY = """
import sys, time
from pathlib import Path
import numpy as np
from closedform.robot.command import Command, Mode
from closedform.robot.control_process import ControlProcess, ControlSpec
from tests.robot.arms import CONFIG, KINEMATICS, WORKSPACE, wall_clock_arm

if __name__ == "__main__":
    control = ControlProcess(ControlSpec(wall_clock_arm, KINEMATICS, CONFIG, WORKSPACE, Path(sys.argv[1])))
    sequence, told = 0, False
    while True:
        sequence += 1
        t = time.monotonic()
        point = [0.256 + 0.15 * np.sin(3 * t), 0.256, 0.008]
        resumes = 0 if told else control.status().stops  # a slow machine may be late before the test begins
        control.send(Command(sequence, t, Mode.RUN, np.array([t]), np.array([point]), resumes=resumes))
        status = control.status()
        if not told and sequence > 20 and status.mode == Mode.RUN and status.moving:
            told = True
            print(control.pid, status.stops, flush=True)
        time.sleep(0.02)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="the system cannot stop processes")
@pytest.mark.parametrize("how", ["SIGSTOP", "SIGKILL"])
def test_a_policy_that_is_stopped_or_killed_ends_in_a_smooth_halt(tmp_path, how):
    script, ticks = tmp_path / "policy.py", tmp_path / "ticks"
    script.write_text(POLICY)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    policy = subprocess.Popen(
        [sys.executable, str(script), str(ticks)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    )
    try:
        assert policy.stdout is not None
        _, stops = map(int, policy.stdout.readline().split())
        policy.send_signal(getattr(signal, how))
        end = time.monotonic() + LONG
        if how == "SIGSTOP":  # the record is written while the policy stands still

            def halted():
                actions = read_part(ticks / "episode_000000.part").actions
                return len(actions) > 1 and actions[-1, 6] == Mode.HALT and np.array_equal(*actions[-2:, :6])

            while not halted() and time.monotonic() < end:
                time.sleep(0.1)
            assert halted()
            policy.kill()
        while not (ticks / "episode_000000.safetensors").exists() and time.monotonic() < end:
            time.sleep(0.05)
    finally:
        policy.kill()
        policy.wait()
    (episode,) = load_demos(ticks).episodes
    commands, last = episode.actions[:, :6], episode.actions[-1]
    assert last[6] == Mode.HALT and last[7] > stops and np.array_equal(*commands[-2:])
    check_commands(commands, CONFIG.limits(KINEMATICS), CONFIG.period)
    assert np.abs(np.diff(commands, axis=0)).max() > 0.001  # it had moved
