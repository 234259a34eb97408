"""The HTML page of `closedform report`: rollouts that move, the demonstrations behind them, results and failures."""

from __future__ import annotations

import html
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from closedform.analysis.charts import Chart, legend
from closedform.analysis.failures import failure_section, failures_of
from closedform.analysis.familiarity import Familiarity, measure_familiarity
from closedform.analysis.html_page import details_of, page_of, table_of, tiles_of
from closedform.analysis.replay import pictured_demos, replay
from closedform.analysis.stage import Stage
from closedform.demos.catalog import CATALOG
from closedform.errors import ClosedFormError, ClosedFormWarning
from closedform.evaluation.comparison import compare
from closedform.evaluation.environment import make_environment
from closedform.evaluation.episode_result import EpisodeResult
from closedform.evaluation.evaluation_result import EvaluationResult
from closedform.evaluation.rollout import roll_out
from closedform.evaluation.study import Study
from closedform.evaluation.video import film_url, filmed, require_av, spread
from closedform.files import check_writable, write_file
from closedform.policies.demonstration_policy import DemonstrationPolicy

_MOST_SHOWN = 20  # rollouts on a page of those that are drawn
_MOST_FILMED = 8  # and of those that have to be rendered
_MOST_FAILURES = 4  # that are shown even if the others were chosen
_FILM_BYTES = 5_000_000  # all films of a page; the page may have 8 MB

_NOT_RENDERED = (
    '<p class="note">The environment has no method <code>render</code>, so positions in its observations are shown as '
    "points, or its score over time if it has none.</p>"
)


@dataclass(frozen=True)
class _Shown:
    """The rollouts of one policy that are on a page."""

    group: dict[str, Any]
    best_steps: dict[int, int | None]
    familiarity: Familiarity | None
    note: str


def write_report(
    all_results: Mapping[str, EvaluationResult],
    path: Path,
    *,
    env: str | None = None,
    title: str | None = None,
    progress: Callable[[str, float], object] | None = None,
) -> None:
    """Writes one self-contained HTML file.

    Rollouts are rerun, which reproduces their episodes, to be shown and explained. If they cannot be rerun, the page
    and a warning say so.

    Args:
        all_results: results by name; the others are compared with the first.
        path: the file.
        env: the environment named by the user; code named only by a results file is not run (see `Study.of`).
        title: of the page; by default the environment and the names.
        progress: called with a description and the fraction done.
    """
    check_writable(path)
    say = progress or (lambda what, share: None)
    environments = ", ".join(dict.fromkeys(results.subject.env for results in all_results.values()))
    title = title or f"{environments}: {', '.join(all_results)}"
    groups: list[dict[str, Any]] = []
    sections = []
    for i, (name, results) in enumerate(all_results.items()):
        share = partial(_share, say, name, i, len(all_results))
        shown = _rerun(name, results, env, len(all_results), share)
        groups += [shown.group] if isinstance(shown, _Shown) else []
        sections.append(_section(name, results, shown, len(groups) - 1, alone=len(all_results) == 1))
    head = f"<h1>{html.escape(title)}</h1>"
    if len(all_results) > 1:
        told = f"{len(all_results)} policies in <b>{html.escape(environments)}</b>: what they scored, and below their "
        head += f'<p class="lead">{told}rollouts, which move at once.</p>'
        head += _table(all_results) + _comparisons(all_results)
    body = f"{head}{''.join(sections)}{_charts(all_results)}{_provenance(all_results)}"
    write_file(path, page_of(title, body + ("<dialog></dialog>" if groups else ""), groups or None))
    say("done", 1.0)


def _share(say: Callable[[str, float], object], name: str, place: int, n_places: int, what: str, share: float) -> None:
    say(f"{name}: {what}", (place + share) / n_places)


