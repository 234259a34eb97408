"""StudioSession: who drives, what is recorded, and what the policy learns; one call of `step` per control step."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal, cast

import numpy as np

from closedform.analysis.stage import rounded
from closedform.demos.episode import Episode
from closedform.errors import ClosedFormError, ConfigError
from closedform.evaluation.drawing import Drawing, Draws, Placement
from closedform.evaluation.environment import N_SEEDS, Environment, Renders, check_seed
from closedform.evaluation.steering import Steering, Steers
from closedform.policies.agent import Agent
from closedform.studio.answers import Answers, Background, at_once
from closedform.studio.collection import Collection
from closedform.studio.insight import insight
from closedform.studio.picture import thumbnail
from closedform.studio.score_board import ScoreBoard, ScoredRun
from closedform.studio.take import Kind
from closedform.studio.tape import Tape

Driver = Literal["nobody", "person", "policy"]
Point = tuple[float, ...]

SHORTEST = 3  # steps of a stretch that is kept; a shorter one is a touch
_LONGEST = 3000  # steps, after which a stretch ends by itself
_LINGER = 12  # steps that the end of a run is shown
_N_STARTS = 24  # in whose range a scene without a drawing is shown
_N_CANDIDATES = 48  # starts among which the least familiar one is searched
_N_PAIRS = 10  # starts that two policies are compared on
_MAP_EVERY = 5  # steps


def _drawing(environment: Environment, collection: Collection) -> Drawing:
    """How a scene looks: as it says, or as its layout does."""
    if isinstance(environment, Draws):
        return environment.drawing
    seen = [np.asarray(environment.reset(seed), np.float64)[None] for seed in range(_N_STARTS)]
    try:
        return Drawing.of_layout(
            environment.observation_layout,
            np.concatenate([*seen, *(take.episode.observations for take in collection.held)]),
        )
    except ConfigError as error:
        raise ConfigError(
            "the studio needs something to show and to move: expected an environment with a `drawing`, with `render`, "
            f"`hand` and `action_to`, or with positions in its layout, found a {type(environment).__name__} without "
            f"({error}); see docs/studio.md"
        ) from error


class StudioSession:
    """A session of demonstrating and deploying in one scene, independent of any clock, page or network.

    While a pointer is given, it drives; otherwise the policy drives from that very state. Every stretch that a person
    drove becomes an episode of the policy when it ends. All methods are called by one thread.

    Args:
        environment: with actions that are the position of a body in the plane, and a drawing (`Draws`) or a layout that
            says where bodies are; or with a picture and a hand that can be steered (`Steers`).
        collection: the episodes and the policy.
        tape: where stretches are recorded; None for nowhere.
        seed: of the first start.
        spare: makes another environment of the same kind, for slow jobs.
        background: runs slow jobs and hands their results to this thread, so that steps are not late.

    Attributes:
        placement: where bodies are in the plane; None for an environment that only has a picture.
        driver: who drives.
        paused: whether time stands still.
        insight: of the last plan; None if there is none. See `closedform.studio.insight`.
        notices: lines for the person, oldest first, to be taken from here.
        answers: of `compare`, `examine` and `show_map`, and how familiar scenes are.
    """

    def __init__(
        self,
        environment: Environment,
        collection: Collection,
        *,
        tape: Tape | None = None,
        seed: int = 0,
        spare: Callable[[], Environment] | None = None,
        background: Background = at_once,
    ):
        self.environment, self.collection = environment, collection
        self.placement: Placement | None = None
        if isinstance(environment, Steers) and not isinstance(environment, Draws):
            self._controls = Steering(environment)
        else:
            layouts = environment.observation_layout, environment.action_layout
            self.placement = self._controls = Placement(_drawing(environment, collection), *layouts)
        self._tape, self._not_taped = tape, ""  # why, as the person was told in this stretch
        self.answers = Answers(collection, self.placement, spare or type(environment), background, self._changed)
        self.board, self.notices = ScoreBoard(), list[str]()
        self.paused = False
        self._agent: Agent | None = None
        self._start(seed)
        self._edited()

    def _start(self, seed: int) -> None:
        check_seed(seed)
        self.seed, self.n_steps = seed, 0
        self.driver: Driver = "nobody"
        self.outcome: Literal["", "success", "timeout"] = ""
        self.observation = np.asarray(self.environment.reset(seed), np.float64)
        self.target: np.ndarray | None = None
        self.insight: dict[str, Any] | None = None
        self.score = 0.0
        self._best, self._helped, self._policy_drove = 0.0, False, False
        self._observations: list[np.ndarray] = []
        self._actions: list[np.ndarray] = []
        self._lingering = 0
        self._must_let_go = False  # who held on through the end of a run does not drive the next one by accident

    def step(self, pointer: Point | None = None) -> None:
        """Advances by one control step, driven by a pointer or, if None, by the policy.

        Args:
            pointer: where the mouse is pressed: (x, y) in the units of positions or, over a picture, in fractions of
                it, then with the height by the wheel and 1 for a closed gripper.
        """
        if pointer is None:
            self._must_let_go = False
        if self.paused:
            return
        if self.outcome:
            self._linger(pointer)
            return
        if pointer is not None and not self._must_let_go:
            self._step_person(pointer)
        else:
            self._step_policy()

    def retry(self) -> None:
        """Starts again from the same seed; a stretch that a person drives right now is kept."""
        self.start(self.seed)

    def end(self) -> None:
        """Ends the run and starts the next one."""
        self.start(self._seed_after(1))

    def _seed_after(self, n: int) -> int:
        return (self.seed + n) % N_SEEDS

    def start(self, seed: Any) -> None:
        """Starts from a seed."""
        if type(seed) is not int:
            raise ConfigError(f"seed: expected a whole number, found {seed!r:.40}")
        check_seed(seed)
        held = self.driver == "person"
        self._end_stretch()
        self._start(seed)
        self._must_let_go = held

    def pause(self, paused: bool | None = None) -> None:
        """Pauses or resumes; without an argument, the other of the two."""
        self.paused = not self.paused if paused is None else paused

    def delete(self, number: Any) -> None:
        """Deletes a take; plans are then as if it had never been there."""
        take = self.collection.delete(number)
        self._taping(lambda tape: tape.delete(take))
        self._edited()

    def undo(self) -> None:
        """Undoes the last edit: a take that was added or deleted, or parameters."""
        before = {take.number for take in self.collection.held}
        said = self.collection.undo()
        self.notices.append(said or "nothing to undo")
        after = {take.number for take in self.collection.held}
        for number in before - after:
            self._taping(lambda tape, n=number: tape.delete(self.collection.takes[n]))
        for number in after - before:
            self._taping(lambda tape, n=number: tape.restore(self.collection.takes[n]))
        self._edited()

    def set_parameters(self, parameters: dict[str, Any]) -> None:
        """Replaces parameters of the policy."""
        self.collection.set_parameters(**parameters)
        self._edited()

    def show_me(self) -> None:
        """Starts where a demonstration would help most: at the least familiar of the next starts."""
        if self.collection.policy is None:
            self.notices.append("no demonstration yet: every start helps as much as any other")
            return

        def go(seed: int | None) -> None:
            if seed is None:
                return
            self.start(seed)
            self.notices.append(f"seed {seed} is the least familiar of {_N_CANDIDATES} starts: show me here")

        self.answers.least_familiar([self._seed_after(1 + i) for i in range(_N_CANDIDATES)], go)

    def compare(self) -> None:
        """Did the last episode help? Runs the same starts without and with it; the answer is in `answers.paired`."""
        if not self.answers.compare([self._seed_after(i) for i in range(_N_PAIRS)]):
            self.notices.append("expected an episode of yours and another one to compare, found none")

    def examine(self) -> None:
        """Which episodes are worth watching? The answer of the health checks is in `answers.findings`, by take."""
        self.answers.examine()

    def show_map(self, on: bool) -> None:
        """Switches the familiarity map, `answers.map`, on or off."""
        self.answers.show_map(on, self.observation)

    def render(self) -> np.ndarray:
        """An image of the scene; for environments without a drawing."""
        return cast("Renders", self.environment).render()

    def frame(self) -> dict[str, Any]:
        """The current state for a page."""
        poses = {} if self.placement is None else self.placement.poses(self.observation[None])
        extent = None if self.placement is None else self.placement.drawing.extent
        return {
            "poses": {body: rounded(pose, extent)[0] for body, pose in poses.items()},
            "target": None if self.target is None or not poses else rounded(self.target[None], extent)[0],
            "driver": self.driver,
            "paused": self.paused,
            "outcome": self.outcome,
            "seed": self.seed,
            "step": self.n_steps,
            "score": round(self.score, 4),
            "closed": isinstance(self.environment, Steers) and self.environment.closed(),
            "recorded": len(self._observations),
            "waiting": self.collection.policy is None and self.driver == "nobody",
        }

    def _step_person(self, pointer: Point) -> None:
        if self.driver != "person":
            self.driver, self._agent = "person", None
            self._kind: Kind = "correction" if self._policy_drove else "demonstration"
            self._helped, self._not_taped = True, ""
            self._taping(lambda tape: tape.begin())
        action, observation = self._controls.action(pointer), self.observation
        if self.n_steps % 2 == 0:
            self._look(observation)
        self._observations.append(observation)
        self._actions.append(action)
        self._taping(lambda tape: tape.append(observation, action))
        self._advance(action)
        if not self.outcome and len(self._observations) >= _LONGEST:
            self._must_let_go = True
            self._end_stretch()

    def _step_policy(self) -> None:
        self._end_stretch()
        policy = self.collection.policy
        if policy is None:
            self.driver, self.target, self.insight = "nobody", None, None
            return
        if self.driver != "policy" or self._agent is None or self._agent.policy is not policy:
            self.driver, self._agent = "policy", policy.agent(seed=self.seed)
        agent = self._agent
        plans, began = agent.plans_next, time.perf_counter()
        action = agent.act(self.observation)
        if plans and agent.last_plan is not None:
            self._explain(policy, agent.window, agent.last_plan, time.perf_counter() - began)
        self._policy_drove = True
        self._advance(action)
        if not self.outcome and self.n_steps >= self.environment.max_steps:
            self._finish("timeout")

    def _look(self, observation: np.ndarray) -> None:
        """Shows what the policy would do while a person drives."""
        policy = self.collection.policy
        if policy is None:
            return
        began = time.perf_counter()
        plan = policy.plan(observation, seed=0)
        window = np.repeat(observation[None], policy.config.n_obs_steps, axis=0)
        self._explain(policy, window, plan, time.perf_counter() - began)

    def _explain(self, policy: Any, window: np.ndarray, plan: Any, seconds: float) -> None:
        numbers = {take.policy_id: take.number for take in self.collection.held if take.policy_id is not None}
        usual = self.answers.familiarity and self.answers.familiarity.at(first=self.n_steps == 0)
        self.insight = insight(policy, window, plan, numbers, usual, seconds)

    def _advance(self, action: np.ndarray) -> None:
        self.target = action
        result = self.environment.step(action)
        self.observation = np.asarray(result.observation, np.float64)
        self.score = float(result.success) if result.score is None else float(result.score)
        self._best = max(self._best, self.score)
        self.n_steps += 1
        if self.n_steps % _MAP_EVERY == 0:
            self.answers.draw_map(self.observation)
        if result.success or result.done:
            self._finish("success" if result.success else "timeout")

    def _finish(self, outcome: Literal["success", "timeout"]) -> None:
        held = self.driver == "person"
        self.outcome, self._lingering = outcome, _LINGER
        self._end_stretch(success=outcome == "success")
        self._must_let_go = held
        self.board.add(ScoredRun(self.seed, self._helped, outcome == "success", self._best))

    def _linger(self, pointer: Point | None) -> None:
        """Shows the end of a run for a moment; whoever touches the scene anew goes on at once."""
        self._lingering -= 1
        if self._lingering <= 0 or (pointer is not None and not self._must_let_go):
            must_let_go = self._must_let_go
            self._start(self._seed_after(1))
            self._must_let_go = must_let_go

    def _end_stretch(self, success: bool | None = False) -> None:
        """Makes an episode of what a person drove."""
        if self.driver != "person":
            return
        if isinstance(self._controls, Steering):
            self._controls.let_go()
        self.driver = "nobody"
        observations, actions = self._observations, self._actions
        self._observations, self._actions = [], []
        if len(observations) < SHORTEST:
            self._taping(lambda tape: tape.end(None))
            self.notices.append(f"a touch of {len(observations)} steps is not kept: hold on to demonstrate")
            return
        episode = Episode(np.stack(observations), np.stack(actions))
        facts = {"seed": self.seed, "step": self.n_steps - len(observations)}
        take = self.collection.add(episode, self._kind, success, **facts)
        if self.placement is None:
            take.picture = thumbnail(self.render())
        self._taping(lambda tape: tape.end(take))
        self._edited()

    def _edited(self) -> None:
        """Something changed that the next plan is made of."""
        self.board.edited()
        if self.collection.log.problem:
            self.notices.append(self.collection.log.problem)
        self.answers.edited()

    def _changed(self, said: str) -> None:
        self.notices.append(said)
        self._edited()

    def _taping(self, do: Callable[[Tape], None]) -> None:
        """Records; if that fails, the person is told and the session goes on."""
        if self._tape is None:
            return
        try:
            do(self._tape)
        except (ClosedFormError, OSError) as error:
            if str(error) != self._not_taped:
                self._not_taped = str(error)
                self.notices.append(f"not recorded: {error}")
