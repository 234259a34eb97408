"""The paper's experiment on an arm, in the twin: success from pictures, and what a cell must reach for it."""

from __future__ import annotations

import textwrap
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from closedform.demos.load import load_demos
from closedform.errors import ConfigError
from closedform.evaluation.episode_result import EpisodeResult
from closedform.evaluation.evaluation_result import EvaluationResult
from closedform.evaluation.intervals import wilson_ci95
from closedform.evaluation.pusht import THRESHOLD
from closedform.evaluation.rollout import Rollout
from closedform.evaluation.study import Study
from closedform.figures import COLORS, QUIET, png, pyplot
from closedform.files import write_file
from closedform.policies.choice import make_policy
from closedform.robot.twin.block import BAR, STEM, coverage
from closedform.robot.twin.environment import Twin
from closedform.robot.twin.settings import TwinSettings
from closedform.vision.markers import draw_markers
from studies.robot_recording import record_demonstrations
from studies.runner import Runner, figures_of, interval, markdown_table

EMBEDDED, PAPER = "pusht-embedded", "pusht"
BASE = f"images_{EMBEDDED}_default"
RECORDED = "recorded"  # in the twin, by the default policy through the runner
N_EPISODES, N_PAPER, N_ROBUST = 200, 25, 50
N_LEAST = 15  # episodes of an evaluation that is reported in part
N_RECORDED, RECORDING_SEED = 60, 50_000
PRESETS = {"paper": COLORS[0], "default": COLORS[1]}
WALLS = (5.0, 506.0)  # millimeters: where gym-pusht has them, and the table has none
CLOSE = 0.9  # of the outline covered at best, in an episode that failed
FAILURES = ("edge", "close", "loop", "other")


class Factor(NamedTuple):
    """What is varied.

    Attributes:
        setting: of the twin.
        values: in the order of difficulty; the twin's own, or the middle of its range, is the first episodes of the
            main evaluation.
        title, unit: words for it.
    """

    setting: str
    values: tuple[float, ...]
    title: str
    unit: str

    def key(self, value: float) -> str:
        """The evaluation with a value."""
        own = np.mean(getattr(TwinSettings(), self.setting))
        return BASE if np.isclose(value, own) else f"robust_{self.setting}_{value:g}"


ROBUSTNESS = (
    Factor("dropout", (0.05, 0.6, 0.8, 0.9), "markers hidden in a picture", "probability"),
    Factor("calibration_mm", (0.0, 2.0, 4.0, 8.0, 16.0), "table away from its calibration", "mm"),
    Factor("calibration_deg", (0.0, 1.0, 2.0, 4.0, 8.0), "table turned from its calibration", "degrees"),
    Factor("latency", (0.05, 0.1, 0.2, 0.4), "latency of the camera", "s"),
    Factor("friction", (0.2, 0.4, 0.7), "friction of T and table", "coefficient"),
    Factor("stick_friction", (0.1, 0.6), "friction of T and stick", "coefficient"),
    Factor("noise", (4.0, 32.0), "noise of a pixel", "gray levels of 255"),
)


def run(runner: Runner) -> None:
    """Runs the missing evaluations and writes docs/results/robot."""
    if runner.development:
        _develop(runner)
        return
    runner.check_only(names())
    wanted = [key for key in names() if not runner.only or key in runner.only]
    if runner.partial:
        found = {key: runner.found(key, N_PAPER if key == BASE else N_LEAST) for key in names()}
        results = {key: one for key, one in found.items() if one is not None}
    else:
        results = {key: runner.run(key, study_of(runner, key)) for key in wanted}
    if runner.only:
        return
    if BASE not in results:
        raise ConfigError(f"expected results of {BASE} in {runner.work}, found none: run the study without --partial")
    rows = [row_of(key, results[key]) for key in results if not key.startswith("robust_")]
    robust = [
        {**row_of(one.key(value), _first(results[one.key(value)])), "setting": one.setting, "value": value}
        for one in ROBUSTNESS
        for value in one.values
        if one.key(value) in results
    ]
    runner.write_csv("robot", rows)
    runner.write_csv("robustness", robust)
    _draw(runner, robust)
    _draw_scene(runner)
    _write(runner, rows, robust)
    runner.write_origin(seeds=f"100000 to {100000 + N_EPISODES - 1}", recording_seeds=f"{RECORDING_SEED} and on")


