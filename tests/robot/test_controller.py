"""The controller: limits that no sequence of commands can break, halts with their reasons, and following."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from closedform.errors import ConfigError
from closedform.robot.command import Command, Mode
from closedform.robot.control_config import ControlConfig, Workspace
from closedform.robot.controller import Controller
from closedform.robot.limits import Limits, braking_speed
from closedform.robot.reference import ReferencePoint
from tests.robot.arms import CONFIG, KINEMATICS, PLANE, WORKSPACE, LaggingArm, joints_at

DT = CONFIG.period
CENTER = np.array([0.256, 0.256, 0.008])
START = joints_at(CENTER)


class Told(NamedTuple):
    """What happens next, for a number of ticks."""

    kind: str
    ticks: int
    point: tuple[float, float, float] = (0.0, 0.0, 0.0)


class Bench:
    """An arm and its controller, with every command that was sent."""

    def __init__(self, config=CONFIG, lag=0.02, start=START):
        self.controller, self.arm = Controller(KINEMATICS, config, WORKSPACE), LaggingArm(start, lag=lag)
        self.command: Any = None
        self.sequence, self.time = 0, 0.0
        self.rows = []  # (sent or not, joints, measured)

    def tell(self, mode, points=None, *, alarm="", reason="", resume=False):
        self.sequence += 1
        points = np.zeros((0, 3)) if points is None else np.atleast_2d(points)
        times = self.time + 0.1 * np.arange(len(points))
        resumes = self.controller.stops if resume else 0
        self.command = Command(self.sequence, self.time, mode, times, points, alarm, resumes, reason)

    def tick(self, n=1):
        for _ in range(n):
            state = self.arm.state()._replace(time=self.time)
            tick = self.controller.tick(self.time, self.command, state)
            if tick.send:
                self.arm.servo(tick.joints, DT)
            self.rows.append((tick.send, tick.joints, state.joints))
            self.time += DT

    def run(self, point, seconds, **more):
        for _ in range(round(seconds / 0.1)):
            self.tell(Mode.RUN, point, **more)
            self.tick(20)

    def check(self):
        limits = self.controller.limits
        last, velocity = self.arm_start, np.zeros(6)
        for sent, joints, measured in self.rows:
            if not sent:
                last, velocity = measured, np.zeros(6)
                continue
            now = (joints - last) / DT
            assert np.all(np.abs(now) <= limits.speed * (1 + 1e-9))
            assert np.all(np.abs(now - velocity) <= limits.acceleration * DT * (1 + 1e-6) + 1e-9)
            assert limits.check(joints) is None
            last, velocity = joints, now

    @property
    def reference(self):
        assert self.controller.target is not None
        return self.controller.target

    @property
    def arm_start(self):
        return self.rows[0][2]


POINT = st.tuples(*[st.one_of(st.floats(-0.1, 0.6), st.floats(-50, 50), st.just(np.nan), st.just(np.inf))] * 3)
TOLD = st.builds(
    Told,
    st.sampled_from(["run", "run", "run", "resume", "hold", "halt", "alarm", "silence", "protective", "late"]),
    st.integers(1, 40),
    POINT,
)


@given(st.lists(TOLD, min_size=1, max_size=14), st.sampled_from(["hold", "linear"]), st.sampled_from([0.005, 0.05]))
@settings(max_examples=40, deadline=None)
def test_no_command_ever_breaks_a_limit(story, interpolation, lag):
    bench = Bench(ControlConfig(interpolation=interpolation), lag)
    for told in story:
        mode = {"hold": Mode.HOLD, "halt": Mode.HALT}.get(told.kind, Mode.RUN)
        if told.kind == "protective":
            bench.arm.stopped = "protective stop"
            bench.tick(told.ticks)
            bench.arm.recover()
        elif told.kind != "silence":
            bench.tell(mode, [CENTER, told.point], alarm="odd" * (told.kind == "alarm"), resume=told.kind != "run")
        if told.kind == "late":
            bench.command = bench.command._replace(issued=bench.time - 10)
        bench.tick(told.ticks)
    bench.check()


@given(st.integers(0, 2**32 - 1), st.floats(0.05, 0.4))
@settings(max_examples=15, deadline=None)
def test_no_command_breaks_a_limit_where_joints_end(seed, reach):
    """Joints that may turn only a little, and waypoints that want more."""
    bench = Bench()
    bench.controller.limits = Limits(
        START - reach, START + reach, np.full(6, 2.0), np.random.default_rng(seed).uniform(2, 15, 6)
    )
    rng = np.random.default_rng(seed)
    for _ in range(8):
        bench.run(rng.uniform([-0.06, -0.06, 0.004], [0.572, 0.572, 0.1]), 0.3, resume=True)
    bench.check()


@given(st.lists(st.tuples(POINT, st.integers(1, 60)), min_size=1, max_size=12), st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_the_reference_stays_inside_within_its_limits(waypoints, seed):
    rng = np.random.default_rng(seed)
    reference = ReferencePoint(CONFIG, WORKSPACE, rng.uniform(WORKSPACE.lower, WORKSPACE.upper))
    for point, n in waypoints:
        target = np.clip(np.nan_to_num(np.array(point), posinf=9, neginf=-9), WORKSPACE.lower, WORKSPACE.upper)
        for _ in range(n):
            before, velocity = reference.position, reference.velocity
            reference.step(target, np.zeros(3))
            assert np.linalg.norm(reference.velocity) <= CONFIG.speed * (1 + 1e-9)
            assert np.all(np.abs(reference.velocity - velocity) <= CONFIG.acceleration * DT * (1 + 1e-9))
            assert np.allclose(reference.position - before, reference.velocity * DT, atol=1e-12)
            assert np.all(reference.position >= WORKSPACE.lower) and np.all(reference.position <= WORKSPACE.upper)


@given(st.floats(0, 5), st.floats(0.1, 20), st.floats(0.001, 0.02))
def test_one_can_stop_from_the_braking_speed(distance, deceleration, dt):
    speed, moved = float(braking_speed(np.array(distance), deceleration, dt)), 0.0
    while speed > 0:
        moved += speed * dt
        speed = max(speed - deceleration * dt, 0.0)
        assert speed <= braking_speed(np.array(distance - moved), deceleration, dt) + 1e-9
    assert moved <= distance + 1e-9


def test_it_follows_a_circle_with_the_tool_vertical():
    bench, worst, tilt = Bench(), 0.0, 0.0
    for _ in range(400):
        angle = np.pi * bench.time
        bench.tell(Mode.RUN, CENTER + 0.15 * np.array([np.sin(angle), np.cos(angle) - 1, 0.0]))
        bench.tick()
        pose = KINEMATICS.pose(bench.controller.joints)
        worst = max(worst, float(np.linalg.norm(PLANE.from_base(pose.position) - bench.reference)))
        tilt = max(tilt, float(np.arccos(min(1.0, -pose.rotation[2, 2]))))
    assert bench.controller.mode == Mode.RUN and worst < 2e-4 and tilt < 2e-3
    assert np.abs(bench.controller.velocities).max() > 0.3
    bench.check()


def test_it_follows_as_the_agent_of_push_t_does():
    """Without limits in the way, the tool moves like gym-pusht's agent: a spring of 100, a damper of 20."""
    bench, target = Bench(), CENTER + np.array([0.02, -0.01, 0.0])
    position, velocity = CENTER[:2].copy(), np.zeros(2)
    bench.tell(Mode.RUN, target)
    for _ in range(40):
        bench.tick()
        velocity += DT * (100 * (target[:2] - position) - 20 * velocity)
        position += DT * velocity
        assert np.allclose(bench.reference[:2], position, atol=2e-5)