def _rerun(
    name: str, results: EvaluationResult, env: str | None, n_policies: int, say: Callable[[str, float], object]
) -> _Shown | str:
    """The rollouts of a policy that are shown, or why there are none."""
    try:
        study = Study.of(results, env)
        environment = make_environment(study.env)
        policy, familiarity = study.policy, None
        stage = Stage(policy.observation_layout, policy.action_layout, environment)
    except ClosedFormError as error:
        return _not_rerun(name, error)
    if stage.kind == "film":
        require_av()
    try:
        if isinstance(policy, DemonstrationPolicy) and len(policy.episode_ids) > 1:
            say("leave-one-out distances", 0.0)
            familiarity = measure_familiarity(policy)
        chosen = _chosen(results.episodes, _MOST_FILMED if stage.kind == "film" else _MOST_SHOWN)
        replays, best_steps, differ, seen = [], {}, [], []
        for i, row in enumerate(chosen):
            say(f"rerunning seed {row.seed}", 0.1 + 0.9 * i / len(chosen))
            if stage.kind == "film":
                rollout, frames = filmed(study, row.seed)
                film = {"film": film_url(frames, environment.rate, _FILM_BYTES // (n_policies * len(chosen)))}
            else:
                rollout, film = roll_out(environment, policy, row.seed), {}
            differ += [] if abs(rollout.score - row.score) < 1e-9 else [str(row.seed)]
            replays.append({**replay(rollout, policy, stage, familiarity), **film})
            best_steps[row.seed] = (
                int(np.argmax(rollout.scores)) + 1 if rollout.scores.max() > rollout.scores[0] else None
            )
            seen.append(rollout.observations)
    except ClosedFormError as error:
        return _not_rerun(name, error)
    task = getattr(environment, "task", None)
    group = {
        "title": name,
        "task": task if isinstance(task, str) else "",
        "stage": stage.to_json(seen),
        "rate": environment.rate,
        "n_execute": policy.config.n_execute,
        "demos": pictured_demos(policy, replays, stage),
        "rollouts": replays,
    }
    note = f"Scored otherwise when rerun: seeds {', '.join(differ)}; do the versions differ?" if differ else ""
    return _Shown(group, best_steps, familiarity, note)


def _not_rerun(name: str, error: ClosedFormError) -> str:
    warnings.warn(f"{name}: rollouts could not be rerun: {error}", ClosedFormWarning, stacklevel=4)
    return f"Rollouts could not be rerun: {error}"


def _chosen(episodes: tuple[EpisodeResult, ...], most: int) -> list[EpisodeResult]:
    """All episodes, or some that are spread from the worst to the best and the worst failures, ordered by seed."""
    if len(episodes) <= most:
        return list(episodes)
    failures = failures_of(episodes)[:_MOST_FAILURES]
    chosen = {row.seed: row for row in (*spread(episodes, most - len(failures)), *failures)}
    return [chosen[seed] for seed in sorted(chosen)]


def _section(name: str, results: EvaluationResult, shown: _Shown | str, group: int, *, alone: bool) -> str:
    """The section on one policy: what is seen, its rollouts, and its failures."""
    heading = "" if alone else f"<h2>{html.escape(name)}</h2>"
    n, tiles = len(results.episodes), _tiles(results) if alone else ""
    if isinstance(shown, str):
        return f'{heading}{tiles}<p class="note">{html.escape(shown)}</p>'
    n_shown = len(shown.group["rollouts"])
    what = f"{n} episodes" if n_shown == n else f"{n_shown} of {n} episodes, from the worst to the best,"
    task = shown.group["task"]
    of = f"<b>{html.escape(results.subject.env)}</b>" + (f" ({html.escape(task)})" if task else "")
    click = "Click one to see which demonstrations each of its actions comes from."
    click = click if _by_demonstrations(results) else "Click one to watch it."
    lead = f"{what} of {of}, each from a start state of its own, driven by {_who(results)}. {click}"
    source = CATALOG.get(str(results.subject.demos.get("name"))) if group == 0 else None  # told once
    notes = [f"{source.name}: {source.description}." if source else "", shown.note]
    note = "".join(f'<p class="note">{html.escape(text)}</p>' for text in notes if text)
    note += _NOT_RENDERED if shown.group["stage"]["kind"] in ("points", "none") else ""
    failures = failure_section(
        results.episodes, shown.familiarity, group, shown.best_steps.keys(), shown.best_steps.__getitem__
    )
    return f'{heading}<p class="lead">{lead}</p>{note}{tiles}<div data-group="{group}"></div>{failures}'


def _by_demonstrations(results: EvaluationResult) -> bool:
    return "episodes" in results.subject.demos


def _who(results: EvaluationResult) -> str:
    """The policy in words."""
    subject = results.subject
    name = html.escape(str(subject.policy.get("name")))
    if not _by_demonstrations(results):
        return f"the policy <b>{name}</b>"
    n, source = subject.demos["episodes"], subject.demos.get("name")
    of = f" of <b>{html.escape(str(source))}</b>" if source else ""
    return f"the policy <b>{name}</b>, which is computed from {n} demonstrations{of} without training"


def _tiles(results: EvaluationResult) -> str:
    n, done = len(results.episodes), [row.steps for row in results.episodes if row.success]
    facts = [
        ("solved", f"{len(done)} of {n}", f"95% interval {results.success.low:.0%} to {results.success.high:.0%}"),
        (
            "mean score",
            f"{results.score.mean:.3f}",
            f"95% interval {results.score.low:.3f} to {results.score.high:.3f}",
        ),
        (
            "a plan takes",
            f"{results.latency_p50_ms:.2g} ms",
            f"at most {results.latency_p99_ms:.2g} ms in 99% of plans",
        ),
    ]
    if done:
        facts.insert(2, ("steps to success", f"{np.median(done):.0f}", f"median; the longest took {max(done)}"))
    return tiles_of(facts)


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
    return table_of(head, rows)


def _comparisons(all_results: Mapping[str, EvaluationResult]) -> str:
    names = list(all_results)
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
    return "<h2>Differences</h2>" + table_of(head, rows)


def _charts(all_results: Mapping[str, EvaluationResult]) -> str:
    rows = [row for results in all_results.values() for row in results.episodes]
    last, far = max(row.steps for row in rows), max(max(row.distances) for row in rows)
    scores = Chart("Episodes that reach at least this score", "score", "share of episodes", (0, 1), (0, 1))
    times = Chart("Episodes that have succeeded by this step", "step", "share of episodes", (0, last), (0, 1))
    distances = Chart("Score far from the demonstrations", "largest distance in the episode", "score", (0, far), (0, 1))
    for color, results in enumerate(all_results.values()):
        n = len(results.episodes)
        scores.steps(*_shares_reaching([row.score for row in results.episodes]), color)
        done = np.sort([row.steps for row in results.episodes if row.success])
        share = np.arange(len(done) + 1) / n
        times.steps([0, *done, last], [*share, share[-1]], color)
        far_ones = [max(row.distances) for row in results.episodes]
        distances.points(far_ones, [row.score for row in results.episodes], color)
    names = legend(list(all_results)) if len(all_results) > 1 else ""
    shown = "".join(chart.to_html() for chart in (scores, times, distances))
    return f'<h2>Scores, time and distance</h2>{names}<div class="charts">{shown}</div>'


def _shares_reaching(scores: Sequence[float]) -> tuple[list[float], list[float]]:
    """Scores from 0 to 1, and from each of them on to the next the share of episodes that score more."""
    below = sorted(score for score in scores if score < 1)
    shares = [1 - k / len(scores) for k in range(len(below) + 1)]
    return [0.0, *below, 1.0], [*shares, shares[-1]]


def _provenance(all_results: Mapping[str, EvaluationResult]) -> str:
    parts = []
    for name, results in all_results.items():
        omitted = ("episodes", "format", "format_version")
        facts = {key: value for key, value in results.to_json().items() if key not in omitted}
        shown = f"<pre>{html.escape(json.dumps(facts, indent=2))}</pre>"
        parts.append(details_of(f"{name}: parameters, versions, seeds and the command line", shown))
    return f"<h2>How it was made</h2>{''.join(parts)}"
