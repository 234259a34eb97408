"""The driver of UR arms: the unmodified ur_rtde against a controller of ours; and without either."""

import io
import signal
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from closedform.errors import ArmError, ConfigError, MissingExtraError
from closedform.robot.drivers.fake_ur import FakeUr
from closedform.robot.drivers.rtde_packets import pack, packet, read_packet, type_of, unpack
from closedform.robot.drivers.ur import Dashboard, UrArm, check_mode
from tests.robot.arms import LaggingArm, joints_at
from tests.robot.fake_process import CENTER, can_listen, own_address

START = joints_at(CENTER)
CLIENT = Path(__file__).with_name("ur_client.py")

pytestmark = pytest.mark.skipif(not can_listen(), reason="loopback addresses other than 127.0.0.1 cannot be used")


def test_the_unmodified_client_connects_streams_stops_and_recovers():
    """In a process of its own: a thread of ur_rtde has crashed its process after a connection was lost."""
    pytest.importorskip("rtde_control", reason="needs ur_rtde, which has wheels for Python 3.11 and 3.12 on x86-64")
    command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", str(CLIENT)]
    for again in (True, True, False):
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=CLIENT.parents[2])
        if again and done.returncode == -signal.SIGSEGV:
            continue
        assert done.returncode == 0 and "7 passed" in done.stdout, done.stdout + done.stderr
        break


def test_a_host_that_does_not_answer_is_said(monkeypatch):
    monkeypatch.setattr("closedform.robot.drivers.ur.require_ur_rtde", lambda: (None, None))
    with pytest.raises(ArmError, match=r"expected a robot that answers on port 29999, found Connection refused"):
        UrArm("127.17.17.99").connect()
    with pytest.raises(ArmError, match=r"no\.such\.host\.invalid: expected a robot that answers"):
        UrArm("no.such.host.invalid").connect()


def test_without_ur_rtde_it_says_what_to_install(monkeypatch):
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
