"""The monitor in front of a network: how often it raises a false alarm, and which failures it announces."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from tqdm import tqdm

from closedform import ClosedFormPolicy, provenance
from closedform.analysis import measure_familiarity
from closedform.client import Client
from closedform.demos.demos import Demos
from closedform.demos.load import load_demos
from closedform.errors import LoadError
from closedform.evaluation.intervals import bootstrap_ci95, ratio_ci95, wilson_ci95
from closedform.evaluation.pusht import PushT
from closedform.files import read_json, write_file
from closedform.policies.choice import make_policy
from closedform.policies.policy import Policy
from closedform.policies.saving import load_policy
from closedform.serve import Monitor, Service, monitoring, serving
from studies.runner import Runner, markdown_table

NEURAL, DEMOS, MIDDLE = "pusht-dit-left", "pusht", 256.0
N_EPISODES, FIRST_SEED = 100, 100000
N_TOGETHER = 20  # robots at once, which the network plans for in batches
RATE, AFTER = 0.01, 3
CASES = {
    "familiar": "block starts on the left, as in the network's training data",
    "novel": "block starts on the right, which the network has never seen",
    "fallback": "the same starts; our policy, with demonstrations of both sides, acts while the alarm lasts",
}


@dataclass(frozen=True)
class Outcome:
    """An episode over the wire.

    Attributes:
        seed, score, success, steps: of the episode.
        asked: the step of each request.
        left: whether the block was on the left then.
        lasted: for how many requests in a row the alarm had lasted then.
        commit: of the code.
    """

    seed: int
    score: float
    success: bool
    steps: int
    asked: list[int]
    left: list[bool]
    lasted: list[int]
    commit: str | None

    @property
    def announced(self) -> int | None:
        """The step at which the alarm had lasted long enough to call for help; None if it never did."""
        return next((step for step, lasted in zip(self.asked, self.lasted, strict=True) if lasted >= AFTER), None)


def run(runner: Runner) -> None:
    """Runs the missing episodes, a quarter of an hour on one core, and writes docs/results/monitor."""
    demos, neural = load_demos(DEMOS), load_policy(NEURAL).to(runner.device)
    found = {case: run_case(runner, case, neural, demos, N_EPISODES) for case in CASES}
    write(runner, found, starts_beyond(demos))


def run_case(runner: Runner, case: str, neural: Policy[Any], demos: Demos, n_episodes: int) -> list[Outcome]:
    """The outcomes of one case, from the work folder if they exist."""
    seeds = list(_seeds(case != "familiar", n_episodes))
    known = {seed: _read(runner, case, seed) for seed in seeds if _path(runner, case, seed).exists()}
    missing = [seed for seed in seeds if seed not in known]
    if missing:
        with ExitStack() as stack:
            monitor = make_monitor(demos, neural, fallback=case == "fallback")
            address = stack.enter_context(monitoring(monitor, stack.enter_context(serving(neural))))
            pool = stack.enter_context(ThreadPoolExecutor(N_TOGETHER))
            running = [pool.submit(run_episode, address, seed) for seed in missing]
            for done in tqdm(as_completed(running), desc=case, total=len(running), leave=False, disable=None):
                outcome = done.result()
                write_file(_path(runner, case, outcome.seed), json.dumps(asdict(outcome)))
                known[outcome.seed] = outcome
    runner.commits.update(str(outcome.commit) for outcome in known.values())
    return [known[seed] for seed in seeds]


def make_monitor(demos: Demos, neural: Policy[Any], *, fallback: bool) -> Monitor:
    """The monitor that knows the network's training data: the steps with the block on the left."""
    left = demos.where(demos.all_observations()[:, 2] < MIDDLE)
    service = Service(make_policy("default", left), false_alarm_rate=RATE)
    if not fallback:
        return Monitor(service, after=AFTER)
    whole = make_policy("default", demos, [f"n_action_steps={max(12, neural.config.n_action_steps)}"])
    return Monitor(service, then="fallback", after=AFTER, fallback=Service(whole))