def names() -> list[str]:
    """The keys of all evaluations."""
    main = [
        f"{kind}_{demos}_{preset}" for kind in ("images", "truth") for demos in (EMBEDDED, PAPER) for preset in PRESETS
    ]
    recorded = [f"images_{RECORDED}_{preset}" for preset in PRESETS]
    robust = [one.key(value) for one in ROBUSTNESS for value in one.values]
    return [*main, *recorded, *(key for key in robust if key != BASE)]


def study_of(runner: Runner, key: str, n_episodes: int | None = None) -> Study:
    """One of the evaluations; demonstrations that it needs are recorded first.

    Args:
        runner: of the study.
        key: one of `names()`.
        n_episodes: as many as are reported if None.
    """
    kind, rest = key.split("_", 1)
    first, last = rest.rsplit("_", 1)
    if kind == "robust":
        return _study(f"twin:{first}={last}", EMBEDDED, "default", n_episodes or N_ROBUST)
    demos = str(recorded(runner)) if first == RECORDED else first
    return _study("twin" if kind == "images" else "twin_truth", demos, last, n_episodes or N_EPISODES)


def _study(env: str, demos: str, preset: str, n_episodes: int) -> Study:
    policy = make_policy(preset, load_demos(demos), ())
    return Study.of_policy(env, policy, preset, demos, n_episodes=n_episodes, describe=describe)


def recorded(runner: Runner) -> Path:
    """The folder of demonstrations recorded in the twin; records the missing ones."""
    folder = runner.demos or runner.work / RECORDED
    policy = make_policy("default", load_demos(EMBEDDED), ())
    seeds = range(RECORDING_SEED, RECORDING_SEED + N_RECORDED)
    return record_demonstrations(policy, folder, seeds, workers=runner.n_workers)


def describe(rollout: Rollout) -> dict[str, Any]:
    """Where the T was at the end, and whether a runner, which knows only its observations, would have stopped.

    Returns:
        `beyond_walls`: how far the T was beyond gym-pusht's walls in the last five seconds, in millimeters (the median
        over time). `believed`: whether the task was done at an observation. `covered_then`: the fraction of the outline
        that was really covered at the first such observation, at most 0.95; None if there is none.
    """
    beyond = [beyond_walls(observation[2:]) for observation in rollout.observations[-50:]]
    seen = [coverage(1e-3 * x, 1e-3 * y, angle) > THRESHOLD for x, y, angle in rollout.observations[1:, 2:]]
    first = int(np.argmax(seen)) if any(seen) else None
    return {
        "beyond_walls": round(float(np.median(beyond)), 2),
        "believed": first is not None,
        "covered_then": None if first is None else round(THRESHOLD * float(rollout.scores[first]), 4),
    }


def beyond_walls(pose: np.ndarray) -> float:
    """How far the T reaches beyond the walls of gym-pusht at a pose (3,), in millimeters; negative inside."""
    x, y, angle = pose
    left, right = np.array([BAR, STEM])[:, [0, 2]].T * 1e3
    low, up = np.array([BAR, STEM])[:, [1, 3]].T * 1e3
    own = np.concatenate([np.column_stack(pair) for pair in ((left, low), (left, up), (right, low), (right, up))])
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    corners = own @ turn + [x, y]
    return float(max((WALLS[0] - corners).max(), (corners - WALLS[1]).max()))


def failure_of(row: EpisodeResult) -> str:
    """Why an episode failed: `edge` (where demonstrations lean on a wall), `close`, `loop` or `other`; else ""."""
    if row.success:
        return ""
    if row.extra["beyond_walls"] > 0:
        return "edge"
    if row.score * 0.95 >= CLOSE:
        return "close"
    return "loop" if row.loop else "other"


def row_of(key: str, results: EvaluationResult) -> dict[str, Any]:
    """The row of a table."""
    kinds = Counter(failure_of(row) for row in results.episodes)
    first = [row.success for row in results.episodes][:N_PAPER]
    then = [row.extra["covered_then"] for row in results.episodes if row.extra["believed"]]
    return {
        "key": key,
        **figures_of(results),
        "successes": sum(row.success for row in results.episodes),
        f"first_{N_PAPER}": sum(first),
        **{name: kinds[name] for name in FAILURES},
        "believed": len(then),
        "too_early": sum(covered < THRESHOLD for covered in then),
        "least_covered": min(then, default=None),
    }


