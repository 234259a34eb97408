"""The command `run`: a policy on an arm."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np
from tyro.conf import arg

from closedform import Policy, load_demos, streams
from closedform.cli.policy import Choosing
from closedform.demos.options import ChoosingLayouts, OptionalDemosName, Output, progress_bar
from closedform.errors import ConfigError
from closedform.evaluation.environment import check_seed
from closedform.policies.demonstration_policy import DemonstrationPolicy
from closedform.policies.plan import Plan

_OPENED = 60.0  # seconds that a run waits for its page

if TYPE_CHECKING:
    from closedform.robot.arm_setup import ArmSetup
    from closedform.robot.control_config import ControlConfig
    from closedform.robot.marker_perception import MarkerPerception
    from closedform.robot.operator import Operator
    from closedform.robot.run_config import RunConfig, RunResult
    from closedform.robot.runner import Runner
    from closedform.robot.view import View
    from closedform.robot.workplane import Workplane

_N_PICTURES = 5  # that the camera's place is found from


@dataclass(frozen=True, kw_only=True)
class Run(Choosing, ChoosingLayouts):
    """Run a policy on an arm. Read docs/robot.md first: it begins with safety.

    While it runs, type p (pause), r (resume), h (hand back to the policy) or s (stop) and Enter; Ctrl-C stops as well.
    With --view browser, hold the mouse on the picture to take over: the tool follows until you release it. Every stop
    is smooth and its reason is in the record. A real arm that stopped for another reason than the end of an episode is
    not started again.
    """

    arm: Literal["ur", "twin"] = "twin"
    """The arm: ur (Universal Robots), or twin (simulated)."""
    demos: OptionalDemosName = None
    """The demonstrations: a path, or the name of a dataset; not needed for a saved policy."""
    host: Annotated[str | None, arg(metavar="ADDRESS")] = None
    """Address of the robot, for --arm ur. With --arm twin, a loopback address such as 127.0.0.17: the twin then runs on
    the wall clock behind a fake controller there, and ur_rtde speaks to it."""
    setup: Annotated[Path | None, arg(metavar="FILE")] = None
    """File that says which arm it is, its tool and its workplane, for --arm ur; see docs/robot.md."""
    camera: Annotated[str | None, arg(metavar="CAMERA")] = None
    """The camera, for --arm ur: its number, device or address."""
    calibration: Path = Path("camera.json")
    """The camera's calibration, written by `closedform calibrate`."""
    cell: Path = Path("cell.json")
    """File that says where the markers are; see docs/robot.md."""
    latency: float = 0.05
    """Seconds from an exposure until its picture arrives."""
    start: Annotated[tuple[float, float] | None, arg(metavar="X Y")] = None
    """Where the tool starts, in the policy's units, for --arm ur; by default where it is."""
    episodes: int = 1
    """Number of episodes."""
    steps: int = 300
    """Steps of an episode, at most."""
    seed: int = 100000
    """Seed of the first episode, counted up for the others."""
    coverage: float = 0.95
    """An episode of Push-T is done once the T covers more than this fraction of its outline."""
    false_alarm_rate: float = 0.01
    """An observation farther from the demonstrations than all but this fraction raises an alarm; 0 for none."""
    images: bool = False
    """Record every picture."""
    view: Annotated[str | None, arg(metavar="VIEW")] = None
    """Show the camera's picture with markers, plan and alarms: browser (where you can also pause, stop and take over),
    or an mp4 file to write."""
    output: Output = Path("run")
    """Folder for the record; an existing one is continued."""

    def run(self) -> None:
        """Checks everything that can be checked, and then moves."""
        self._check()
        setup = self._setup() if self.arm == "ur" else None
        demos = None if self.demos is None else self.settle(load_demos(self.demos))
        policy = self.make(demos)
        alarm = self._alarm(policy)
        if setup is not None:
            results = self._run_ur(policy, alarm, setup)
        elif self.host is not None:
            results = self._run_plant(policy, alarm, self.host)
        else:
            results = self._run_twin(policy, alarm)
        done = sum(result.done for result in results)
        print(f"{done} of {len(results)} episodes done; record: {self.output}")

    def _check(self) -> None:
        """Refuses options out of range, and those of a real arm where there is none."""
        for name in ("episodes", "steps"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}: expected 1 or more, found {getattr(self, name)}")
        check_seed(self.seed, self.episodes)
        for name, most in (("coverage", 1.0), ("latency", 1.0)):
            if not 0 <= getattr(self, name) <= most:
                raise ConfigError(f"{name}: expected 0 to {most:g}, found {getattr(self, name):g}")
        if not 0 <= self.false_alarm_rate < 1:
            raise ConfigError(f"false-alarm-rate: expected 0 to less than 1, found {self.false_alarm_rate:g}")
        if self.view is not None and self.view != "browser" and Path(self.view).suffix != ".mp4":
            raise ConfigError(f"--view: expected browser or the name of an mp4 file, found {self.view!r}")
        if self.arm == "ur" and self.episodes > 1 and not sys.stdin.isatty():
            raise ConfigError(
                f"--arm ur: expected a terminal, where somebody confirms that everything is back in place, found none: "
                f"--episodes 1, not {self.episodes}"
            )
        for name in ("setup", "camera", "start"):
            if self.arm == "twin" and getattr(self, name) is not None:
                raise ConfigError(
                    f"--arm twin: expected no --{name}, which is for a real arm: leave it out, or --arm ur"
                )

    def _setup(self) -> ArmSetup:
        from closedform.robot.arm_setup import ArmSetup

        for name in ("host", "setup", "camera"):
            if getattr(self, name) is None:
                raise ConfigError(f"--arm ur: expected --{name}, found none; see docs/robot.md")
        assert self.setup is not None
        return ArmSetup.load(self.setup)

    def _config(self) -> RunConfig:
        from closedform.robot.run_config import RunConfig

        return RunConfig(max_steps=self.steps, images=self.images)

    def _alarm(self, policy: Policy[Any]) -> Callable[[Plan], str] | None:
        """What says that a plan is far from the demonstrations."""
        from closedform.analysis.familiarity import measure_familiarity

        if not self.false_alarm_rate or not isinstance(policy, DemonstrationPolicy) or len(policy.episode_ids) < 2:
            return None
        with progress_bar() as say:
            say("leave-one-out distances", 0.0)
            familiarity = measure_familiarity(policy, self.false_alarm_rate)
        return lambda plan: "far from the demonstrations" if familiarity.alarm(plan) else ""

    def _run_twin(self, policy: Policy[Any], alarm: Callable[[Plan], str] | None) -> list[RunResult]:
        from closedform.robot.clocks import LockstepClock, PacedClock
        from closedform.robot.control import LockstepControl
        from closedform.robot.controller import Controller
        from closedform.robot.run_config import check_layouts
        from closedform.robot.runner import Runner
        from closedform.robot.twin.station import Station

        station = Station()
        results: list[RunResult] = []
        operator = self._operator(policy, station.perception, station.plane, station.config)
        _Keyboard(operator)
        with contextlib.closing(station), self._viewing(station.perception, station.plane, operator) as view:
            check_layouts(policy, station.perception.observation_layout)
            for episode in range(self.episodes):
                watched = self.view == "browser" or sys.stdin.isatty()
                clock = PacedClock() if watched else LockstepClock()
                station.follow(clock)
                station.arm.connect()  # the controller of the episode before has disconnected it
                station.place(self.seed + episode)
                controller = Controller(station.kinematics, station.config, station.workspace)
                control = LockstepControl(station.arm, controller, clock, self.output / "ticks")
                with (
                    contextlib.closing(control),
                    Runner(
                        policy,
                        control,
                        station.camera,
                        station.perception,
                        clock,
                        station.kinematics,
                        station.workspace,
                        folder=self.output,
                        control_config=station.config,
                        config=self._config(),
                        alarm=alarm,
                        done=self._done(policy),
                        watch=None if view is None else view.show,
                    ) as runner,
                ):
                    results.append(self._episode(runner, self.seed + episode, operator))
                print(f"  the T covers {station.coverage():.3f} of the outline")
        return results

    def _run_plant(self, policy: Policy[Any], alarm: Callable[[Plan], str] | None, host: str) -> list[RunResult]:
        """The twin on the wall clock, through ur_rtde."""
        from closedform.robot.drivers.ur import require_ur_rtde
        from closedform.robot.run_config import check_layouts
        from closedform.robot.twin.plant import SILENCE, Plant

        require_ur_rtde()
        with contextlib.closing(Plant(host)) as plant:
            check_layouts(policy, plant.perception.observation_layout)
            make_arm = _Maker(host, SILENCE)
            live = _Live(make_arm, plant.camera, plant.perception, plant.kinematics, plant.config, plant.workspace)
            return self._run_live(policy, alarm, live, plant.place)

    def _run_ur(self, policy: Policy[Any], alarm: Callable[[Plan], str] | None, setup: ArmSetup) -> list[RunResult]:
        from closedform.robot.clocks import WallClock
        from closedform.robot.marker_perception import MarkerPerception
        from closedform.robot.run_config import check_layouts
        from closedform.vision.camera_file import load_intrinsics
        from closedform.vision.cell import Cell
        from closedform.vision.extrinsics import find_camera
        from closedform.vision.marker_tracker import MarkerTracker
        from closedform.vision.video_camera import VideoCamera

        assert self.camera is not None and self.host is not None
        check_layouts(policy, policy.observation_layout)
        cell, intrinsics, clock = Cell.load(self.cell), load_intrinsics(self.calibration), WallClock()
        workspace, make_arm = setup.workspace(policy), _Maker(self.host)
        _check_reach(make_arm(), setup, workspace, self.start)
        source = int(self.camera) if self.camera.isdecimal() else self.camera
        with contextlib.closing(VideoCamera(source, intrinsics, self.latency)) as camera:
            pictures = []
            while len(pictures) < _N_PICTURES:
                pictures.append(camera.grab())
                clock.sleep_until(clock.now() + 0.1)
            found = find_camera(cell, intrinsics, pictures)
            print(f"camera found from {found.n_markers} markers on the table, {found.residual:.2f} pixels off")
            perception = MarkerPerception(
                policy.observation_layout,
                policy.action_layout.entries[0].body or "hand",
                MarkerTracker(cell, intrinsics, found.pose),
                setup.kinematics,
                setup.plane,
            )
            live = _Live(make_arm, camera, perception, setup.kinematics, setup.config, workspace)
            return self._run_live(policy, alarm, live)

    def _run_live(
        self,
        policy: Policy[Any],
        alarm: Callable[[Plan], str] | None,
        live: _Live,
        place: Callable[[int], None] | None = None,
    ) -> list[RunResult]:
        """Episodes on the wall clock, with the controller in a process of its own."""
        from closedform.robot.clocks import WallClock
        from closedform.robot.control_process import ControlProcess, ControlSpec
        from closedform.robot.runner import Runner

        results: list[RunResult] = []
        operator = self._operator(policy, live.perception, live.workspace.plane, live.config)
        keyboard = _Keyboard(operator)
        spec = ControlSpec(live.make_arm, live.kinematics, live.config, live.workspace, self.output / "ticks")
        with self._viewing(live.perception, live.workspace.plane, operator) as view:
            for seed in range(self.seed, self.seed + self.episodes):
                if place is not None:
                    place(seed)
                elif results:
                    keyboard.wait("Put everything back for the next episode, step away, and press Enter")
                with contextlib.closing(ControlProcess(spec)) as control:
                    if control.note and not results:
                        streams.complain(control.note)
                    with Runner(
                        policy,
                        control,
                        live.camera,
                        live.perception,
                        WallClock(),
                        live.kinematics,
                        live.workspace,
                        folder=self.output,
                        control_config=live.config,
                        config=self._config(),
                        alarm=alarm,
                        done=self._done(policy),
                        watch=None if view is None else view.show,
                    ) as runner:
                        if self.start is not None:
                            runner.travel(self.start)
                        else:
                            runner.lower()
                        results.append(self._episode(runner, seed, operator))
                if place is None and not (results[-1].done or results[-1].steps == self.steps):
                    break  # somebody has to look why it stopped
        return results

    def _episode(self, runner: Runner, seed: int, operator: Operator) -> RunResult:
        with operator.attached(runner):
            result = runner.run(seed=seed)
        print(f"seed {seed}: {'done' if result.done else 'ended'} after {result.steps} steps: {result.reason}")
        return result

    def _done(self, policy: Policy[Any]) -> Callable[[np.ndarray], bool] | None:
        from closedform.demos.catalog import PUSHT_OBSERVATIONS
        from closedform.robot.twin.block import coverage

        if policy.observation_layout.asymmetric != PUSHT_OBSERVATIONS:
            return None
        return lambda seen: coverage(1e-3 * seen[2], 1e-3 * seen[3], seen[4]) > self.coverage

    def _operator(
        self, policy: Policy[Any], perception: MarkerPerception, plane: Workplane, config: ControlConfig
    ) -> Operator:
        from closedform.robot.operator import Operator

        hand = policy.action_layout.entries[0].body or "hand"
        layout = perception.observation_layout
        return Operator(perception.tracker, plane, config.height, layout, hand, self._config().rate)

    @contextlib.contextmanager
    def _viewing(self, perception: MarkerPerception, plane: Workplane, operator: Operator) -> Iterator[View | None]:
        from closedform.robot.page import Page
        from closedform.robot.view import Film, Overlay

        if self.view is None:
            yield None
            return
        drawing = Overlay(perception, plane)
        if self.view == "browser":
            view = Page(drawing, operator)
            print(f"view: {view.address}; it begins once the page is open", flush=True)
            if not view.wait(_OPENED):
                streams.complain(f"nobody opened the page within {_OPENED:g} s: it begins without")
        else:
            view = Film(Path(self.view), drawing, 10.0)
        try:
            yield view
        finally:
            view.close()
            if self.view != "browser":
                print(f"view: {self.view}")


