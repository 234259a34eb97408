"""Corrections in the studio against plain demonstrations, by a scripted person who only has a mouse and a browser."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from closedform.demos.demos import Demos
from closedform.demos.load import load_demos
from closedform.evaluation.comparison import compare
from closedform.evaluation.evaluation_result import EvaluationResult
from closedform.evaluation.study import Study
from closedform.figures import COLORS, pyplot
from closedform.files import write_file
from closedform.policies.choice import make_policy
from studies.runner import Runner, figures_of, interval, markdown_table
from studies.studio.browser import collect
from studies.studio.person import PATIENCE

ENV = "pusht"
N_FIRST, N_ALL, COUNTS = 15, 45, (5, 15, 25, 35, 45)
N_EPISODES, SEED = 100, 100_000
FIRST_SEED, PERSON = 0, 0  # of the person's episodes
KINDS = {"plain": "plain demonstrations", "corrected": "15 demonstrations, then corrections"}


def run(runner: Runner) -> None:
    """Has the person demonstrate and correct, evaluates what that gave, and writes docs/results/studio."""
    plain = collect(runner.work / "plain", FIRST_SEED, N_ALL, person=PERSON, patient=False)
    first = plain[:N_FIRST]
    _begin_with(runner.work / "plain", runner.work / "corrected", first[-1]["files"])
    more = {"person": PERSON, "patient": True, "given": first[-1]["files"]}
    corrected = collect(runner.work / "corrected", FIRST_SEED + N_FIRST, N_ALL - N_FIRST, **more)
    done = {"plain": plain, "corrected": [*first, *corrected]}
    runner.commits.update(str(episode["commit"]) for episodes in done.values() for episode in episodes)
    rows, results = [], {}
    for kind, episodes in done.items():
        for count in COUNTS:
            if kind == "corrected" and count <= N_FIRST:
                results[kind, count] = results["plain", count]
                continue
            demos = snapshot(runner.work / kind, episodes[count - 1]["files"])
            key = f"{kind}_{count}"
            study = Study.of_policy(
                ENV, make_policy("default", demos), "default", key, n_episodes=N_EPISODES, seed=SEED
            )
            results[kind, count] = runner.run(key, study)
            rows.append(
                {
                    "kind": kind,
                    "person_episodes": count,
                    "recorded_episodes": len(demos),
                    "minutes_driven": round(len(demos.all_actions()) / 60 / (demos.rate or 1), 2),
                    **figures_of(results[kind, count]),
                }
            )
    runner.write_csv("studio", rows)
    _draw(runner, rows)
    _write(runner, rows, results, done)
    runner.write_origin(seeds=f"{SEED} to {SEED + N_EPISODES - 1}", person_seeds=f"{FIRST_SEED} to {N_ALL - 1}")


def snapshot(folder: Path, files: list[str]) -> Demos:
    """The demonstrations that a folder had when these were its files."""
    demos = load_demos(folder)
    names = sorted(path.name for path in folder.glob("episode_*.safetensors"))
    kept = [demos[names.index(name)] for name in files]
    return Demos(kept, demos.observation_layout, demos.action_layout, demos.rate)


def _begin_with(source: Path, target: Path, files: list[str]) -> None:
    """Copies the first demonstrations, so that both ways begin with the same ones."""
    if target.exists():
        return
    part = target.with_name(target.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    for name in (*files, "demos.json"):
        shutil.copyfile(source / name, part / name)
    part.rename(target)


def _draw(runner: Runner, rows: list[dict[str, Any]]) -> None:
    figure, axes = pyplot().subplots(1, 2, figsize=(10.5, 4.2), layout="constrained", sharey=True)
    shared = [row for row in rows if row["kind"] == "plain" and row["person_episodes"] == N_FIRST]
    for (kind, label), color in zip(KINDS.items(), COLORS, strict=False):
        own = [row for row in rows if row["kind"] == kind]
        own = shared + own if kind == "corrected" else own
        for axis, x in zip(axes, ("person_episodes", "minutes_driven"), strict=True):
            at = [row[x] for row in own]
            axis.plot(at, [row["success"] for row in own], "o-", color=color, label=label)
            bounds = [[row[f"success_{bound}"] for row in own] for bound in ("low", "high")]
            axis.fill_between(at, *bounds, color=color, alpha=0.12, linewidth=0)
    axes[0].set(xlabel="episodes with the person", ylabel="success from 100 other starts", ylim=(0, 1.03))
    axes[1].set(xlabel="minutes that the person drove")
    axes[0].legend(loc="lower right")
    axes[0].set_title("bands: 95%")
    runner.write_figure("studio", figure)


def _write(
    runner: Runner,
    rows: list[dict[str, Any]],
    results: dict[tuple[str, int], EvaluationResult],
    done: dict[str, list[dict[str, Any]]],
) -> None:
    of = {(row["kind"], row["person_episodes"]): row for row in rows}
    table = []
    for count in COUNTS:
        plain, corrected = of["plain", count], of.get(("corrected", count))
        difference = compare(results["plain", count], results["corrected", count])
        low, high = difference.success_ci95
        table.append(
            [
                str(count),
                interval(plain, "success"),
                "the same" if corrected is None else interval(corrected, "success"),
                "" if corrected is None else f"{difference.success:+.2f} [{low:+.2f}, {high:+.2f}]",
                f"{plain['minutes_driven']:.1f}",
                "" if corrected is None else f"{corrected['minutes_driven']:.1f}",
            ]
        )
    head = [
        "episodes",
        "plain, success [95%]",
        "corrected, success [95%]",
        "corrected minus plain, paired",
        "minutes driven, plain",
        "minutes driven, corrected",
    ]
    ends = [
        [KINDS[kind], str(count), *(str(n) for n in _failures(results[kind, count]))]
        for kind in KINDS
        for count in COUNTS
        if (kind, count) in of
    ]
    alone = _alone(done["corrected"])
    text = f"""# Corrections in the studio

