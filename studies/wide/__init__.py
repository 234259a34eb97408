"""A wide benchmark: tasks that the default was not developed on, few demonstrations, nothing declared about the data.

`python -m studies wide` runs the missing evaluations, one process per core, and writes docs/results/wide. Meta-World
and LASA need a separate virtual environment (`make wide` creates it), Push-T and robomimic the project's own: each part
can be run by itself (`--only 'metaworld_*' 'lasa-*'`), on any machine, with the same folder of recorded demonstrations,
and complete results are reported without any simulator.

With `--only '*_default'`, the default is measured again beside the tables that exist (`again.py`).

Complete results are reused, whatever code made them: to evaluate a changed method, remove its files from the work
folder, or name another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from closedform import provenance
from closedform.evaluation.evaluation_result import EvaluationResult
from closedform.files import write_file
from studies.runner import Runner
from studies.wide import again, lasa, record, report
from studies.wide.benchmarks import BENCHMARKS, DEVELOPMENT, DEVELOPMENT_SEED, POLICIES, SEED
from studies.wide.cells import Cell, all_cells, choose, run_cells

DEVELOPMENT_POLICIES = ("default", "paper", "1nn")
N_DEVELOPMENT = 20


def run(runner: Runner) -> None:
    """Runs the missing evaluations and writes docs/results/wide."""
    demos = runner.demos or runner.work / "demos"
    if runner.development:
        _develop(replace(runner, work=runner.work / "development"), demos)
        return
    results = run_cells(choose(all_cells(), runner.only), runner.work, demos, runner.n_workers)
    for found in results.values():
        runner.note_origin(found)
    if runner.only:
        _print(runner, results)
        if {cell.policy for cell in results} == {"default"}:
            again.write(runner, results)
        return
    tasks = BENCHMARKS["metaworld"].tasks
    experts = report.experts_of(demos, tasks)
    rows = report.write_tables(runner, results, experts)
    for size in BENCHMARKS["metaworld"].sizes:
        report.draw_tasks(runner, results, size)
    report.draw_sizes(runner, rows)
    _write_page(runner, results, rows, experts)
    runner.write_origin(
        seeds={name: f"{SEED} to {SEED + one.n_episodes - 1}" for name, one in BENCHMARKS.items()},
        demonstrations={"noise": record.NOISE, "seeds": "from 0"},
        development={"tasks": DEVELOPMENT, "seeds": f"from {DEVELOPMENT_SEED}"},
    )


def development_cells() -> list[Cell]:
    """The development set of the default: ten tasks, with start states that are never reported."""
    return [
        Cell("metaworld", task, size, policy, DEVELOPMENT_SEED, N_DEVELOPMENT)
        for task in DEVELOPMENT
        for size in BENCHMARKS["metaworld"].sizes
        for policy in POLICIES
    ]


def _develop(runner: Runner, demos: Path) -> None:
    sizes = BENCHMARKS["metaworld"].sizes
    patterns = runner.only or tuple(f"metaworld_*_{sizes[0]}_{policy}" for policy in DEVELOPMENT_POLICIES)
    results = run_cells(choose(development_cells(), patterns), runner.work, demos, runner.n_workers)
    for found in results.values():
        runner.note_origin(found)
    experts = report.experts_of(demos, DEVELOPMENT)
    for size in sizes:
        if any(cell.n_demos == size for cell in results):
            print(report.task_table(results, size, experts))
    _print(runner, results)


def _print(runner: Runner, results: Mapping[Cell, EvaluationResult]) -> None:
    """Prints the means, and the commits that produced them, since complete results are not run again."""
    for row in report.summarize(results):
        what = f"{row['benchmark']}, {row['demonstrations']} demonstrations, {row['policy']}"
        success = "{success:.3f} [{success_low:.3f}, {success_high:.3f}]".format(**row)
        print(f"{what}: success {success}, {row['tasks']} tasks")
    print(f"made by commit {', '.join(sorted(runner.commits))}; this is {provenance.commit()}")


def _write_page(
    runner: Runner,
    results: Mapping[Cell, EvaluationResult],
    rows: list[dict[str, Any]],
    experts: Mapping[str, float | None],
) -> None:
    metaworld = BENCHMARKS["metaworld"]
    known = [rate for rate in experts.values() if rate is not None]
    expert = f"{sum(known) / len(known):.2f} of their attempts" if known else "most of their attempts"
    sections = []
    for name, benchmark in BENCHMARKS.items():
        own = [row for row in rows if row["benchmark"] == name]
        if own:
            sections.append(f"## {benchmark.title}\n\n{NOTES[name.partition('-')[0]]}{report.summary_table(own)}\n")
    tasks = "\n".join(
        f"From {size} demonstrations:\n\n{report.task_table(results, size, experts)}\n" for size in metaworld.sizes
    )
    text = f"""# A wide benchmark

