"""The HTML page and the figure that `closedform inspect` writes about demonstrations (extra `plots`)."""

from __future__ import annotations

import html
from pathlib import Path

import numpy as np

from closedform.analysis.charts import Chart
from closedform.analysis.health import EntryFacts, Health
from closedform.analysis.html_page import details_of, page_of, table_of, tiles_of
from closedform.analysis.problem import Problem, ProblemGroup, grouped
from closedform.analysis.verdict import judge
from closedform.demos.demos import Demos
from closedform.figures import ACCENT, INK, LARGEST, PALE, QUIET, drawable, embedded, literal, png, pyplot
from closedform.files import write_file

_MOST_BARS = 30


def draw(health: Health, demos: Demos, path: Path) -> None:
    """Draws lengths, prediction errors and coverage into a PNG file."""
    plt = pyplot()
    figure, axes = plt.subplots(2, 2, figsize=(12, 8), layout="constrained")
    axes[0, 0].hist(health.lengths, bins=min(30, max(5, len(set(health.lengths)))), color=QUIET)
    axes[0, 0].set(title="Episode lengths", xlabel="steps", ylabel="episodes")

    tried = _tried(health)
    if tried:
        flagged = _flagged(health)
        axes[0, 1].bar(
            range(len(tried)),
            drawable([error for _, error in tried]),
            width=1.0,
            color=[ACCENT if index in flagged else QUIET for index, _ in tried],
        )
    else:
        axes[0, 1].text(0.5, 0.5, "not measured", ha="center", transform=axes[0, 1].transAxes, color=QUIET)
    axes[0, 1].set(
        title="Leave-one-out error of each episode, sorted", xlabel="episodes", ylabel="RMS error, actions in [-1, 1]"
    )

    _draw_coverage(axes[1, 0], health, demos)
    _draw_jumps(axes[1, 1], health, demos)
    write_file(path, png(figure))


def _tried(health: Health) -> list[tuple[int, float]]:
    """Episodes and their leave-one-out errors, the largest first."""
    tried = [(index, error) for index, error in enumerate(health.prediction_error) if error is not None]
    return sorted(tried, key=lambda item: -item[1])


def _flagged(health: Health) -> set[int | None]:
    return {p.episode for p in health.problems if p.kind == "unlike the others"}


def _coverage_columns(demos: Demos) -> tuple[int, int]:
    """The first two numbers of a moving position, or of the observation."""
    return next(
        (
            (columns.start, columns.start + 1)
            for entry, columns in demos.observation_layout.slices()
            if entry.kind == "position" and entry.size > 1 and demos.all_observations()[:, columns].std() > 0
        ),
        (0, min(1, demos.observation_layout.width - 1)),
    )


