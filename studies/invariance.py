"""Invariance: Push-T recorded and controlled at other rates, and observed with more numbers, is the same task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from closedform.demos.demos import Demos
from closedform.demos.episode import Episode
from closedform.evaluation.environment import StepResult, make_environment
from closedform.evaluation.intervals import bootstrap_ci95
from closedform.evaluation.pusht import PushT
from closedform.evaluation.study import Study, demos_for
from closedform.files import write_file
from closedform.geometry.layout import Layout
from closedform.policies.choice import make_policy
from studies.runner import Runner, markdown_table

SEED, N_SETS, N_EPISODES = 100_000, 4, 25  # disjoint sets of demonstrations, and start states for each
AT_RATES, WITH_JOINTS = 25, 50  # demonstrations in a set
STEPS = ("n_action_steps=12", "n_execute=4")
UNWEIGHTED = ("relevance=false", "selection=false")


class PushT20(PushT):
    """Push-T at 20 Hz."""

    rate, max_steps = 20.0, 600

    def __init__(self):
        super().__init__()
        self._env.control_hz = self.rate


class PushT50(PushT20):
    """Push-T at 50 Hz."""

    rate, max_steps = 50.0, 1500


class PushT20Joints(PushT):
    """Push-T with 20 more observed numbers, which follow from the agent's position as the joints of an arm do."""

    n_joints = 20
    observation_layout = Layout.parse(f"{PushT.observation_layout}, - other 20")

    def start(self, state: np.ndarray) -> np.ndarray:
        """Starts from a state (5,)."""
        return with_joints(super().start(state), self.n_joints)

    def step(self, action: np.ndarray) -> StepResult:
        """Moves the agent's target to a position (2,) for a tenth of a second."""
        result = super().step(action)
        return result._replace(observation=with_joints(result.observation, self.n_joints))


class PushT40Joints(PushT20Joints):
    """The same with 40 numbers."""

    n_joints = 40
    observation_layout = Layout.parse(f"{PushT.observation_layout}, - other 40")


def with_joints(observations: np.ndarray, n_joints: int) -> np.ndarray:
    """Observations (..., 5) with sines of the agent's position, (..., 5 + n_joints)."""
    rng = np.random.default_rng(0)
    waves, phases = rng.normal(size=(2, n_joints)) * 1.5 / 256, rng.uniform(0, 2 * np.pi, n_joints)
    return np.concatenate([observations, np.sin(observations[..., :2] @ waves + phases)], axis=-1)


def resampled(demos: Demos, times: int) -> Demos:
    """The same motions with `times` as many steps, interpolated."""
    if times == 1:
        return demos
    episodes = []
    for episode in demos:
        known, wanted = np.arange(len(episode)), np.arange((len(episode) - 1) * times + 1) / times
        observations = np.array(episode.observations)
        observations[:, 4] = np.unwrap(observations[:, 4])
        columns = [np.interp(wanted, known, column) for column in np.hstack([observations, episode.actions]).T]
        numbers = np.stack(columns, axis=1)
        episodes.append(Episode(numbers[:, :5], numbers[:, 5:]))
    rate = PushT.rate * times
    return Demos(episodes, observation_layout=demos.observation_layout, action_layout=demos.action_layout, rate=rate)


def jointed(demos: Demos, n_joints: int) -> Demos:
    """The same demonstrations, observed with more numbers."""
    if n_joints == 0:
        return demos
    episodes = [Episode(with_joints(e.observations, n_joints), e.actions) for e in demos]
    layout = Layout.parse(f"{demos.observation_layout}, - other {n_joints}")
    return Demos(episodes, observation_layout=layout, action_layout=demos.action_layout, rate=demos.rate)


@dataclass(frozen=True)
class Case:
    """A variant of Push-T and the parameters of a policy.

    Attributes:
        name: for the table.
        env: the environment's name.
        times, n_joints: how many times as fine, and how many more numbers.
        settings: parameters that differ from the default.
    """

    name: str
    env: str
    times: int = 1
    n_joints: int = 0
    settings: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The name of its results files, without the number of the set."""
        return "_".join([f"{10 * self.times}hz", f"{self.n_joints}joints", *self.settings])


RATES = (
    Case("10 Hz, as recorded", "pusht"),
    Case("20 Hz", "studies.invariance:PushT20", times=2),
    Case("50 Hz", "studies.invariance:PushT50", times=5),
    Case("50 Hz, 12 steps planned and 4 executed", "studies.invariance:PushT50", times=5, settings=STEPS),
)
WIDTHS = (
    Case("5 numbers, as recorded", "pusht"),
    Case("25 numbers", "studies.invariance:PushT20Joints", n_joints=20),
    Case("45 numbers", "studies.invariance:PushT40Joints", n_joints=40),
    Case("45 numbers, all of the same weight", "studies.invariance:PushT40Joints", n_joints=40, settings=UNWEIGHTED),
)


def run(runner: Runner) -> None:
    """Runs the missing episodes and writes docs/results/invariance."""
    demos = demos_for(make_environment("pusht"), "pusht")
    rates = [_row(runner, demos, case, AT_RATES) for case in RATES]
    widths = [_row(runner, demos, case, WITH_JOINTS) for case in WIDTHS]
    runner.write_csv("rates", rates)
    runner.write_csv("widths", widths)
    _write(runner, rates, widths)
    runner.write_origin(seeds=f"from {SEED}")


def _row(runner: Runner, demos: Demos, case: Case, size: int) -> dict[str, Any]:
    """Scores over all sets of demonstrations."""
    scores: list[float] = []
    solved = 0
    for number in range(N_SETS):
        some = jointed(resampled(demos[number * size : (number + 1) * size], case.times), case.n_joints)
        policy = make_policy("default", some, list(case.settings))
        name, seed = f"pusht {number}, {size}, {case.name}", SEED + 100 * number
        study = Study.of_policy(case.env, policy, "default", name, seed=seed, n_episodes=N_EPISODES)
        episodes = runner.run(f"{size}_{number}_{case.key}", study).episodes
        scores += [episode.score for episode in episodes]
        solved += sum(episode.success for episode in episodes)
    low, high = bootstrap_ci95(np.array(scores))
    return {
        "case": case.name,
        "demonstrations": size,
        "episodes": len(scores),
        "score": round(float(np.mean(scores)), 4),
        "score_low": round(low, 4),
        "score_high": round(high, 4),
        "success": solved / len(scores),
    }


def _table(rows: list[dict[str, Any]]) -> str:
    body = [
        [row["case"], f"{row['score']:.3f} [{row['score_low']:.3f}, {row['score_high']:.3f}]", f"{row['success']:.2f}"]
        for row in rows
    ]
    return markdown_table(["Push-T", "score [95%]", "success"], body)


def _write(runner: Runner, rates: list[dict[str, Any]], widths: list[dict[str, Any]]) -> None:
    text = f"""# The same task at any rate and width

Made by `{runner.command}`; [origin.json](origin.json) records versions and machine. The default policy on Push-T from
human demonstrations, in {N_SETS} disjoint sets, each on {N_EPISODES} start states (seeds from {SEED}, others for each
set); the last row of each table turns off what is there for it.

## Rates

From {AT_RATES} demonstrations, interpolated, in the simulator with as many targets a second. Episodes last 30 s.

{_table(rates)}

## Widths

From {WITH_JOINTS} demonstrations. The additional numbers are sines of the agent's position, as the joints of an arm
would be: they say nothing new and, where all count the same, hide where the T is. The layout calls them `other`.

{_table(widths)}
"""
    write_file(runner.output / "README.md", text)