def halted(bench, reason):
    """Whether the arm comes to rest, smoothly, for this reason."""
    for _ in range(200):
        bench.tick()
        if not bench.controller.moving:
            break
    bench.check()
    assert bench.controller.mode == Mode.HALT and not bench.controller.moving
    assert reason in bench.controller.reason
    return True


FAR = CENTER + np.array([0.2, 0.1, 0.0])


def moving():
    bench = Bench()
    bench.run(FAR, 0.2)
    assert bench.controller.moving and bench.controller.mode == Mode.RUN
    return bench


def test_without_fresh_plans_it_halts_after_a_third_of_a_second():
    bench, silent = moving(), 0
    issued = bench.command.issued
    while bench.controller.mode == Mode.RUN:
        bench.tick()
        silent += 1
    assert 0.3 < bench.time - issued < 0.3 + 3 * DT and silent > 30
    assert halted(bench, "no fresh plan for 0.3 s")


def test_an_alarm_halts_only_if_it_lasts():
    bench = moving()
    for i in range(30):  # three seconds, but never for long
        bench.run(CENTER, 0.1, alarm="odd" if i % 5 else "")
    assert bench.controller.mode == Mode.RUN
    bench.run(FAR, 1.2, alarm="far from the demonstrations")
    assert halted(bench, "an alarm lasted for 1 s: far from the demonstrations")


