"""Symmetries found in demonstrations: how often, how often wrongly, and what they are worth on Push-T."""

from __future__ import annotations

from typing import Any

import numpy as np
from tqdm import tqdm

from closedform.demos.demos import Demos
from closedform.evaluation.environment import make_environment
from closedform.evaluation.intervals import bootstrap_ci95
from closedform.evaluation.study import Study, demos_for
from closedform.files import write_file
from closedform.policies.choice import make_policy
from closedform.policies.config import ClosedFormConfig
from closedform.policies.model_spec import show_symmetry
from studies.runner import Runner, markdown_table

ENV, DATA = "pusht", ("pusht", "pusht-embedded")
TURNED = (0, 15, 30, 45)  # degrees that the angle of the T is off; at 0 one of its own axes is its mirror
SIZES, N_SETS = (10, 25, 50), 20  # of demonstrations, and how many sets at most
ROLLED_OUT = {10: 12, 25: 12, 50: 24}  # episodes for each set, by its size
N_ROLLED_OUT, SEED = 8, 100_000


def run(runner: Runner) -> None:
    """Looks for symmetries, runs the missing episodes, and writes docs/results/symmetry."""
    found = _count()
    rows = [_worth(runner, size) for size in ROLLED_OUT]
    runner.write_csv("found", found)
    runner.write_csv("worth", rows)
    _write(runner, found, rows)
    runner.write_origin(seeds=f"from {SEED}")


def sets_of(data: str, size: int) -> list[Demos]:
    """Disjoint sets of demonstrations, in the order of the file."""
    demos = demos_for(make_environment(ENV), data)
    return [demos[i * size : (i + 1) * size] for i in range(min(N_SETS, len(demos) // size))]


def turned(demos: Demos, degrees: float) -> Demos:
    """The same demonstrations, with another direction of the T called 0."""
    off = np.array([0, 0, 0, 0, np.radians(degrees)])
    return demos.with_episodes([type(e)(e.observations + off, e.actions) for e in demos])


def mirror_of(demos: Demos) -> str | None:
    """The symmetry that is found in demonstrations."""
    layout = show_symmetry(demos, ClosedFormConfig()).observation_layout
    return next((entry.symmetry for entry in layout.entries if entry.symmetry is not None), None)


def _count() -> list[dict[str, Any]]:
    rows = []
    for data in DATA:
        for size in SIZES:
            sets = sets_of(data, size)
            for degrees in tqdm(TURNED, desc=f"{data}, {size}", leave=False):
                mirrors = [mirror_of(turned(one, degrees)) for one in sets]
                facts = {"demonstrations": data, "size": size, "degrees_off": degrees, "sets": len(sets)}
                rows.append(facts | {name: mirrors.count(name) for name in ("mirror_x", "mirror_y")})
    return rows


def _worth(runner: Runner, size: int) -> dict[str, Any]:
    """The scores with and without, on the same starts, over disjoint sets."""
    scores: dict[bool, list[float]] = {False: [], True: []}
    solved = {False: 0, True: 0}
    n_found, sets = 0, sets_of(DATA[0], size)[:N_ROLLED_OUT]
    for number, demos in enumerate(sets):
        for finds in scores:
            policy = make_policy("default", demos, [f"find_symmetry={str(finds).lower()}"])
            n_found += getattr(policy, "found_symmetry", False)
            key = f"{size}_{number}_{'found' if finds else 'plain'}"
            name = f"{DATA[0]} {number}, {size}"
            seed = SEED + 100 * number
            study = Study.of_policy(ENV, policy, "default", name, seed=seed, n_episodes=ROLLED_OUT[size])
            episodes = runner.run(key, study).episodes
            scores[finds] += [episode.score for episode in episodes]
            solved[finds] += sum(episode.success for episode in episodes)
    plain, score = np.array(scores[False]), np.array(scores[True])
    row: dict[str, Any] = {"size": size, "sets": len(sets), "found": n_found, "episodes": len(score)}
    row |= {"plain_success": solved[False] / len(score), "success": solved[True] / len(score)}
    for name, values in (("plain", plain), ("score", score), ("difference", score - plain)):
        row[name] = round(float(values.mean()), 4)
        row[f"{name}_low"], row[f"{name}_high"] = (round(end, 4) for end in bootstrap_ci95(values))
    return row


def _write(runner: Runner, found: list[dict[str, Any]], rows: list[dict[str, Any]]) -> None:
    counts = [
        [str(row[name]) for name in ("demonstrations", "size", "degrees_off", "sets", "mirror_x", "mirror_y")]
        for row in found
    ]
    worth = [
        [
            *(str(row[name]) for name in ("size", "sets", "found", "episodes")),
            *(f"{row[n]:.3f} [{row[f'{n}_low']:.3f}, {row[f'{n}_high']:.3f}]" for n in ("plain", "score")),
            f"{row['difference']:+.3f} [{row['difference_low']:+.3f}, {row['difference_high']:+.3f}]",
            f"{row['plain_success']:.2f} to {row['success']:.2f}",
        ]
        for row in rows
    ]
    head = ["demonstrations", "in a set", "degrees off", "sets", "`mirror_x` found", "`mirror_y` found"]
    columns = ["demonstrations", "sets", "found in", "episodes", "without", "with", "difference, paired", "success"]
    off = " and ".join(map(str, TURNED[2:]))
    text = f"""# Symmetries found in demonstrations

Made by `{runner.command}`; [origin.json](origin.json) records versions and machine. A T looks the same in a mirror, and
nobody says so: `find_symmetry` looks whether the mirror images of some demonstrations predict the others as well as
these demonstrations do. `pusht` are the human ones, `pusht-embedded` those of the package's own policy; sets are
disjoint.

## How often it is found

The T's mirror changes the sign of its own x. With its angle {off} degrees off, neither of its axes is a mirror, and
what is found is wrong. At {TURNED[1]} degrees off, `mirror_x` is nearly right. The thresholds were chosen on these
sets.

{markdown_table(head, counts)}

## What it is worth

The default policy from sets of human demonstrations, with `find_symmetry` and without, on the same start states (seeds
from {SEED}, others for each set); scores with 95% intervals over episodes.

{markdown_table(columns, worth)}
"""
    write_file(runner.output / "README.md", text)