def starts_beyond(demos: Demos) -> tuple[int, int]:
    """How many demonstrations with the block on the left begin beyond the threshold for all moments, if left out."""
    left = demos.where(demos.all_observations()[:, 2] < MIDDLE)
    layouts = left.observation_layout, left.action_layout
    threshold = measure_familiarity(ClosedFormPolicy(left), RATE).threshold
    starts, beyond = {episode.observations[0].tobytes() for episode in demos}, []
    for episode in left:
        if episode.observations[0].tobytes() in starts:
            others = ClosedFormPolicy(Demos([one for one in left if one is not episode], *layouts, left.rate))
            beyond.append(others.plan(episode.observations[0], seed=0).distance > threshold)
    return sum(beyond), len(beyond)


def run_episode(address: str, seed: int) -> Outcome:
    """An episode of a robot that asks over the network."""
    environment = PushT()
    observation = environment.reset(seed)
    asked, left, lasted, steps, score, success, done = [], [], [], 0, 0.0, False, False
    with Client(address, timeout=600.0) as client:
        client.reset(seed)
        window = [observation] * client.metadata["n_obs_steps"]
        while not done:
            reply = client.infer(np.stack(window))
            asked.append(steps)
            left.append(bool(observation[2] < MIDDLE))
            lasted.append(int(reply["monitor"]["lasted"]))
            for action in reply["actions"][: client.metadata["n_execute"]]:
                step = environment.step(action)
                observation, steps = step.observation, steps + 1
                window = [*window[1:], observation]
                score, success = max(score, float(step.score or 0.0)), success or step.success
                done = step.done or steps >= environment.max_steps
                if done:
                    break
    return Outcome(seed, score, success, steps, asked, left, lasted, provenance.commit())


def _seeds(right: bool, n: int) -> Iterator[int]:
    """The first seeds whose episode starts with the block on one side."""
    seed, environment = FIRST_SEED, PushT()
    while n:
        if bool(environment.reset(seed)[2] > MIDDLE) == right:
            yield seed
            n -= 1
        seed += 1


def _path(runner: Runner, case: str, seed: int) -> Any:
    return runner.work / f"{case}_{seed}.json"


def _read(runner: Runner, case: str, seed: int) -> Outcome:
    path = _path(runner, case, seed)
    try:
        return Outcome(**read_json(path, "an outcome of the study"))
    except TypeError as error:
        raise LoadError(f"{path}: expected an outcome of the study, found {error}; remove it") from error


def summarize(case: str, outcomes: list[Outcome]) -> dict[str, Any]:
    """A row of the table: rates with 95% intervals."""
    failures = [outcome for outcome in outcomes if not outcome.success]
    successes = [outcome for outcome in outcomes if outcome.success]
    alarms = np.array([sum(n > 0 for n in each.lasted) for each in outcomes])
    counts = np.array([len(each.lasted) for each in outcomes])
    inside = np.array([sum(n > 0 for n, at in zip(each.lasted, each.left, strict=True) if at) for each in outcomes])
    inside_counts = np.array([sum(each.left) for each in outcomes])
    scores = np.array([each.score for each in outcomes])
    ahead = [each.steps - each.announced for each in failures if each.announced is not None]
    row: dict[str, Any] = {"case": case, "episodes": len(outcomes), "score": float(scores.mean())}
    row["score_low"], row["score_high"] = bootstrap_ci95(scores)
    for name, n, of in (
        ("success", len(successes), len(outcomes)),
        ("first", sum(each.lasted[0] > 0 for each in outcomes), len(outcomes)),
        ("second", sum(each.lasted[1] > 0 for each in outcomes), len(outcomes)),
        ("announced", len(ahead), len(failures)),
        ("disturbed", sum(each.announced is not None for each in successes), len(successes)),
    ):
        row[f"{name}_n"], row[f"{name}_of"], row[name] = n, of, n / of if of else float("nan")
        row[f"{name}_low"], row[f"{name}_high"] = wilson_ci95(n, of) if of else (0.0, 1.0)
    for name, parts, wholes in (("alarms", alarms, counts), ("alarms_left", inside, inside_counts)):
        row[name] = float(parts.sum() / max(wholes.sum(), 1))
        row[f"{name}_low"], row[f"{name}_high"] = ratio_ci95(parts, wholes)
    row["steps_ahead"] = float(np.median(ahead)) if ahead else float("nan")
    return row