def test_a_tool_outside_the_workspace_halts():
    bench = moving()
    bench.controller.workspace = Workspace(PLANE, WORKSPACE.lower, np.array([0.25, 0.572, 0.1]))
    bench.tick(12)
    assert halted(bench, "the tool left the workspace: x = ")


def test_an_arm_that_does_not_follow_halts():
    bench = moving()
    bench.arm.lag = 1e9
    bench.run(FAR, 2.0)
    assert halted(bench, "the arm does not follow")


def test_silence_of_the_arm_halts():
    bench = moving()
    old = bench.arm.state()._replace(time=bench.time)
    for _ in range(40):
        bench.tell(Mode.RUN, FAR)
        bench.controller.tick(bench.time, bench.command, old)
        bench.time += DT
    assert bench.controller.mode == Mode.HALT and bench.controller.reason == "no news of the arm for 0.1 s"


@pytest.mark.parametrize("of", ["arm", "plan"])
def test_times_of_the_future_halt(of):
    bench = moving()
    bench.tell(Mode.RUN, FAR)
    if of == "plan":
        bench.command = bench.command._replace(issued=bench.time + 1000)
    state = bench.arm.state()._replace(time=bench.time + (1000 if of == "arm" else 0))
    bench.controller.tick(bench.time, bench.command, state)
    assert bench.controller.mode == Mode.HALT and "1e+03 s ahead" in bench.controller.reason


def test_after_a_gap_without_ticks_it_halts_where_the_arm_is():
    """A process that was stopped goes on with the newest plan; the arm has come to rest meanwhile."""
    bench = moving()
    before = bench.arm.joints.copy()
    bench.time += 3.0
    bench.tell(Mode.RUN, FAR)
    bench.tick()
    assert bench.controller.mode == Mode.HALT and bench.controller.reason == "the controller stood still for 3.0 s"
    bench.run(FAR, 0.5)
    assert np.array_equal(bench.controller.joints, before) and not bench.controller.moving
    bench.tell(Mode.RUN, FAR, resume=True)
    bench.tick(5)
    assert bench.controller.mode == Mode.RUN
    bench.check()


def test_numbers_that_are_none_halt():
    bench = moving()
    bench.tell(Mode.RUN, [FAR, (np.nan, 0, 0)])
    assert halted(bench, "waypoints")
    other = moving()
    other.arm.joints = np.full(6, np.nan)
    other.tick()
    assert other.controller.reason == "the arm reports joints that are not numbers"
    assert np.isfinite(other.controller.joints).all()


