"""The driver of UR arms: the unmodified ur_rtde against a controller of ours; and without either."""

import io
import os
import socket
import struct
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from closedform import load_demos
from closedform.deploy.command import Command, Mode
from closedform.deploy.control_process import ControlProcess, ControlSpec
from closedform.deploy.drivers.fake_ur import FakeUr
from closedform.deploy.drivers.rtde_packets import pack, packet, read_packet, type_of, unpack
from closedform.deploy.drivers.ur import Dashboard, UrArm, check_mode
from closedform.errors import ArmError, ConfigError, MissingExtraError
from tests.deploy.arms import CONFIG, KINEMATICS, WORKSPACE, LaggingArm, check_commands, joints_at
from tests.deploy.fake_process import CENTER, FakeProcess

START = joints_at(CENTER)
LONG = 60.0  # seconds after which something that should have happened did not


def own_address():
    """A loopback address that no other test listens on."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
    return f"127.17.{worker}.17"


def can_listen():
    try:
        socket.create_server((own_address(), 0)).close()
    except OSError:
        return False
    return True


pytestmark = pytest.mark.skipif(not can_listen(), reason="loopback addresses other than 127.0.0.1 cannot be used")


def until(condition):
    end = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


@pytest.fixture
def fake():
    pytest.importorskip("rtde_control", reason="needs ur_rtde, which has wheels for Python 3.11 and 3.12 on x86-64")
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


def test_a_host_that_does_not_answer_is_said(monkeypatch):
    monkeypatch.setattr("closedform.deploy.drivers.ur.require_ur_rtde", lambda: (None, None))
    with pytest.raises(ArmError, match=r"expected a robot that answers on port 29999, found Connection refused"):
        UrArm("127.17.17.99").connect()
    with pytest.raises(ArmError, match=r"no\.such\.host\.invalid: expected a robot that answers"):
        UrArm("no.such.host.invalid").connect()


def test_without_ur_rtde_it_says_what_to_install(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "rtde_control", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'closedform\[ur\]'"):
        UrArm("127.0.0.1").connect()


def test_parameters_out_of_range_are_refused():
    with pytest.raises(ConfigError, match="lookahead and gain"):
        UrArm("robot", gain=1.0)


def test_the_dashboard_answers():
    fake = FakeUr(own_address(), LaggingArm(START))
    with fake:
        dashboard = Dashboard(fake.host)
        check_mode(dashboard)
        assert dashboard.ask("running") == "Program running: false"
        assert dashboard.ask("sing") == "could not understand: 'sing'"
        fake.mode = "POWER_OFF"
        with pytest.raises(ArmError, match="found POWER_OFF"):
            check_mode(dashboard)
    with pytest.raises(ArmError, match="expected an answer to 'robotmode', found"):
        check_mode(dashboard)


NAMES = ["timestamp", "actual_q", "joint_mode", "robot_status_bits", "output_int_register_12", "payload_cog"]


@given(st.lists(st.sampled_from(NAMES), max_size=8), st.integers(0, 2**31 - 1))
@settings(max_examples=30, deadline=None)
def test_packets_are_read_as_written(names, number):
    sizes = {"VECTOR6D": 6, "VECTOR6INT32": 6, "VECTOR3D": 3}
    values = {name: np.full(sizes.get(type_of(name), 1), number) for name in names}
    content = pack(names, values)
    stream = io.BytesIO(packet("U", content))
    assert read_packet(stream) == ("U", content)
    with pytest.raises(EOFError):
        read_packet(stream)
    found = unpack(names, content)
    assert all(np.array_equal(np.atleast_1d(found[name]), values[name]) for name in names)
    with pytest.raises((EOFError, struct.error)):
        read_packet(io.BytesIO(packet("U", content + b"x")[:-1]))


class Stub:
    """Both connections of ur_rtde; the controlling one hears of a stop before the receiving one does."""

    status, protective, ahead, stamp = 3, False, True, 0.0

    def getTimestamp(self):
        self.stamp += 0.002
        return self.stamp

    def getActualQ(self):
        return [0.0] * 6

    def getActualQd(self):
        if self.stamp > 0.01:  # a package arrives between any two questions
            self.status, self.protective = 1, True
        return [0.0] * 6

    def getRobotStatus(self):
        return self.status

    def isConnected(self):
        return True

    def isProtectiveStopped(self):
        return self.protective

    def isEmergencyStopped(self):
        return False

    def isProgramRunning(self):
        return not self.ahead


def test_a_protective_stop_is_not_taken_for_the_end_of_the_script():
    arm = UrArm("robot", clock=lambda: 0.0)
    arm._control = arm._receive = Stub()
    reasons = [arm.state().stopped for _ in range(8)]
    assert reasons[0] is None and reasons[-1] == "protective stop"
    assert set(reasons) == {None, "protective stop"}