Made by `{runner.command}`; [origin.json](origin.json) records versions and machine. A scripted person sits at the page
of `closedform studio` in Chromium and has a mouse and a keyboard, nothing else: it sees the poses that the page
draws, holds the mouse and moves it, at the environment's 10 steps per second. It pushes the T with the straight push
that seems to bring it home fastest, with an unsteady hand and a varying taste (`studies/studio/pusher.py`).

*Plain*: {N_ALL} demonstrations from nothing. *Corrected*: the first {N_FIRST} of them; then, in {N_ALL - N_FIRST} more
episodes from the same starts, the policy drives, and where the T comes no nearer for {PATIENCE / 10:g} s the person
takes over and drives until it is solved. Success is over {N_EPISODES} other starts, seeds from {SEED}.

{markdown_table(head, table)}

![Success against the number of episodes and against the time that the person drove](studio.png)

In its {N_ALL - N_FIRST} episodes with the person watching, the policy needed no help in {", ".join(alone)}.
The person did not see {_missed(done["plain"]):.1%} of the steps of plain demonstrations in time and
{_missed(done["corrected"][N_FIRST:]):.1%} of those with corrections. If that is more than a few percent, the machine
was busy, the hand slow, and the comparison says little.

{_per_minute(rows)} An episode that the policy solves alone records nothing and still counts among the person's, so
the minutes compare the two ways better than the episodes do.

How the runs that failed ended, by the largest part of the outline that the T covered (a score of 1 is 95%):

{markdown_table(["", "episodes", "failed", "score 0.9 or more", "score below 0.5"], ends)}
"""
    write_file(runner.output / "README.md", text)


def _per_minute(rows: list[dict[str, Any]]) -> str:
    """What corrections and plain demonstrations reach in the same time at the mouse, in one sentence."""
    plain = sorted((row["minutes_driven"], row["success"]) for row in rows if row["kind"] == "plain")
    last = max((row for row in rows if row["kind"] == "corrected"), key=lambda row: row["person_episodes"])
    minutes = last["minutes_driven"]
    driven, reached = zip(*plain, strict=True)
    same = float(np.interp(minutes, driven, reached))
    return (
        f"In {minutes:.1f} minutes at the mouse, corrections included, the person's policy came to a success of "
        f"{last['success']:.2f}; plain demonstrations of as many minutes, interpolated, come to {same:.2f}."
    )


def _failures(found: EvaluationResult) -> tuple[int, int, int]:
    """The number of runs that failed, those of them that were nearly there, and those that were far from it."""
    scores = [episode.score for episode in found.episodes if not episode.success]
    return len(scores), sum(score >= 0.9 for score in scores), sum(score < 0.5 for score in scores)


def _missed(episodes: list[dict[str, Any]]) -> float:
    """The share of steps that the person did not see in time."""
    return sum(episode["missed"] for episode in episodes) / sum(episode["steps"] for episode in episodes)


def _alone(episodes: list[dict[str, Any]]) -> list[str]:
    """How often the policy drove alone, in each ten episodes."""
    found = []
    for first in range(N_FIRST, N_ALL, 10):
        before = [len(episode["files"]) for episode in episodes[first - 1 : first + 10]]
        n = sum(a == b for a, b in itertools.pairwise(before))
        found.append(f"{n} of episodes {first + 1} to {first + 10}")
    return found