def write(runner: Runner, found: dict[str, list[Outcome]], starts: tuple[int, int]) -> None:
    """Writes tables and the page.

    Args:
        runner: of the study.
        found: the outcomes of each case.
        starts: how many starts of left-out demonstrations are beyond the threshold, and of how many.
    """
    rows = [summarize(case, outcomes) for case, outcomes in found.items()]
    runner.write_csv("monitor", rows)
    runner.write_csv(
        "episodes",
        [
            {"case": case, **{name: getattr(each, name) for name in ("seed", "score", "success", "steps", "announced")}}
            for case, outcomes in found.items()
            for each in outcomes
        ],
    )
    by_case = {row["case"]: row for row in rows}

    def share(row: dict[str, Any], name: str) -> str:
        return f"{row[name]:.3f} [{row[f'{name}_low']:.3f}, {row[f'{name}_high']:.3f}]"

    def of(row: dict[str, Any], name: str) -> str:
        return f"{row[f'{name}_n']} of {row[f'{name}_of']}, {share(row, name)}"

    watched = [by_case[case] for case in ("familiar", "novel")]
    alarms = [
        [row["case"], of(row, "first"), of(row, "second"), share(row, "alarms_left"), share(row, "alarms")]
        for row in watched
    ]
    heads = ["starts", "at the first observation", "at the second", "with the block on the left", "at all observations"]
    failures = [
        [row["case"], of(row, "success"), of(row, "announced"), f"{row['steps_ahead']:.0f}", of(row, "disturbed")]
        for row in watched
    ]
    help_ = [[case, share(by_case[case], "score"), of(by_case[case], "success")] for case in ("novel", "fallback")]
    cases = "\n".join(f"- *{case}*: {what};" for case, what in CASES.items())
    n = by_case["familiar"]["episodes"]
    low, high = wilson_ci95(*starts)
    text = f"""# A monitor for a network

Made by `{runner.command}`; [origin.json](origin.json) records versions and machine. The network `{NEURAL}` in
the package was trained on Push-T with the block in the left half. Here it is served (`closedform serve`),
`closedform monitor` in front of it knows the demonstrations with the block on the left, and robots ask over the
network, {N_TOGETHER} at once. {n} episodes for each case, the first seeds from {FIRST_SEED} on that start there:

{cases}

each with 95% intervals (over episodes). The stated false-alarm rate is {RATE:g}.

## False alarms

{markdown_table(heads, alarms)}

The rate is stated for first observations, which are compared with the first ones of left-out demonstrations, and for
all moments of an episode of the kind that was demonstrated. Starts are farther from each other than what follows: of
the demonstrations themselves, {starts[0]} of {starts[1]} would begin beyond the threshold for all moments if they are
left out, {starts[0] / starts[1]:.3f} [{low:.3f}, {high:.3f}]. The second observation, a chunk later, is judged by that
threshold although much of the scene is still as it started. And what a network does is not quite what people did; where
it pushes the block over the middle it leaves what it knows.

## Failures announced

An episode fails if the outline is not covered within 300 steps, which is known only at its end. It is announced once
the alarm has lasted for {AFTER} observations in a row.

{markdown_table(["starts", "success", "failures announced", "steps ahead, median", "successes announced"], failures)}

## Falling back

{markdown_table(["case", "score", "success"], help_)}
"""
    write_file(runner.output / "README.md", text)
    runner.write_origin(seeds=f"from {FIRST_SEED}", false_alarm_rate=RATE, after=AFTER)
