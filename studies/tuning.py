"""How well the leave-one-out error agrees with rollouts: rank correlation over random configurations."""

from __future__ import annotations

from typing import Any

import numpy as np

from closedform.analysis.tune import QUICK, Tuning, prediction_errors, tune
from closedform.demos.load import load_demos
from closedform.evaluation.comparison import compare
from closedform.evaluation.evaluation_result import EvaluationResult
from closedform.figures import COLORS, pyplot
from closedform.files import write_file
from closedform.policies.choice import make_policy
from closedform.policies.closed_form import ClosedFormPolicy
from closedform.policies.config import ClosedFormConfig
from studies.runner import Runner, figures_of, markdown_table

ENV, DEMOS = "pusht", "pusht"
N_CONFIGURATIONS, N_EPISODES, SEED = 40, 100, 10000  # seeds that no result is reported on
N_CHECK = 500
SPACE: dict[str, tuple[Any, ...]] = {
    "n_obs_steps": (1, 2, 3),
    "n_action_steps": (8, 12, 16, 24),
    "bandwidth": (0.01, 0.02, 0.045, 0.09, 0.2, 0.4, 0.8, 1.6),
    "tau": (0.0, 0.01, 0.03, 0.07, 0.15, 0.3),
    "n_neighbors": (50, 200, 500, 1000, 2000, 5000),
}
PRESETS = {"paper": COLORS[0], "default": COLORS[1]}


def run(runner: Runner) -> None:
    """Runs the missing evaluations and writes docs/results/tuning."""
    demos = load_demos(DEMOS)
    rows = []
    for i, settings in enumerate(_configurations()):
        for preset in PRESETS:
            own = [
                *settings.items(),
                *([("n_execute", min(12, settings["n_action_steps"]))] if preset == "paper" else []),
            ]
            words = [f"{name}={value}" for name, value in own]
            found = runner.evaluate(f"{preset}_{i}", ENV, DEMOS, preset, words, seed=SEED, n_episodes=N_EPISODES)
            policy = make_policy(preset, demos, [*words, *(f"{name}={value}" for name, value in QUICK.items())])
            assert isinstance(policy, ClosedFormPolicy)
            error = round(float(prediction_errors(policy).mean()), 5)
            rows.append({"preset": preset, **settings, "prediction_error": error, **figures_of(found)})
    runner.write_csv("tuning", rows)
    tunings = {preset: tune(demos, ClosedFormConfig.preset(preset), workers=runner.where) for preset in PRESETS}
    checks = {preset: _check(runner, preset, tuning) for preset, tuning in tunings.items()}
    _draw(runner, rows)
    _write(runner, rows, tunings, checks)
    runner.write_origin(seeds=f"{SEED} to {SEED + N_EPISODES - 1}; 100000 to {100000 + N_CHECK - 1} for the last table")


def _configurations() -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    return [
        {name: values[rng.integers(len(values))] for name, values in SPACE.items()} for _ in range(N_CONFIGURATIONS)
    ]


def _check(runner: Runner, preset: str, tuning: Tuning) -> tuple[EvaluationResult, EvaluationResult]:
    """The preset before and after tuning, on the same episodes."""
    config = tuning.best.config
    words = [f"{name}={getattr(config, name)}" for name in (*SPACE, "n_execute")]
    before = runner.evaluate(f"check_{preset}", ENV, DEMOS, preset, n_episodes=N_CHECK)
    after = runner.evaluate(f"check_{preset}_tuned", ENV, DEMOS, preset, words, n_episodes=N_CHECK)
    return before, after


def _correlation(rows: list[dict[str, Any]], what: str) -> tuple[float, float, float]:
    """Spearman's rank correlation of smaller errors with better rollouts, with a bootstrap interval."""
    errors, found = np.array([-row["prediction_error"] for row in rows]), np.array([row[what] for row in rows])

    def of(chosen: np.ndarray) -> float:
        return float(np.corrcoef(_ranks(errors[chosen]), _ranks(found[chosen]))[0, 1])

    rng = np.random.default_rng(0)
    resampled = [of(rng.integers(len(rows), size=len(rows))) for _ in range(2000)]
    low, high = np.quantile(resampled, (0.025, 0.975))
    return of(np.arange(len(rows))), float(low), float(high)


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks; ties get their average rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


