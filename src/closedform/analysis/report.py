"""The HTML page of `closedform report`: results, videos, and an analysis of the failures."""

from __future__ import annotations

import html
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from closedform.analysis.explain_figure import planar_columns
from closedform.analysis.familiarity import measure_familiarity
from closedform.errors import ClosedFormError, ClosedFormWarning
from closedform.evaluation.comparison import compare
from closedform.evaluation.environment import Environment, Renders, Scene, make_environment
from closedform.evaluation.episode_result import EpisodeResult
from closedform.evaluation.evaluation_result import EvaluationResult
from closedform.evaluation.rollout import Rollout
from closedform.evaluation.study import Study
from closedform.evaluation.video import encode, filmed, spread
from closedform.figures import (
    ACCENT,
    COLORS,
    INK,
    LARGEST,
    PAGE_STYLE,
    QUIET,
    drawable,
    embedded,
    literal,
    png,
    pyplot,
)
from closedform.files import check_writable, write_file
from closedform.policies.demonstration_policy import DemonstrationPolicy

_N_STILLS = 6  # pictures in a filmstrip
_LEFT_THE_DATA = 0.1  # alarm rate of a rollout that has left the data; the usual one is 0.01
_MOST_PICTURED = 4  # failures with a picture; all are listed
_STYLE = """
.rollout { display: grid; grid-template-columns: 260px 1fr; gap: 1rem; align-items: start; margin-bottom: 1.2rem; }
.rollout video { width: 100%; border: 1px solid #d8dee9; }
.figures { display: grid; grid-template-columns: 1fr 1fr; gap: 1rem; }
details { margin: .6rem 0; } summary { cursor: pointer; } pre { overflow-x: auto; background: #eceff4; padding: .6rem; }
"""