Made by `{runner.command}` at commit {", ".join(sorted(runner.commits))};
[origin.json](origin.json) records versions and machine. {_missing(results)}The default has the same parameters for all
tasks, and no layouts are declared for Meta-World and LASA. Success with 95% intervals over start states
(stratified bootstrap; tasks are fixed), and the paired difference to the default on the same start states.
{_again(runner)}
Meta-World's demonstrations are those of its own scripted experts, with noise of standard deviation {record.NOISE} added
to each number of each action, clipped to [-1, 1]; the noisy experts succeed in {expert}, and their successful episodes
are recorded as executed. Ten tasks were chosen for development before any was run
({", ".join(DEVELOPMENT)}), with other seeds than those reported here; the inference of layouts was developed on data of
all fifty.

{chr(10).join(sections)}
## Meta-World by task

{tasks}
![Success of each task](metaworld_{metaworld.sizes[0]}.png)

[worse.csv](worse.csv) lists the tasks in which another policy is better by more than {report.MARGIN}.

## The other policies

1-NN, kernel regression and the preset `paper` are the package's own. Behavior cloning is a network of two hidden layers
of 256 units that predicts chunks of 12 actions, 4 of which are executed, from one observation; it is trained for 10,000
steps. GPI (Li et al., arXiv 2510.08787) is our reimplementation from the paper's abstract and project page: progression
and attraction of the five nearest demonstrations. studies/wide/gpi.py lists our choices where these leave something
open, so its figures are not the authors'. Unlike the other policies here, it is told which numbers are actuated, and by
how much.
"""
    write_file(runner.output / "README.md", text)


def _again(runner: Runner) -> str:
    """Where the default was measured again, in one sentence."""
    return f"{again.SENTENCE}\n" if (runner.output / "default.md").exists() else ""


def _missing(results: Mapping[Cell, EvaluationResult]) -> str:
    """Which cells have not been run, in one sentence."""
    begun = {cell.benchmark for cell in results}
    left = [cell for cell in all_cells() if cell not in results]
    named = dict.fromkeys(
        f"{cell.policy} of {cell.benchmark} from {cell.n_demos}"
        if cell.benchmark in begun
        else f"all of {cell.benchmark}"
        for cell in left
    )
    return f"Not run yet: {', '.join(named)}. " if named else ""


NOTES = {
    "metaworld": "Observations of 39 numbers, actions of 4, at most 500 steps; success ends an episode.\n\n",
    "lasa": f"""30 shapes, 7 demonstrations each. Start states are those of demonstrations, perturbed by
{lasa.PERTURBATION:g} mm (standard deviation). Success means staying within {lasa.TOLERANCE:g} mm of the end during the
last quarter of an episode, which lasts twice as long as a demonstration. The path error is the mean distance to the
nearest demonstrated path and from it; arrival is the median time after which the point stays at the end, in lengths of
a demonstration.\n\n""",
    "pusht": "The first human demonstrations.\n\n",
    "robomimic": "Scripted demonstrations, as in [the robomimic study](../robomimic/README.md).\n\n",
}