def _draw(runner: Runner, rows: list[dict[str, Any]]) -> None:
    plt = pyplot()
    figure, axes = plt.subplots(2, 2, figsize=(10.5, 7.5), layout="constrained")
    for line, (preset, color) in zip(axes, PRESETS.items(), strict=True):
        own = [row for row in rows if row["preset"] == preset]
        for axis, what in zip(line, ("score", "success"), strict=True):
            x, y = [row["prediction_error"] for row in own], [row[what] for row in own]
            reach = [[row[what] - row[f"{what}_low"] for row in own], [row[f"{what}_high"] - row[what] for row in own]]
            axis.errorbar(x, y, yerr=reach, fmt="o", color=color, markersize=4, linewidth=0.8, alpha=0.7)
            rho, low, high = _correlation(own, what)
            axis.set(xlabel="leave-one-out error", ylabel=f"{what} in rollouts")
            axis.set_title(f"{preset}: rank correlation {rho:+.2f} [{low:+.2f}, {high:+.2f}]")
    runner.write_figure("tuning", figure)


def _write(
    runner: Runner,
    rows: list[dict[str, Any]],
    tunings: dict[str, Tuning],
    checks: dict[str, tuple[EvaluationResult, EvaluationResult]],
) -> None:
    correlations = []
    for preset in PRESETS:
        own = [row for row in rows if row["preset"] == preset]
        fewer = [row for row in own if row["n_obs_steps"] < 3]
        for label, chosen in ((preset, own), (f"{preset}, at most two observations", fewer)):
            cells = ["{:+.2f} [{:+.2f}, {:+.2f}]".format(*_correlation(chosen, what)) for what in ("score", "success")]
            correlations.append([label, str(len(chosen)), *cells])
    outcomes = []
    for preset, (before, after) in checks.items():
        c = compare(before, after)
        best = tunings[preset].best.config
        changes = [
            f"{name} {getattr(tunings[preset].start.config, name)} → {getattr(best, name)}"
            for name in SPACE
            if getattr(best, name) != getattr(tunings[preset].start.config, name)
        ]
        outcomes.append(
            [
                preset,
                ", ".join(changes) or "nothing",
                *(f"{found.score.mean:.3f} / {found.success.mean:.3f}" for found in (before, after)),
                f"{c.score:+.3f} [{c.score_ci95[0]:+.3f}, {c.score_ci95[1]:+.3f}]",
                f"{c.success:+.3f} [{c.success_ci95[0]:+.3f}, {c.success_ci95[1]:+.3f}]",
            ]
        )
    text = f"""# Tuning without an environment

Made by `{runner.command}`; [origin.json](origin.json) records versions and machine. `closedform tune` ranks
configurations by their leave-one-out error. Does that ranking agree with rollouts? {N_CONFIGURATIONS} random
configurations of each preset (bandwidth, tau, n_neighbors, n_obs_steps, n_action_steps) were run for {N_EPISODES}
episodes each on Push-T.

Spearman's rank correlation of a smaller leave-one-out error with better rollouts, with 95% intervals:

{markdown_table(["preset", "configurations", "with score", "with success"], correlations)}

![Leave-one-out error against rollouts](tuning.png)

Each preset before and after `tune`, over the same {N_CHECK} episodes:

{markdown_table(["preset", "changed", "score / success before", "after", "score", "success"], outcomes)}

Interpret this with care. Predicting the next action of a demonstrator is not the same as accomplishing the task: past
motion is highly predictive of the next action, so that longer histories predict better but act worse (de Haan et al.,
*Causal Confusion in Imitation Learning*, 2019), which is why `tune` tries at most two observations. Loops, and the
remedies against them, do not show in predictions at all.
"""
    write_file(runner.output / "README.md", text)