def conditions(settings: TwinSettings) -> str:
    """What the twin does to a policy, in words."""
    friction, stick, mass = (
        f"{low:g} to {high:g}" for low, high in (settings.friction, settings.stick_friction, settings.mass)
    )
    return (
        f"pictures at {settings.fps:g} a second with a noise of {settings.noise:g} gray levels, a blur of "
        f"{settings.blur:g} pixels, an exposure of {1e3 * settings.exposure:g} ms and a latency of "
        f"{1e3 * settings.latency:g} ms; each marker is hidden in {settings.dropout:.0%} of them; for each episode a "
        f"friction of {friction} between T and table and {stick} between T and stick, and a mass of {mass} kg are drawn"
    )


def largest_that_works(rows: list[dict[str, Any]], usual: float) -> float | None:
    """The largest value up to which success stays within 0.05 of the usual one, all smaller values included."""
    found = None
    for row in rows:
        if row["success"] < usual - 0.05:
            break
        found = row["value"]
    return found


def _first(results: EvaluationResult) -> EvaluationResult:
    """The first episodes, as many as robustness is evaluated on."""
    subject = replace(results.subject, n_episodes=min(N_ROBUST, results.subject.n_episodes))
    episodes = [row for row in results.episodes if row.seed in subject.seeds]
    return EvaluationResult.of(subject, episodes, results.origin)


def _with_values(robust: list[dict[str, Any]]) -> list[tuple[Factor, list[dict[str, Any]]]]:
    """The factors that were varied, with their rows."""
    all_rows = [(one, [row for row in robust if row["setting"] == one.setting]) for one in ROBUSTNESS]
    return [(one, rows) for one, rows in all_rows if len(rows) > 1]


def _develop(runner: Runner) -> None:
    """A few episodes of each kind, printed."""
    for key, n in (
        ("truth_pusht-embedded_default", 10),
        ("truth_pusht-embedded_paper", 10),
        ("images_pusht-embedded_default", 5),
    ):
        found = runner.run(f"development_{key}", study_of(runner, key, n))
        print(row_of(key, found))


def _draw(runner: Runner, rows: list[dict[str, Any]]) -> None:
    figure, axes = pyplot().subplots(2, 4, figsize=(13, 6), layout="constrained", sharey=True)
    factors = _with_values(rows)
    for axis, (factor, own) in zip(axes.flat, factors, strict=False):
        at = range(len(own))
        low, high = ([row[f"success_{bound}"] for row in own] for bound in ("low", "high"))
        axis.fill_between(at, low, high, color=COLORS[1], alpha=0.12, linewidth=0)
        axis.plot(at, [row["success"] for row in own], "o-", color=COLORS[1])
        axis.set_xticks(at, [f"{row['value']:g}" for row in own])
        axis.set(title=factor.title, xlabel=factor.unit, ylim=(0, 1.03))
    for axis in axes[:, 0]:
        axis.set_ylabel("success")
    for axis in axes.flat[len(factors) :]:
        axis.axis("off")
    axes[-1, -1].text(0, 0.6, f"{_numbers(rows)} episodes each\nbands: 95%", color=QUIET)
    runner.write_figure("robustness", figure)


def _numbers(robust: list[dict[str, Any]]) -> str:
    """How many episodes the evaluations of robustness have."""
    counts = [row["episodes"] for row in robust]
    return f"{min(counts)} to {max(counts)}" if min(counts) < max(counts) else str(counts[0])


def _missing(rows: list[dict[str, Any]], robust: list[dict[str, Any]]) -> str:
    """What was not evaluated, in words."""
    missing = sorted(set(names()) - {row["key"] for row in (*rows, *robust)})
    sentences = [f"Not evaluated: {', '.join(f'`{key}`' for key in missing)}."] if missing else []
    if any(row["episodes"] < N_EPISODES for row in rows):
        sentences.append(f"Evaluations of fewer than {N_EPISODES} episodes are cut off, in the order of their seeds.")
    return " ".join(sentences)


