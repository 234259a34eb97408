"""The paper's experiment on guidance: a neural policy is guided to go around the head of the T clockwise."""

from __future__ import annotations

from typing import Any

import numpy as np

from closedform.demos.load import load_demos
from closedform.editing.edited_policy import demonstrations_for
from closedform.editing.guided_policy import GuidedPolicy
from closedform.evaluation.comparison import compare
from closedform.evaluation.evaluation_result import EvaluationResult
from closedform.evaluation.intervals import ratio_ci95
from closedform.evaluation.pusht import PushT
from closedform.evaluation.rollout import Rollout
from closedform.evaluation.study import Study
from closedform.evaluation.turns import CENTER, Turn, clockwise_steps, find_turns
from closedform.figures import COLORS, QUIET, pyplot
from closedform.files import write_file
from closedform.neural.policy import NeuralPolicy
from studies.runner import Runner, figures_of, interval, markdown_table

ENV = DEMOS = "pusht"
NEURAL = "pusht-dit"
N_EPISODES = 500
N_STUDY, STUDY_SEED = 150, 20_000  # for choosing parameters; results are reported on other seeds
STRENGTHS, CUT_OFFS = (0.5, 1.0, 2.0, 4.0), (0, 5, 10, 30)
CHOSEN = (0.5, 2)  # meets the condition often enough without losing the precision of the last steps
REPORTED = {"neural": ("pre-trained network", "0.90"), "conditional": ("conditional closed form", "0.79")}
REPORTED["guided"] = ("guided network", "0.88")


def run(runner: Runner) -> None:
    """Runs the missing evaluations and writes docs/results/guidance."""
    results = runner.run_all(studies(runner.device))
    if not results:
        return
    rows = [{"key": key, **figures_of(found), **turns_of(found)} for key, found in results.items()]
    runner.write_csv("reported", [row for row in rows if row["key"] in REPORTED])
    study = [
        row | dict(zip(("w", "off_below"), _grid()[row["key"]], strict=True)) for row in rows if row["key"] in _grid()
    ]
    runner.write_csv("study", study)
    _draw_study(runner, study, next(row for row in rows if row["key"] == "neural_study"))
    _draw_chunks(runner)
    _write_page(runner, results, {row["key"]: row for row in rows})
    runner.write_origin(
        demonstrations=results["conditional"].subject.demos, seeds=f"100000 to {100000 + N_EPISODES - 1}"
    )


def studies(device: str) -> dict[str, Study]:
    """All evaluations by key."""
    neural, guided, conditional = make_policies(device)
    reported = {"n_episodes": N_EPISODES, "describe": describe}
    chosen = {"n_episodes": N_STUDY, "seed": STUDY_SEED, "describe": describe}
    return {
        "neural": Study.of_policy(ENV, neural, NEURAL, **reported),
        "conditional": Study.of_policy(ENV, conditional, "conditional", DEMOS, **reported),
        "guided": Study.of_policy(ENV, guided(*CHOSEN), "guided", DEMOS, **reported),
        "neural_study": Study.of_policy(ENV, neural, NEURAL, **chosen),
        **{key: Study.of_policy(ENV, guided(*pair), key, DEMOS, **chosen) for key, pair in _grid().items()},
    }


def make_policies(device: str = "cpu") -> tuple[NeuralPolicy, Any, Any]:
    """The network, a function from strength and cut-off to the guided policy, and the conditional closed form."""
    neural, demos = NeuralPolicy.load(NEURAL).to(device), load_demos(DEMOS)
    everything = demonstrations_for(neural, demos)
    conditional = demonstrations_for(neural, demos.where(clockwise_steps(demos)))

    def guided(w: float, off_below: float) -> GuidedPolicy:
        return GuidedPolicy(neural, conditional, everything, w=w, off_below=off_below)

    return neural, guided, conditional


def describe(rollout: Rollout) -> dict[str, Any]:
    """The turns of an episode."""
    return {"turns": [[turn.step, round(turn.angle, 4), turn.n_steps] for turn in find_turns(rollout.observations)]}


def turns_of(results: EvaluationResult) -> dict[str, Any]:
    """How often the condition was met, over all decided turns."""
    episodes = [[turn for turn in (Turn(*t) for t in row.extra["turns"]) if turn.n_steps] for row in results.episodes]
    judged = [[turn for turn in turns if turn.decided] for turns in episodes]
    met, n = np.array([sum(t.clockwise for t in turns) for turns in judged]), np.array([len(t) for t in judged])
    low, high = ratio_ci95(met, n)
    return {
        "met": round(float(met.sum() / max(n.sum(), 1)), 4),
        "met_low": round(low, 4),
        "met_high": round(high, 4),
        "turns": int(n.sum()),
        "cut_short": sum(map(len, episodes)) - int(n.sum()),
    }


def _grid() -> dict[str, tuple[float, int]]:
    pairs = [*((w, off) for w in STRENGTHS for off in CUT_OFFS), CHOSEN]
    return {f"study_w{w:g}_off{off}": (w, off) for w, off in pairs}