def write_report(
    all_results: Mapping[str, EvaluationResult],
    path: Path,
    *,
    env: str | None = None,
    progress: Callable[[str, float], object] | None = None,
) -> None:
    """Writes one self-contained HTML file.

    Selected rollouts are rerun, which reproduces their episodes, to be filmed and explained. If they cannot be rerun,
    the page and a warning say so.

    Args:
        all_results: results by name; the others are compared with the first.
        path: the file.
        env: the environment named by the user; code named only by a results file is not run (see `Study.of`).
        progress: called with a description and the fraction done.
    """
    check_writable(path)
    say = progress or (lambda what, share: None)
    title = (
        f"{', '.join(dict.fromkeys(results.subject.env for results in all_results.values()))}: {', '.join(all_results)}"
    )
    parts = [f"<h1>{html.escape(title)}</h1>", _table(all_results), _comparisons(all_results), _figures(all_results)]
    for i, (name, results) in enumerate(all_results.items()):
        share = partial(_share, say, name, i, len(all_results))
        parts.append(_section(name, results, env, share))
    page = f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title><style>{PAGE_STYLE}{_STYLE}</style>
{"".join(parts)}
</html>
"""
    write_file(path, page)


def _rows(head: Sequence[str], rows: Sequence[Sequence[str]], text_columns: int = 1) -> str:
    """A table; cells are escaped, and those after the first `text_columns` are numbers."""

    def cells(values: Sequence[str], tag: str) -> str:
        kinds = ["" if i < text_columns else ' class="number"' for i in range(len(values))]
        return "".join(f"<{tag}{k}>{html.escape(v)}</{tag}>" for k, v in zip(kinds, values, strict=True))

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    return f"<table><tr>{cells(head, 'th')}</tr>{body}</table>"


def _table(all_results: Mapping[str, EvaluationResult]) -> str:
    rows = []
    for name, r in all_results.items():
        rows.append(
            [
                name,
                str(r.score),
                str(r.success),
                f"{r.mean_steps:.0f}",
                f"{np.mean([episode.loop for episode in r.episodes]):.0%}",
                f"{r.latency_p50_ms:.2f} / {r.latency_p99_ms:.2f}",
                str(len(r.episodes)) + ("" if r.complete else f" of {r.subject.n_episodes}"),
            ]
        )
    head = ["policy", "score [95%]", "success [95%]", "steps", "with loops", "plan p50 / p99, ms", "episodes"]
    return _rows(head, rows)


def _comparisons(all_results: Mapping[str, EvaluationResult]) -> str:
    names = list(all_results)
    if len(names) < 2:
        return ""
    rows = []
    for name in names[1:]:
        try:
            c = compare(all_results[names[0]], all_results[name])
        except ClosedFormError as error:
            rows.append([f"{name} minus {names[0]}", str(error), "", "", "", "", ""])
            continue
        rows.append(
            [
                f"{name} minus {names[0]}",
                f"{c.score:+.3f} [{c.score_ci95[0]:+.3f}, {c.score_ci95[1]:+.3f}]",
                f"{c.success:+.3f} [{c.success_ci95[0]:+.3f}, {c.success_ci95[1]:+.3f}]",
                *(str(n) for n in (c.wins, c.ties, c.losses, c.n)),
            ]
        )
    head = ["paired by seed", "score [95%]", "success [95%]", "better", "equal", "worse", "episodes"]
    return "<h2>Differences</h2>" + _rows(head, rows)


def _figures(all_results: Mapping[str, EvaluationResult]) -> str:
    plt = pyplot()
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(14, 4.2), layout="constrained")
    for color, (name, results) in zip(COLORS * len(all_results), all_results.items(), strict=False):
        rows = results.episodes
        scores = np.sort(np.clip([row.score for row in rows], -LARGEST, LARGEST))
        shares = np.linspace(1, 0, len(rows), endpoint=False)
        left.step(np.append(0, scores), np.append(1, shares), where="pre", color=color)
        left.plot([], [], color=color, label=literal(name))
        done = np.sort([row.steps for row in rows if row.success])
        last = max(row.steps for row in rows)
        share = np.arange(len(done) + 1) / len(rows)
        middle.step(np.append(0, np.append(done, last)), np.append(share, share[-1]), where="post", color=color)
        distances = drawable([max(row.distances) for row in rows])
        right.scatter(distances, drawable([row.score for row in rows]), s=9, color=color, alpha=0.5, linewidths=0)
    left.set(xlabel="score", ylabel="share of episodes", xlim=(0, 1.02), ylim=(0, 1.03))
    left.set_title("Episodes that reach at least this score")
    left.legend(loc="lower left")
    middle.set(
        xlabel="step", ylabel="share of episodes", title="Episodes that have succeeded by this step", ylim=(0, 1.03)
    )
    right.set(
        xlabel="largest distance to the demonstrations in the episode",
        ylabel="score",
        title="Far from the demonstrations",
        ylim=(-0.03, 1.03),
    )
    return f'<h2>Figures</h2><img alt="scores, successes, distances" src="{embedded(png(figure), "image/png")}">'


def _share(say: Callable[[str, float], object], name: str, place: int, n_places: int, what: str, share: float) -> None:
    say(f"{name}: {what}", (place + share) / n_places)


def _section(name: str, results: EvaluationResult, env: str | None, say: Callable[[str, float], object]) -> str:
    """The section on one policy: rollouts, failures and provenance."""
    parts = [f"<h2>{html.escape(name)}</h2>"]
    failures = sorted((row for row in results.episodes if not row.success), key=lambda row: row.score)
    try:
        study = Study.of(results, env)
        environment = make_environment(study.env)
        parts += ["<h3>Worst, median and best</h3>"]
        if isinstance(environment, Renders):
            for i, row in enumerate(spread(results.episodes, 3)):
                say(f"filming seed {row.seed}", i / 6)
                parts += [_rollout(study, environment, row)]
        else:
            parts += ['<p class="note">No videos: the environment has no method <code>render</code>.</p>']
        say("analyzing failures", 0.5)
        parts += [_failures(study, environment, failures, len(results.episodes))]
    except ClosedFormError as error:
        warnings.warn(f"{name}: rollouts could not be rerun: {error}", ClosedFormWarning, stacklevel=2)
        parts += [f'<p class="note">Rollouts could not be rerun: {html.escape(str(error))}</p>']
    facts = {
        key: value for key, value in results.to_json().items() if key not in ("episodes", "format", "format_version")
    }
    parts += [
        "<details><summary>Parameters, versions, seeds and the command line</summary>"
        f"<pre>{html.escape(json.dumps(facts, indent=2))}</pre></details>"
    ]
    return "".join(parts)


def _rollout(study: Study, environment: Environment, row: EpisodeResult) -> str:
    """A video, a filmstrip, and score and distance over time."""
    rollout, frames = filmed(study, row.seed)
    note = (
        ""
        if abs(rollout.score - row.score) < 1e-9
        else f" (scored {rollout.score:.3f} when rerun; do the versions differ?)"
    )
    caption = f"seed {row.seed}: score {row.score:.3f}, {row.steps} steps{note}"
    video = embedded(encode(frames, environment.rate), "video/mp4")
    strip = embedded(_strip(rollout, frames, environment.rate), "image/png")
    return (
        f'<div class="rollout"><figure style="margin:0"><video controls muted loop src="{video}"></video>'
        f"<figcaption>{html.escape(caption)}</figcaption></figure>"
        f'<img alt="filmstrip, score and distance" src="{strip}"></div>'
    )


def _strip(rollout: Rollout, frames: list[np.ndarray], rate: float) -> bytes:
    plt = pyplot()
    figure = plt.figure(figsize=(10.5, 4.0), layout="constrained")
    grid = figure.add_gridspec(2, _N_STILLS, height_ratios=(1.35, 1))
    for i, index in enumerate(np.linspace(0, len(frames) - 1, _N_STILLS).astype(int)):
        axis = figure.add_subplot(grid[0, i])
        axis.imshow(frames[index])
        axis.set(xticks=[], yticks=[], title=f"{index / rate:.1f} s")
    axis = figure.add_subplot(grid[1, :])
    axis.plot(np.arange(1, len(rollout.scores) + 1), rollout.scores, color=COLORS[0], label="score")
    axis.set(xlabel="step", ylabel="score", ylim=(0, 1.03))
    other = axis.twinx()
    distances = drawable([plan.distance for _, plan in rollout.plans])
    other.step([step for step, _ in rollout.plans], distances, where="post", color=ACCENT)
    other.set_ylim(bottom=0)
    other.set_ylabel("distance to the demonstrations", color=ACCENT)
    other.spines["right"].set_visible(True)
    return png(figure, dpi=110)


def _failures(study: Study, environment: Environment, failures: list[EpisodeResult], n_episodes: int) -> str:
    """A table of failures with likely causes, and images of some."""
    if not failures:
        return "<h3>Failures</h3><p>None.</p>"
    policy, familiarity = study.policy, None
    if isinstance(policy, DemonstrationPolicy) and len(policy.episode_ids) > 1:
        familiarity = measure_familiarity(policy)
    rows = []
    for row in failures:
        alarms = 0.0 if familiarity is None else float(np.mean([familiarity.alarm(d) for d in row.distances]))
        left = alarms > _LEFT_THE_DATA
        causes = [word for word, found in (("left the data", left), ("looped", row.loop)) if found]
        rows.append(
            [
                str(row.seed),
                " and ".join(causes) or "out of time",
                f"{row.score:.3f}",
                f"{np.median(row.distances):.2f}",
                f"{max(row.distances):.2f}",
                "" if familiarity is None else f"{alarms:.0%}",
                str(row.most_repeated),
                ", ".join(f"{episode} ({share:.0%})" for episode, share in row.demonstrations),
            ]
        )
    head = [
        "seed",
        "cause",
        "score",
        "distance, median",
        "largest",
        "alarm rate",
        "repeats",
        "most used demonstrations",
    ]
    pictured = failures[:_MOST_PICTURED] if isinstance(environment, Renders) else []
    pictures = [_failure_picture(study, environment, row.seed) for row in pictured]
    note = (
        "<p class='note'>Distances are to the nearest demonstrated observation. The <em>alarm rate</em> is the "
        "fraction of plans farther away than 99% of left-out demonstrations; above a tenth, the rollout is said to "
        "have left the data. <em>Repeats</em> is the largest number of plans dominated by the same segment of a "
        "demonstration.</p>"
    )
    table = f"<details open><summary>{len(failures)} of {n_episodes} episodes</summary>{_rows(head, rows, 2)}</details>"
    return f"<h3>Failures</h3>{note}{table}<div class='figures'>{''.join(pictures)}</div>"


def _failure_picture(study: Study, environment: Environment, seed: int) -> str:
    """The scene where a rollout ended, with its path and the last demonstrations behind it."""
    rollout, frames = filmed(study, seed)
    plt = pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 4), layout="constrained", width_ratios=(1, 1))
    planar = planar_columns(study.policy.action_layout)
    best = int(np.argmax(rollout.scores)) + 1
    for axis, index, what in ((left, best, "at its best"), (right, len(frames) - 1, "at the end")):
        axis.set(xticks=[], yticks=[], title=f"{what}, step {index}")
        if not isinstance(environment, Scene) or planar is None:
            axis.imshow(frames[index])
            continue
        axis.imshow(frames[index], extent=environment.extent, alpha=0.55)
        plan = next(plan for step, plan in reversed(rollout.plans) if step <= index)
        made = rollout.actions[:index][:, list(planar)]
        axis.plot(*made[-60:].T, color=QUIET, linewidth=0.8)
        axis.plot(*plan.actions[:, list(planar)].T, color=INK, marker=".", markersize=4)
        for episode, step in list(dict.fromkeys(zip(plan.episodes.tolist(), plan.steps.tolist(), strict=True)))[:3]:
            assert isinstance(study.policy, DemonstrationPolicy)  # other plans name no demonstrations
            shown = study.policy.episodes[study.policy.episode_ids.index(episode)].actions[step:, list(planar)][:24]
            axis.plot(*shown.T, color=COLORS[0], linewidth=1.5, alpha=0.7)
        axis.set(xlim=environment.extent[:2], ylim=environment.extent[2:])
    figure.suptitle(f"seed {seed}: score {rollout.score:.3f}", x=0.01, ha="left", fontsize=10.5)
    caption = "gray: the last 60 actions; black: the plan; blue: the demonstrations behind it, as recorded"
    image = f'<img alt="{caption}" src="{embedded(png(figure, dpi=100), "image/png")}">'
    return f'<figure style="margin:0">{image}<figcaption class="note">{caption}</figcaption></figure>'
