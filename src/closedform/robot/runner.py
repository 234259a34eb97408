"""Runner: joins camera, perception, policy and controller, and keeps the record."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from closedform.demos.recorder import Recorder
from closedform.errors import ArmError, ClosedFormError
from closedform.policies.agent import Agent
from closedform.policies.plan import Plan
from closedform.policies.policy import Policy
from closedform.robot.command import Command, Mode, Status
from closedform.robot.commander import Commander
from closedform.robot.control import Control
from closedform.robot.control_config import ControlConfig, Workspace
from closedform.robot.interfaces import Clock, Estimate, Perception
from closedform.robot.inverse import solve
from closedform.robot.journal import Journal
from closedform.robot.kinematics import Kinematics
from closedform.robot.picture_watch import PictureWatch
from closedform.robot.run_config import RunConfig, RunResult, check_layouts
from closedform.vision.camera import Camera, Image

Pilot = Callable[[Estimate], "np.ndarray | None"]
_AT_REST = 5.0  # seconds that a halt may take
_RECOVERED = 20.0  # seconds that unlocking may take
_THERE = 0.003  # meters


class RunStep(NamedTuple):
    """What a live view is shown of each step.

    Attributes:
        image: the picture, or None.
        estimate: what was made of it.
        command: what was sent, or None.
        status: of the controller before that.
        plan: of the policy, or None if somebody else acts.
        number: of steps on record in this episode, with this one if it was recorded.
    """

    image: Image | None
    estimate: Estimate
    command: Command | None
    status: Status
    plan: Plan | None
    number: int


class Runner:
    """Runs a policy on an arm: pictures to observations, plans to timed waypoints, everything on record.

        with Runner(policy, control, camera, perception, clock, kinematics, workspace, folder="record") as runner:
            runner.travel((256, 256))
            result = runner.run(seed=0)

    `pause`, `resume`, `take_over`, `hand_back` and `stop` may be called at any moment, from any thread.

    The record is a folder: `demos` (observations and actions of each step, which `load_demos` reads), `ticks` (of the
    controller, if it was told to keep them), `journal.jsonl` (plans, timings, alarms, stops) and `images`, if asked
    for. The journal loses nothing when the process is killed, the others at most the last quarter of a second.

    Args:
        policy: whose actions are positions on the workplane.
        control: the controller.
        camera: None where perception needs no pictures.
        perception: makes the observations.
        clock: that the controller runs on.
        kinematics, workspace, control_config: of the controller.
        folder: for the record.
        config: of the run.
        alarm: says what is wrong with a plan, such as one far from the demonstrations, or "".
        done: whether the task is done at an observation (D_o,).
        watch: is shown every step.
    """

    def __init__(
        self,
        policy: Policy[Any],
        control: Control,
        camera: Camera | None,
        perception: Perception,
        clock: Clock,
        kinematics: Kinematics,
        workspace: Workspace,
        *,
        folder: Path | str,
        control_config: ControlConfig | None = None,
        config: RunConfig | None = None,
        alarm: Callable[[Plan], str] | None = None,
        done: Callable[[np.ndarray], bool] | None = None,
        watch: Callable[[RunStep], None] | None = None,
    ):
        check_layouts(policy, perception.observation_layout)
        self.config, self._control_config = config or RunConfig(), control_config or ControlConfig()
        self._policy, self._camera, self._perception, self._clock = policy, camera, perception, clock
        self._kinematics, self._workspace = kinematics, workspace
        self._alarm, self._done, self._watch = alarm, done, watch
        self._commander, self._pictures = Commander(control, clock), PictureWatch()
        self._lock = threading.Lock()  # guards who acts
        self._pilot: Pilot | None = None
        self._agent: Agent | None = None
        self._index = 0  # of the present action in the plan
        self._journal = Journal(Path(folder))
        try:
            layouts = (policy.observation_layout, policy.action_layout)
            self._recorder = Recorder(Path(folder) / "demos", *layouts, rate=self.config.rate)
        except BaseException:
            self._journal.close()
            raise

    def pause(self) -> None:
        """Halts smoothly and waits; steps that pass are not recorded."""
        self._commander.hold()
        self._journal.note("pause", time=self._clock.now())

    def resume(self) -> None:
        """Resumes after a pause; the policy plans anew."""
        self._act_anew(self._pilot)
        self._commander.hold(False)
        self._journal.note("resume", time=self._clock.now())

    def take_over(self, pilot: Pilot) -> None:
        """Lets somebody else act: `pilot(estimate)` returns an action (D_a,), or None to stand still."""
        self._act_anew(pilot)
        self._journal.note("take over", time=self._clock.now())

    def hand_back(self) -> None:
        """Lets the policy act again; it plans anew."""
        self._act_anew(None)
        self._journal.note("hand back", time=self._clock.now())

    def stop(self, reason: str = "stopped by hand") -> None:
        """Halts smoothly, at once, and ends the episode."""
        if self._commander.halt(reason):
            self._journal.note("stop", time=self._clock.now(), reason=reason)

    def recover(self) -> None:
        """Unlocks the arm after a protective stop, between episodes; raises `ArmError` if it stays stopped."""
        before = self._commander.newest()
        self._journal.note("recover", time=self._clock.now(), stopped=before.state.stopped)
        self._commander.recover()
        end = self._clock.now() + _RECOVERED
        while True:
            self._clock.sleep_until(self._clock.now() + 0.05)
            status = self._commander.newest()  # which is old while the arm unlocks
            if status.stops > before.stops:
                raise ArmError(f"the arm cannot be recovered: {status.reason}")
            if status.sequence > before.sequence and status.state.stopped is None:
                return
            if self._clock.now() > end:
                raise ArmError(f"the arm cannot be recovered: {status.state.stopped or 'the controller hangs'}")

    def close(self) -> None:
        """Completes the record; the controller is closed by whoever made it."""
        try:
            self._recorder.close()
        finally:
            self._journal.close()

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def travel(self, position: Any) -> None:
        """Moves the tool to a position (2,) of the policy's: up, over there, and down.

        Raises `ArmError`, before anything moves, if it cannot be reached, and if the arm halts on its way.
        """
        plane, config = self._workspace.plane, self._control_config
        there = plane.to_points(np.asarray(position, np.float64), config.height)
        above = np.array([*there[:2], config.clearance])
        status = self._commander.status()
        limits, joints = config.limits(self._kinematics), status.state.joints
        for point in (above, there):
            outside = self._workspace.outside(point)
            if outside is not None:
                raise ArmError(f"unreachable target: expected one inside the workspace, found {outside}")
            joints = solve(self._kinematics, plane, point, joints, limits)
        self._commander.acknowledge()
        self._journal.note("travel", time=self._clock.now(), position=there)
        here = self._tool(status)
        for point in (np.array([*here[:2], config.clearance]), above, there):
            self._go(point)

    def lower(self) -> None:
        """Moves the tool to its height above the table, where it is."""
        self._commander.acknowledge()
        here = self._tool(self._commander.status())
        self._go(np.array([*here[:2], self._control_config.height]))

    def run(self, *, seed: int | None = None) -> RunResult:
        """Runs an episode until the task is done, its steps are used up, or something stops it."""
        self._commander.acknowledge()
        self._agent = self._policy.agent(seed)
        self._perception.reset()
        self._recorder.begin()
        self._journal.note("begin", time=self._clock.now(), seed=seed)
        self._n_steps, reason = 0, ""
        try:
            reason = self._run()
        except ClosedFormError as error:
            reason = str(error)
            self.stop(reason)
        except BaseException as error:
            interrupted = isinstance(error, KeyboardInterrupt)
            reason = "interrupted (Ctrl-C)" if interrupted else f"{type(error).__name__}: {error}"
            self.stop(reason)
            raise
        finally:
            episode = self._end(reason)
        return RunResult(episode, self._n_steps, reason == "done", reason)

    def _run(self) -> str:
        """Runs steps and returns why they ended."""
        period = 1 / self.config.rate
        due = began = self._clock.now()
        while self._n_steps < self.config.max_steps:
            self._clock.sleep_until(due)
            now = self._clock.now()
            late, begun = now - due, max(due, now - period)  # steps that were missed are not made up for
            status = self._commander.status()
            if self._commander.halted:
                return self._commander.halted
            if self._commander.stopped(status):
                self._journal.note("stop", time=status.time, reason=status.reason, by="controller")
                return status.reason
            if self._commander.held:
                self._show(*self._look(status)[:2], status)  # whoever paused it watches on
            elif ended := self._step(status, begun, late, began):
                return ended
            due = begun + period
            self._journal.check()
        return f"{self.config.max_steps} steps"

    def _step(self, status: Status, begun: float, late: float, began: float) -> str:
        """One step; returns why to end, or ""."""
        image, estimate, timer = self._look(status)
        frozen = self._pictures.age(self._clock.now())
        if frozen > self.config.sight_timeout:
            self.stop(f"the camera has repeated its picture for {frozen:.1f} s")
            return self._commander.halted
        seen = np.isfinite(estimate.error)
        unseen = estimate.time - (estimate.seen if seen else began)
        if unseen > self.config.sight_timeout:
            self.stop(f"no sight for {self.config.sight_timeout:g} s: {estimate.alarm or 'a body is hidden'}")
            return self._commander.halted
        if not seen:
            self._commander.stand()
            self._show(image, estimate, status)
            return ""
        if self._done is not None and self._done(estimate.observation):
            return "done"
        action, plan, targets = self._act(estimate)
        timer.append(time.perf_counter())
        command = None
        if action is None or targets is None:
            self._commander.stand()
        else:
            alarm = "; ".join(filter(None, (estimate.alarm, self._alarm(plan) if self._alarm and plan else "")))
            if self.config.thinking:
                self._clock.sleep_until(begun + self.config.thinking)
            points = self._workspace.plane.to_points(targets, self._control_config.height)
            times = begun + np.arange(len(points)) / self.config.rate
            command = self._commander.follow(self._clock.now(), times, points, alarm)
        if command is not None and action is not None:
            self._record(image, estimate, action, plan, command, status, late, timer)
        self._show(image, estimate, status, command, plan)
        return ""

    def _look(self, status: Status) -> tuple[Image | None, Estimate, list[float]]:
        """The picture, what is seen in it, and when that began, was grabbed and was observed."""
        timer = [time.perf_counter()]
        image = None if self._camera is None else self._camera.grab()
        if image is not None:
            image = self._pictures.look(image, status.state, self._clock.now())
        timer.append(time.perf_counter())
        estimate = self._perception.observe(image, status.state)
        return image, estimate, [*timer, time.perf_counter()]

    def _show(
        self,
        image: Image | None,
        estimate: Estimate,
        status: Status,
        command: Command | None = None,
        plan: Plan | None = None,
    ) -> None:
        if self._watch is not None:
            self._watch(RunStep(image, estimate, command, status, plan, self._n_steps))

    def _act(self, estimate: Estimate) -> tuple[np.ndarray | None, Plan | None, np.ndarray | None]:
        """The action (D_a,), the plan behind it, and this and the next targets (n, 2)."""
        with self._lock:
            agent, pilot = self._agent, self._pilot
        assert agent is not None  # an episode is running
        if pilot is not None:
            action = pilot(estimate)
            action = None if action is None else np.asarray(action, np.float64)
            return action, None, None if action is None else action[None]
        self._index = 0 if agent.plans_next else self._index + 1
        action = agent.act(estimate.observation)
        plan = agent.last_plan
        assert plan is not None
        return action, plan, plan.actions[self._index :]

    def _act_anew(self, pilot: Pilot | None) -> None:
        with self._lock:
            self._pilot = pilot
            if self._agent is not None:
                rng = self._agent.rng
                self._agent = self._policy.agent(rng)

    def _record(
        self,
        image: Image | None,
        estimate: Estimate,
        action: np.ndarray,
        plan: Plan | None,
        command: Command,
        status: Status,
        late: float,
        timer: list[float],
    ) -> None:
        self._recorder.append(estimate.observation, action)
        picture = self._journal.picture(image.pixels) if self.config.images and image is not None else None
        self._journal.note(
            "step",
            step=self._n_steps,
            sequence=command.sequence,
            time=command.issued,
            observation=estimate.observation,
            action=action,
            image_time=None if image is None else image.time,
            image=picture,
            seen=estimate.seen,
            error=estimate.error,
            alarm=command.alarm,
            by="policy" if plan is not None else "hand",
            distance=None if plan is None else plan.distance,
            frame=None if plan is None else plan.frame,
            times=command.times,
            points=command.points,
            joints=status.state.joints,
            late=late,
            ms=dict(zip(("grab", "observe", "plan"), 1e3 * np.diff(timer), strict=True)),
        )
        self._n_steps += 1

    def _end(self, reason: str) -> int | None:
        """Waits until the arm stands still, and completes the episode's record."""
        try:
            if not self._commander.halted:
                self._commander.stand()
            self._wait_for_rest()
            status = self._commander.status()
            facts = {"mode": Mode(status.mode).name, "controller": status.reason, "ticks": status.ticks}
        except ArmError as error:
            facts = {"controller": str(error)}
        self._journal.note("end", time=self._clock.now(), steps=self._n_steps, reason=reason, **facts)
        return self._recorder.end(keep=self._n_steps > 0)

    def _wait_for_rest(self) -> None:
        sent = self._clock.now() + 2 * self._control_config.period
        end = self._clock.now() + _AT_REST
        while self._clock.now() < end:
            self._clock.sleep_until(self._clock.now() + 0.02)
            if not self._commander.status().moving and self._clock.now() > sent:
                return

    def _tool(self, status: Status) -> np.ndarray:
        return self._workspace.plane.from_base(self._kinematics.pose(status.joints).position)

    def _go(self, point: np.ndarray) -> None:
        """Moves straight to a point (3,) of the workplane's frame."""
        start, begun = self._tool(self._commander.status()), self._clock.now()
        takes = max(float(np.linalg.norm(point - start)) / self.config.travel_speed, 0.1)
        while True:
            status, now = self._commander.status(), self._clock.now()
            reason = self._commander.halted or (status.reason if self._commander.stopped(status) else "")
            if not reason and now - begun > 2 * takes + 5 and not self._commander.held:
                reason = "the target was not reached in time"
                self.stop(reason)
            if reason:
                self._wait_for_rest()
                raise ArmError(f"the arm stopped on its way to the start: {reason}")
            if now - begun >= takes and np.linalg.norm(self._tool(status) - point) < _THERE:
                return
            times = now + np.arange(10) * 0.02
            share = np.clip((times - begun) / takes, 0, 1)[:, None]
            self._commander.follow(now, times, start + share * (point - start))
            self._clock.sleep_until(now + 1 / self.config.rate)