def _draw_study(runner: Runner, rows: list[dict[str, Any]], unguided: dict[str, Any]) -> None:
    figure, axes = pyplot().subplots(1, 2, figsize=(11, 4), layout="constrained")
    for axis, what, label in ((axes[0], "met", "condition met"), (axes[1], "score", "score")):
        for color, off in zip(COLORS, sorted({row["off_below"] for row in rows}), strict=False):
            own = [row for row in rows if row["off_below"] == off]
            x = [row["w"] for row in own]
            axis.plot(
                x,
                [row[what] for row in own],
                "o-" if len(own) > 1 else "D",
                color=color,
                label=f"off at {off} and below",
            )
            bounds = [[row[f"{what}_{bound}"] for row in own] for bound in ("low", "high")]
            axis.fill_between(x, *bounds, color=color, alpha=0.08, linewidth=0)
        axis.axhline(unguided[what], color=QUIET, linewidth=1, linestyle=":")
        axis.set(xscale="log", xlabel="strength of guidance w", ylabel=label, ylim=(0, 1.03))
        axis.set_xticks(STRENGTHS, [f"{w:g}" for w in STRENGTHS])
        axis.minorticks_off()
    axes[0].legend(loc="lower right")
    axes[0].set_title("dotted: without guidance; bands: 95%")
    runner.write_figure("study", figure)


def _draw_chunks(runner: Runner, n_samples: int = 48) -> None:
    """The paper's figure: plans of the three policies where the network goes around either way."""
    neural, guided, conditional = make_policies()
    window = _undecided(neural)
    environment, rows = PushT(), []
    picture = environment.picture(window[-1])
    figure, axes = pyplot().subplots(1, 3, figsize=(11, 4.1), layout="constrained")
    policies = {"neural": neural, "conditional": conditional, "guided": guided(*CHOSEN)}
    for axis, (key, policy) in zip(axes, policies.items(), strict=True):
        chunks = policy.sample(np.repeat(window[None], n_samples, axis=0), seed=0)[:, 0]
        axis.imshow(picture, extent=environment.extent, alpha=0.6)
        for sample, chunk in enumerate(chunks):
            path = np.concatenate([window[-1:, :2], chunk])
            axis.plot(path[:, 0], path[:, 1], color=COLORS[0], linewidth=0.9, alpha=0.45)
            rows += [
                {"policy": key, "sample": sample, "step": t, "x": round(x, 2), "y": round(y, 2)}
                for t, (x, y) in enumerate(path.tolist())
            ]
        axis.set(xlim=(120, 400), ylim=(400, 120), xticks=[], yticks=[], title=REPORTED[key][0])
    runner.write_csv("chunks", rows)
    runner.write_figure("chunks", figure)


def _undecided(neural: NeuralPolicy, n_samples: int = 16) -> np.ndarray:
    """The observations (2, 5) at which the network is least decided, of those where demonstrations turned wrong."""
    moments = np.stack(
        [
            episode.observations[turn.step - 1 : turn.step + 1]
            for episode in load_demos(DEMOS)
            for turn in find_turns(episode.observations)
            if turn.step and turn.decided and not turn.clockwise
        ]
    )
    chunks = neural.with_sampling("ddim", 10).sample(moments, n_samples, seed=0)
    path = np.concatenate([np.repeat(moments[:, None, -1:, :2], n_samples, axis=1), chunks], axis=2) - CENTER
    angles = np.unwrap(np.arctan2(path[..., 1], path[..., 0]), axis=2)
    return moments[np.argmax(np.std(angles[..., -1] - angles[..., 0], axis=1))]


def _write_page(runner: Runner, results: dict[str, EvaluationResult], rows: dict[str, dict[str, Any]]) -> None:
    table = []
    for key, (label, paper) in REPORTED.items():
        row, difference = rows[key], compare(results["neural"], results[key])
        low, high = difference.score_ci95
        table.append(
            [
                label,
                paper,
                interval(row, "score"),
                "" if key == "neural" else f"{difference.score:+.3f} [{low:+.3f}, {high:+.3f}]",
                interval(row, "success"),
                f"{interval(row, 'met')} of {row['turns']}",
                str(row["cut_short"]),
            ]
        )
    head = [
        "policy",
        "the paper's score",
        "score [95%]",
        "minus the network, paired",
        "success [95%]",
        "condition met [95%]",
        "turns cut short",
    ]
    study = [
        [
            f"{w:g}",
            str(off),
            *(interval(rows[key], what) for what in ("score", "success", "met")),
            str(results[key].origin.commit),
        ]
        for key, (w, off) in _grid().items()
    ]
    text = f"""# Guidance

Made by `{runner.command}`; [origin.json](origin.json) records versions and machine. A network trained on 206 human
demonstrations of Push-T ([model card](../../models.md)) goes around the head of the T in either direction.
Demonstrations of clockwise turns guide it at inference time (strength {CHOSEN[0]:g}, off at the last {CHOSEN[1]}
of 100 noise levels). {N_EPISODES} episodes from seed 100000.

{markdown_table(head, table)}

*Condition met*: whenever the agent comes within 50 px of the center of the head while the block is within 30 px of its
goal position, its angle about the center of the screen is tracked for 30 steps; a clockwise turn by more than 0.25 rad
meets the condition. Intervals are from the bootstrap over episodes. A turn is *cut short* if the episode ends before
the agent has turned by 0.25 rad in either direction; it is not counted. The demonstrations of the wanted behavior are
all steps except the 30 that follow a step at the head without a clockwise turn, where "at the head" is within 75 px of
its center with the block within 40 px of its goal position. With the 50 and 30 px of the condition, demonstrations of
wrong turns that start just outside this region would be the nearest ones just inside it, and be imitated.

![Plans of the three policies where the network goes around either way](chunks.png)

## Strength and cut-off

{N_STUDY} episodes from seed {STUDY_SEED}, on which strength and cut-off were chosen.

{markdown_table(["w", "off at and below", "score [95%]", "success [95%]", "condition met [95%]", "commit"], study)}

![Condition and score against the strength of guidance](study.png)

The data of each figure are in the CSV file of the same name.
"""
    write_file(runner.output / "README.md", text)
