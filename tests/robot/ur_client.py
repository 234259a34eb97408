"""The unmodified ur_rtde against a controller of ours; `test_ur.py` runs this file in a process of its own."""

import time

import numpy as np
import pytest

from closedform import load_demos
from closedform.errors import ArmError
from closedform.robot.command import Command, Mode
from closedform.robot.control_process import ControlProcess, ControlSpec
from closedform.robot.drivers.ur import UrArm
from tests.robot.arms import CONFIG, KINEMATICS, WORKSPACE, check_commands, joints_at
from tests.robot.fake_process import CENTER, FakeProcess, can_listen, own_address

START = joints_at(CENTER)
LONG = 60.0  # seconds after which something that should have happened did not


pytestmark = pytest.mark.skipif(not can_listen(), reason="loopback addresses other than 127.0.0.1 cannot be used")


def until(condition):
    end = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


@pytest.fixture
def fake():
    process = FakeProcess(own_address())
    yield process
    process.close()


def test_it_connects_streams_and_stops(fake):
    arm = UrArm(fake.host)
    arm.connect()
    state = arm.state()
    assert np.allclose(state.joints, START) and state.stopped is None
    path = [START + 0.0005 * i for i in range(60)]
    for joints in path:
        arm.servo(joints, 0.005)
        time.sleep(0.002)
    until(lambda: len(fake.commands) == len(path))
    assert np.array_equal([joints for joints, _ in fake.commands], path)
    until(lambda: np.linalg.norm(arm.state().joints - START) > 0.01)
    arm.stop()
    until(lambda: "servo stop" in fake.log)
    arm.disconnect()
    arm.disconnect()
    assert "script stopped" in fake.log and not fake.running
    with pytest.raises(ArmError, match="the arm is not connected"):
        arm.servo(START, 0.005)


def test_a_protective_stop_is_reported_and_unlocked(fake):
    arm = UrArm(fake.host)
    arm.connect()
    fake.call("protective_stop")
    until(lambda: arm.state().stopped == "protective stop")
    arm.stop()  # nothing to do
    fake.set(locked=True)
    with pytest.raises(ArmError, match="stays stopped: Cannot unlock protective stop until 5s after occurrence"):
        arm.recover()
    fake.set(locked=False)
    arm.recover()
    assert arm.state().stopped is None and "unlocked" in fake.log
    arm.servo(START, 0.005)
    until(lambda: len(fake.commands) == 1)
    fake.set(running=False)
    until(lambda: arm.state().stopped == "the control script on the robot ended")
    arm.recover()
    assert arm.state().stopped is None
    arm.disconnect()


def test_a_lost_connection_is_reported_and_made_again(fake):
    arm = UrArm(fake.host)
    arm.connect()
    fake.call("stop")
    until(lambda: arm.state().stopped == f"lost connection to {fake.host}")
    last = arm.state()
    assert np.allclose(last.joints, START) and time.monotonic() - last.time < LONG
    arm.stop()
    with pytest.raises(ArmError, match="expected a robot that answers on port 30004, found Connection refused"):
        arm.recover()
    fake.call("start")
    arm.recover()
    assert arm.state().stopped is None
    arm.disconnect()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"mode": "IDLE"}, "wrong mode: expected a robot that is RUNNING, found IDLE; switch it on"),
        ({"remote": False}, "wrong mode: expected remote control, found local control"),
        ({"protective": True}, "wrong mode: expected the safety status NORMAL, found PROTECTIVE_STOP"),
    ],
)
def test_a_robot_in_the_wrong_mode_is_refused(fake, wrong, message):
    fake.set(**wrong)
    with pytest.raises(ArmError, match=message):
        UrArm(fake.host).connect()
    assert not fake.log and not fake.commands


class MakeUr:
    """Makes the driver in another process."""

    def __init__(self, host):
        self.host = host

    def __call__(self):
        return UrArm(self.host)


def test_the_whole_chain_halts_at_a_protective_stop_and_resumes(fake, tmp_path):
    """Controller process, ur_rtde and the fake controller; every command that was recorded as sent arrived."""
    control = ControlProcess(ControlSpec(MakeUr(fake.host), KINEMATICS, CONFIG, WORKSPACE, tmp_path / "ticks"))
    sequence = 0

    def follow_until(condition, point, mode=Mode.RUN, resume=True):
        nonlocal sequence
        end = time.monotonic() + LONG
        while not condition(status := control.status()):
            assert time.monotonic() < end, status
            sequence += mode == Mode.RUN or not sequence
            now, stops = time.monotonic(), status.stops if resume else 2**40  # of no stop
            control.send(Command(sequence, now, mode, np.array([now]), np.array([point]), resumes=stops))
            time.sleep(0.02)
        return control.status()

    far = np.array(CENTER) + np.array([0.1, 0.05, 0.0])
    follow_until(lambda status: np.linalg.norm(status.state.joints - START) > 0.1, far)
    fake.call("protective_stop")
    status = follow_until(lambda status: status.mode == Mode.HALT, far, resume=False)
    assert status.reason == "protective stop"
    follow_until(lambda status: status.state.stopped is None, far, mode=Mode.RECOVER)
    follow_until(lambda status: status.mode == Mode.RUN and status.moving, np.array(CENTER))
    control.close()
    (episode,) = load_demos(tmp_path / "ticks").episodes
    sent = episode.actions[:, 9] > 0
    arrived = np.array([joints for joints, _ in fake.commands])
    rows = {row.tobytes() for row in episode.actions[sent, :6]}
    assert {row.tobytes() for row in arrived} <= rows and len(arrived) <= sent.sum()
    assert len(arrived) > 0.9 * sent.sum() - 5
    breaks = np.flatnonzero(np.diff(sent.astype(int)) == 1)[-1] + 1  # where it was resumed
    check_commands(
        episode.actions[breaks:, :6], CONFIG.limits(KINEMATICS), CONFIG.period, episode.observations[breaks, 2:8]
    )