def _draw_coverage(axis, health: Health, demos: Demos) -> None:
    """Draws distances to the other episodes over the first two numbers of a position."""
    columns = _coverage_columns(demos)
    names = [literal(demos.describe("observations", column)) for column in columns]
    everything = drawable(demos.all_observations())
    shown = everything[:: max(1, len(everything) // 20_000)]
    axis.scatter(shown[:, columns[0]], shown[:, columns[1]], s=1, color=PALE, rasterized=True)
    if health.distances:
        points = drawable([demos[e].observations[s][list(columns)] for e, s, _ in health.distances])
        distances = np.minimum([d for _, _, d in health.distances], LARGEST)
        order = np.argsort(distances)
        dots = axis.scatter(
            points[order, 0],
            points[order, 1],
            s=9,
            c=distances[order],
            cmap="inferno_r",
            vmax=np.quantile(distances, 0.98),
        )
        axis.figure.colorbar(dots, ax=axis, label="distance to the other episodes")
    axis.set(title="Coverage: dark is thin", xlabel=names[0], ylabel=names[1])


def _jump(health: Health) -> Problem | None:
    return next((p for p in health.problems if p.kind in ("wrapped angle", "jump") and p.step is not None), None)


def _draw_jumps(axis, health: Health, demos: Demos) -> None:
    """Draws the first jump or wrapped angle as recorded, or the spread of each number if there is none."""
    jump = _jump(health)
    if jump is None or jump.episode is None or jump.step is None or jump.column is None:
        facts = sorted(health.observations, key=lambda fact: -fact.std)[:_MOST_BARS]
        axis.barh(range(len(facts)), drawable([fact.std for fact in facts]), color=QUIET)
        axis.set_yticks(
            range(len(facts)), [literal(fact.name.removeprefix("observation ")) for fact in facts], fontsize=8
        )
        axis.set(title="Standard deviation of each number, sorted", xlabel="in its own units")
        axis.invert_yaxis()
        return
    values = drawable(demos[jump.episode].observations)
    around = slice(max(0, jump.step - 40), jump.step + 40)
    axis.plot(np.arange(len(values))[around], values[around, jump.column], ".-", color=INK, markersize=4, linewidth=0.8)
    axis.axvline(jump.step - 0.5, color=ACCENT, linewidth=1)
    axis.set(
        title=f"{jump.kind.capitalize()} in episode {jump.episode}, step {jump.step}",
        xlabel="step",
        ylabel=literal(demos.describe("observations", jump.column)),
    )


def write_page(health: Health, name: str, picture: Path, path: Path, perceived: Path | None = None) -> None:
    """Writes one self-contained HTML file: a verdict, problems, charts, then statistics of every number.

    Args:
        health: what was found.
        name: of the demonstrations.
        picture: the figure.
        path: where to write.
        perceived: a figure of what was found in images, if they were perceived.
    """
    found = ""
    if perceived is not None:
        seen = embedded(perceived.read_bytes(), "image/png")
        found = (
            f'<h2>Found in images</h2><img class="picture" alt="background, bodies, tracks and residuals" src="{seen}">'
        )
    verdict = judge(health)
    color = {"good": "good", "warning": "warn", "error": "bad"}[verdict.level]
    errors = [error for error in health.prediction_error if error is not None]
    notes = sum(group.count for group in grouped(health.problems) if group.severity == "note")
    serious = sum(group.count for group in grouped(health.problems)) - notes
    tiles = [
        ("episodes", f"{health.n_episodes}", f"{min(health.lengths)} to {max(health.lengths)} steps each"),
        ("steps", f"{health.n_steps:,}", f"at {health.rate:g} per second" if health.rate else "rate unknown"),
        ("leave-one-out error", f"{np.median(errors):.2f}" if errors else "–", "median, actions in [-1, 1]"),
        ("to look at", f"{serious}", f"errors and warnings; {notes} notes"),
    ]
    image = f'<img class="picture" alt="lengths, errors, coverage" src="{embedded(picture.read_bytes(), "image/png")}">'
    body = f"""<h1>{html.escape(name)}</h1>
<p class="lead" style="border-left:4px solid var(--{color});padding-left:12px">{html.escape(verdict.text)}</p>
{tiles_of(tiles)}
<h2>Problems</h2>{_problem_list(health.problems)}
<h2>Charts</h2><div class="charts">{"".join(chart.to_html() for chart in _charts(health))}</div>
{details_of("Figure: coverage, and the first jump", image)}
{found}
<h2>Numbers</h2>{_entry_table([*health.observations, *health.actions])}
"""
    write_file(path, page_of(f"{name}: demonstrations", body))


def _charts(health: Health) -> list[Chart]:
    counts, edges = np.histogram(health.lengths, bins=min(30, max(5, len(set(health.lengths)))))
    lengths = Chart("Episode lengths", "steps", "episodes", (0, edges[-1]), (0, counts.max()), whole=True)
    lengths.bars(edges[:-1], edges[1:], counts)
    charts = [lengths]
    tried = _tried(health)
    if tried:
        flagged, found = _flagged(health), drawable([error for _, error in tried])
        most = float(np.nanmax(found)) if np.isfinite(found).any() else 1.0
        errors = Chart(
            "Leave-one-out error of each episode, sorted",
            "episodes",
            "RMS error",
            (0, len(tried)),
            (0, most),
            whole=True,
        )
        places = np.arange(len(tried))
        errors.bars(places, places + 1, found, ["var(--bad)" if index in flagged else 0 for index, _ in tried])
        charts.append(errors)
    if health.distances:
        distances = np.minimum([distance for _, _, distance in health.distances], LARGEST)
        far = float(np.quantile(distances, 0.995))
        counts, edges = np.histogram(distances, bins=40, range=(0, far or 1.0))
        coverage = Chart("Distance to the other episodes", "distance", "steps", (0, edges[-1]), (0, counts.max()))
        coverage.bars(edges[:-1], edges[1:], counts)
        charts.append(coverage)
    return charts


def _problem_list(problems: list[Problem]) -> str:
    """One row for each kind, which opens to show where."""
    if not problems:
        return "<p>None found.</p>"
    return "".join(_problem_row(group) for group in grouped(problems))


def _problem_row(group: ProblemGroup) -> str:
    rows = [
        ["" if p.episode is None else str(p.episode), "" if p.step is None else str(p.step), p.message, p.advice]
        for p in group.problems
    ]
    count = f" · {group.count}" if group.count > 1 else ""
    summary = (
        f'<span class="{group.severity}">{group.severity}</span> <b>{html.escape(group.kind)}</b>{count}: '
        f"{html.escape(group.describe())}"
    )
    table = table_of(["episode", "step", "found", "what to do"], rows, 4)
    return f'<details class="problem"><summary>{summary}</summary>{table}</details>'


def _entry_table(entries: list[EntryFacts]) -> str:
    rows = [
        [e.name, *(f"{value:.5g}" for value in (e.low, e.high, e.mean, e.std)), "" if e.state == "ok" else e.state]
        for e in entries
    ]
    return table_of(["number", "low", "high", "mean", "std", ""], rows)
