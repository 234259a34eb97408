"""Real-time chunking: what the robot of Push-T does while it waits for a plan, and what that costs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from closedform.demos.load import load_demos
from closedform.evaluation.environment import Environment, make_environment
from closedform.evaluation.intervals import bootstrap_ci95
from closedform.files import write_file
from closedform.policies.choice import make_policy
from closedform.policies.policy import Policy
from closedform.weights.terms.action_prefix import ActionPrefix
from studies.runner import Runner, markdown_table

ENV, DEMOS = "pusht", "pusht"
DELAYS = (0, 1, 2, 4)
WAYS = {
    "wait": "hold the last action until the plan arrives",
    "switch": "go on with the last chunk, then switch to the new one",
    "continue": "go on with the last chunk, and plan given what is left of it",
}
N_EPISODES, FIRST_SEED = 100, 100000


class Outcome(NamedTuple):
    """An episode: its score, and the largest and the mean distance between actions, at all steps and at switches."""

    score: float
    largest: float
    at_switches: float
    mean: float


def run(runner: Runner) -> None:
    """Runs all episodes, three minutes on one core, and writes docs/results/realtime."""
    demos, environment = load_demos(DEMOS), make_environment(ENV)
    policy, rows = make_policy("default", demos), []
    seeds = range(FIRST_SEED, FIRST_SEED + N_EPISODES)
    for delay, way in tqdm([(delay, way) for delay in DELAYS for way in WAYS]):
        found = [run_episode(environment, policy, seed, delay, way) for seed in seeds]
        row: dict[str, Any] = {"delay": delay, "way": way}
        for name in Outcome._fields:
            values = np.array([getattr(outcome, name) for outcome in found])
            row[name] = float(values.mean())
            row[f"{name}_low"], row[f"{name}_high"] = bootstrap_ci95(values)
        rows.append(row)
    runner.write_csv("realtime", rows)
    _write(runner, rows, demos)
    runner.write_origin(seeds=f"{seeds[0]} to {seeds[-1]}")


def run_episode(environment: Environment, policy: Policy[Any], seed: int, delay: int, way: str) -> Outcome:
    """Runs an episode in which each plan arrives `delay` steps after its observation.

    Of each chunk, `n_execute` actions are executed after it arrived. There is no last chunk at the start, where the
    robot waits in any case.
    """
    observation, agent = environment.reset(seed), policy.agent(seed=seed)
    executed: list[np.ndarray] = []
    switches: list[int] = []
    left: np.ndarray | None = None
    score, done = 0.0, False
    while not done:
        continued = way == "continue" and left is not None
        plan = agent.plan(observation, ActionPrefix(left, delay) if continued and left is not None else None)
        if left is None or way == "wait":
            rest = executed[-1] if executed else plan.actions[0]
            due = [*[rest] * delay, *plan.actions[: policy.config.n_execute]]
            left = plan.actions[policy.config.n_execute :]
        else:
            due = [*left[:delay], *plan.actions[delay : delay + policy.config.n_execute]]
            left = plan.actions[delay + policy.config.n_execute :]
        switches.append(len(executed) + delay)
        for action in due:
            step = environment.step(action)
            executed.append(action)
            observation, score = step.observation, max(score, float(step.score or 0.0))
            done = step.done or len(executed) >= environment.max_steps
            if done:
                break
    jumps = np.linalg.norm(np.diff(executed, axis=0), axis=1)
    at_switches = [jumps[at - 1] for at in switches if 0 < at <= len(jumps)]
    return Outcome(score, float(jumps.max()), float(np.mean(at_switches)), float(jumps.mean()))


def _write(runner: Runner, rows: list[dict[str, Any]], demos: Any) -> None:
    steps = [np.linalg.norm(np.diff(episode.actions, axis=0), axis=1) for episode in demos]
    cells = [
        [
            str(row["delay"]),
            row["way"],
            f"{row['score']:.3f} [{row['score_low']:.3f}, {row['score_high']:.3f}]",
            f"{row['largest']:.0f} [{row['largest_low']:.0f}, {row['largest_high']:.0f}]",
            f"{row['at_switches']:.1f}",
            f"{row['mean']:.1f}",
        ]
        for row in rows
    ]
    head = ["delay, steps", "meanwhile", "score", "largest jump", "mean jump at switches", "mean jump"]
    ways = "\n".join(f"- *{way}*: {what};" for way, what in WAYS.items())
    text = f"""# Real-time chunking

Made by `{runner.command}`; [origin.json](origin.json) records versions and machine. In Push-T each plan arrives some
steps (of 0.1 s) after the observation it was made for. Meanwhile the robot may

{ways}

the last is `ActionPrefix` (`left_over` and `delay` of a request, docs/serving.md). {N_EPISODES} episodes per row, seeds
from {FIRST_SEED} on, the default policy; mean and 95% interval over episodes. A jump is the distance between successive
actions, in pixels; in the demonstrations the largest of an episode is {np.mean([each.max() for each in steps]):.0f} on
average, and the mean {np.mean(np.concatenate(steps)):.1f}.

{markdown_table(head, cells)}

Waiting costs time, of which an episode has 300 steps. Switching does not, but the demonstration that a new plan
follows need not be the one that the robot is on, and the longer the delay, the larger the jump from one to the other.
A plan that is made given the actions left over goes on from them.
"""
    write_file(runner.output / "README.md", text)