def test_a_protective_stop_is_left_alone_and_resumed_from_where_the_arm_is():
    bench = moving()
    bench.arm.stopped = "protective stop"
    bench.arm.joints = bench.arm.joints + 0.05 * np.eye(6)[0]  # somebody pushed it
    bench.run(FAR, 0.3)
    assert bench.controller.mode == Mode.HALT and bench.controller.reason == "protective stop"
    assert not any(sent for sent, _, _ in bench.rows[-50:])
    bench.arm.recover()
    bench.run(FAR, 0.3)
    assert bench.controller.mode == Mode.HALT and not bench.controller.moving  # nobody resumed
    bench.run(FAR, 0.3, resume=True)
    assert bench.controller.mode == Mode.RUN and bench.controller.moving
    bench.check()


def test_a_halt_lasts_until_somebody_who_knows_of_it_resumes():
    bench = moving()
    bench.tell(Mode.HALT, reason="the button")
    assert halted(bench, "the button")
    bench.run(FAR, 0.5)  # plans that were made without knowing
    assert bench.controller.mode == Mode.HALT and bench.controller.reason == "the button"
    bench.run(FAR, 0.5, resume=True)
    assert bench.controller.mode == Mode.RUN and bench.controller.reason == ""
    bench.tell(Mode.HOLD)
    bench.tick(200)
    assert bench.controller.mode == Mode.HOLD and not bench.controller.moving and bench.controller.stops == 1
    bench.run(CENTER, 2.0)
    assert np.allclose(bench.controller.tool(bench.controller.joints), CENTER, atol=1e-3)
    bench.check()


def test_the_same_calls_give_the_same_commands_to_the_bit():
    runs = []
    for _ in range(2):
        bench = moving()
        bench.run(CENTER, 0.5)
        bench.tick(100)
        runs.append(np.stack([joints for _, joints, _ in bench.rows]).tobytes())
    assert runs[0] == runs[1]


@pytest.mark.parametrize(
    ("joints", "problem"),
    [
        (joints_at((0.256, 0.7, 0.008)), "the tool is outside the workspace: y = 700 mm is outside -60 to 572 mm"),
        (START + np.array([0, 0, 0, 0.6, 0, 0]), "the tool is"),
        (START + np.array([7, 0, 0, 0, 0, 0]), "joint 1 at 9.875 rad is outside -6.283 to 6.283"),
    ],
)
def test_an_arm_that_stands_wrong_is_not_started(joints, problem):
    controller = Controller(KINEMATICS, CONFIG, WORKSPACE)
    assert controller.start_problem(LaggingArm(START).state()) is None
    assert problem in (controller.start_problem(LaggingArm(joints).state()) or "")


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"speed": 0.0}, "speed: expected a number above 0"),
        ({"gain": np.nan}, "gain: expected a number above 0"),
        ({"period": 0.1}, "period: expected at most 0.02 s"),
        ({"interpolation": "cubic"}, "interpolation: expected 'hold' or 'linear'"),
        ({"joint_speed": 2.0}, "joint_speed: expected a fraction"),
        ({"plan_timeout": 0.001}, "plan_timeout: expected more than a period"),
    ],
)
def test_parameters_out_of_range_are_refused(settings_, message):
    with pytest.raises(ConfigError, match=message):
        ControlConfig(**settings_)


def test_the_workspace_is_around_the_demonstrations():
    space = Workspace.around(PLANE, np.array([[0.0, 100.0], [400.0, 500.0]]), 0.06, CONFIG)
    assert np.allclose(space.lower, [-0.06, 0.04, 0.004]) and np.allclose(space.upper, [0.46, 0.56, 0.1])
    assert space.outside(np.array([0.2, 0.2, 0.05])) is None
    assert space.outside(np.array([0.2, 0.2, 0.0])) == "height = 0 mm is outside 4 to 100 mm"
    with pytest.raises(ConfigError, match="margin"):
        Workspace.around(PLANE, np.zeros((1, 2)), -1.0, CONFIG)
    with pytest.raises(ConfigError, match="the lower one first"):
        Workspace(PLANE, np.ones(3), np.zeros(3))