def _draw_scene(runner: Runner) -> None:
    """The scene, and what the camera delivers with the markers that are found in it."""
    env = Twin()
    try:
        start = env.reset(100003)
        for step in range(12):
            env.step(start[2:4] + 8.0 * step)
        seen = draw_markers(env.station.camera.grab().pixels, env.station.perception.tracker.found)
        pictures = (env.render(), seen)
    finally:
        env.close()
    figure, axes = pyplot().subplots(1, 2, figsize=(12, 4.6), layout="constrained")
    for axis, picture, title in zip(
        axes, pictures, ("the twin", "what the camera delivers, with markers"), strict=True
    ):
        axis.imshow(picture)
        axis.axis("off")
        axis.set_title(title)
    write_file(runner.output / "scene.png", png(figure))


def _write(runner: Runner, rows: list[dict[str, Any]], robust: list[dict[str, Any]]) -> None:
    words = {"images": "rendered pictures", "truth": "the simulator"}
    cells = []
    for row in rows:
        kind, demos, preset = row["key"].split("_")
        low, high = wilson_ci95(row[f"first_{N_PAPER}"], min(N_PAPER, row["episodes"]))
        first = f"{row[f'first_{N_PAPER}']} of {min(N_PAPER, row['episodes'])} [{low:.2f}, {high:.2f}]"
        success = f"{interval(row, 'success')}, {row['successes']} of {row['episodes']}"
        failures = ", ".join(f"{row[name]} {name}" for name in FAILURES if row[name])
        verdict = f"{row['believed']}, {row['too_early']} too early"
        verdict += f" (at {row['least_covered']:.3f} or more)" if row["too_early"] else ""
        cells.append([words[kind], demos, preset, first, success, interval(row, "score"), failures, verdict])
    head = [
        "poses from",
        "demonstrations",
        "preset",
        f"first {N_PAPER}",
        "success of all",
        "score",
        "failures",
        "done by its own estimate",
    ]
    usual = next(row["success"] for row in robust if row["key"] == BASE)
    limits = []
    for factor, own in _with_values(robust):
        found = largest_that_works(own, usual)
        tried = ", ".join(
            f"{row['value']:g}: {row['success']:.2f} [{row['success_low']:.2f}, {row['success_high']:.2f}]"
            for row in own
        )
        limits.append([factor.title, "none" if found is None else f"{found:g} {factor.unit}", tried])
    text = f"""# The paper's robot, in the twin

Made by `{runner.command}`; [origin.json](origin.json) records versions and machines. The paper ran Push-T on a UR5e:
poses from markers, a policy at 10 Hz over a 200 Hz controller, 18 of 25 episodes successful, with failures where the
policy leaned on walls that the table does not have. Here a twin in MuJoCo stands in for that arm, under the conditions
of `closedform eval --env twin` and `closedform run --arm twin`: {conditions(TwinSettings())}.
The policies are those of Push-T, untouched; one pixel is one millimeter. Success is a true coverage of the outline
above {THRESHOLD:g} within 30 s. The last column says how often a runner, which sees only its own estimate, would have
ended an episode as done by then, and in how many of these the outline was not really covered to {THRESHOLD:g} yet; an
episode ends here as soon as it is, so that estimates which come to it a step later are not counted.

![The twin and its camera](scene.png)

{markdown_table(head, cells)}

`{EMBEDDED}` comes with the package, `{PAPER}` is the paper's data, `{RECORDED}` was recorded in the twin through the
runner, by the default policy from {N_RECORDED} other start states, poses from pictures. Failures: *edge*, the T ended
beyond the walls of the demonstrations; *close*, more than {CLOSE:g} of the outline were covered at some time; *loop*,
the same segment of a demonstration led again and again. {_missing(rows, robust)}

## What a cell must reach

Success against one flaw at a time ({_numbers(robust)} episodes each, preset `default`, `{EMBEDDED}`; in brackets 95%
intervals). The second column is the largest value up to which success stays within 0.05 of that of the twin as it is,
{usual:.2f}. The latency is known to perception, which makes up for it; the other flaws are not. Frictions of 0.4
(table) and 0.1 (stick) stand for the ranges that the twin draws them from.

{markdown_table(["flaw", "works up to", "success"], limits)}

![Success against each flaw](robustness.png)
"""
    write_file(runner.output / "README.md", _filled(text))


def _filled(text: str) -> str:
    """A page with lines of at most 120 letters, where they can be broken."""
    parts = text.strip().split("\n\n")
    wrapper = textwrap.TextWrapper(120, break_long_words=False, break_on_hyphens=False)
    return "\n\n".join(part if part.startswith(("|", "#", "!")) else wrapper.fill(part) for part in parts) + "\n"