class _Live(NamedTuple):
    """A cell on the wall clock."""

    make_arm: _Maker
    camera: Any
    perception: MarkerPerception
    kinematics: Any
    config: Any
    workspace: Any


@dataclass(frozen=True)
class _Maker:
    """Makes the arm, in another process."""

    host: str
    silence: float = 0.1

    def __call__(self) -> Any:
        from closedform.robot.drivers.ur import UrArm

        return UrArm(self.host, silence=self.silence)


def _check_reach(arm: Any, setup: ArmSetup, workspace: Any, start: tuple[float, float] | None) -> None:
    """Refuses a workspace that the arm cannot reach from where it is, or a start outside of it; nothing moves."""
    from closedform.robot.inverse import check_reachable

    outside = None if start is None else workspace.outside(setup.plane.to_points(np.array(start), setup.config.height))
    if outside is not None:
        raise ConfigError(f"--start: unreachable target: expected one inside the workspace, found {outside}")
    arm.connect()
    try:
        joints = arm.state().joints
    finally:
        arm.disconnect()
    limits = setup.config.limits(setup.kinematics)
    check_reachable(setup.kinematics, setup.plane, workspace.lower, workspace.upper, joints, limits)


class _Keyboard:
    """Obeys what is typed while an episode runs, and waits for Enter between episodes, where somebody can type."""

    def __init__(self, operator: Operator):
        self._operator = operator
        self._entered = threading.Semaphore(0)
        self._used = sys.stdin.isatty()
        if self._used:
            threading.Thread(target=self._listen, name="closedform-keys", daemon=True).start()

    def wait(self, prompt: str) -> None:
        """Waits for Enter."""
        if self._used:
            print(prompt, flush=True)
            self._entered.acquire()

    def _listen(self) -> None:
        for line in sys.stdin:
            key, operator = line.strip().lower(), self._operator
            keys = {"p": operator.pause, "r": operator.resume, "h": operator.release, "s": operator.stop}
            if not operator.runs:
                self._entered.release()
            elif key in keys:
                keys[key]()
            else:
                streams.complain("expected p (pause), r (resume), h (hand back) or s (stop)")
