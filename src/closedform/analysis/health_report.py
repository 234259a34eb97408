"""The HTML page and the figure that `closedform inspect` writes about demonstrations (extra `plots`)."""

from __future__ import annotations

import html
from pathlib import Path

import numpy as np

from closedform.analysis.health import EntryFacts, Health, Problem
from closedform.demos.demos import Demos
from closedform.figures import ACCENT, INK, LARGEST, PAGE_STYLE, PALE, QUIET, drawable, embedded, literal, png, pyplot
from closedform.files import write_file


def draw(health: Health, demos: Demos, path: Path) -> None:
    """Draws lengths, prediction errors and coverage into a PNG file."""
    plt = pyplot()
    figure, axes = plt.subplots(2, 2, figsize=(12, 8), layout="constrained")
    axes[0, 0].hist(health.lengths, bins=min(30, max(5, len(set(health.lengths)))), color=QUIET)
    axes[0, 0].set(title="Episode lengths", xlabel="steps", ylabel="episodes")

    tried = [(index, error) for index, error in enumerate(health.prediction_error) if error is not None]
    if tried:
        flagged = {p.episode for p in health.problems if p.kind == "unlike the others"}
        axes[0, 1].bar(
            [index for index, _ in tried],
            drawable([error for _, error in tried]),
            width=1.0,
            color=[ACCENT if index in flagged else QUIET for index, _ in tried],
        )
    else:
        axes[0, 1].text(0.5, 0.5, "not measured", ha="center", transform=axes[0, 1].transAxes, color=QUIET)
    axes[0, 1].set(title="Leave-one-out error", xlabel="episode", ylabel="RMS error, actions in [-1, 1]")

    _draw_coverage(axes[1, 0], health, demos)
    _draw_jumps(axes[1, 1], health, demos)
    write_file(path, png(figure))


def _draw_coverage(axis, health: Health, demos: Demos) -> None:
    """Draws distances to the other episodes, over the first two numbers of a moving position, or of the observation."""
    columns = next(
        (
            (columns.start, columns.start + 1)
            for entry, columns in demos.observation_layout.slices()
            if entry.kind == "position" and demos.all_observations()[:, columns].std() > 0
        ),
        (0, min(1, demos.observation_layout.width - 1)),
    )
    names = [literal(demos.observation_layout.describe(column)) for column in columns]
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


def _draw_jumps(axis, health: Health, demos: Demos) -> None:
    """Draws the first jump or wrapped angle as recorded, or the spread of each number if there is none."""
    jump = next((p for p in health.problems if p.kind in ("wrapped angle", "jump") and p.step is not None), None)
    if jump is None or jump.episode is None or jump.step is None or jump.column is None:
        facts = health.observations
        axis.barh(range(len(facts)), drawable([fact.std for fact in facts]), color=QUIET)
        axis.set_yticks(
            range(len(facts)), [literal(fact.name.removeprefix("observation ")) for fact in facts], fontsize=8
        )
        axis.set(title="Standard deviation of each number", xlabel="in its own units")
        axis.invert_yaxis()
        return
    values = drawable(demos[jump.episode].observations)
    around = slice(max(0, jump.step - 40), jump.step + 40)
    axis.plot(np.arange(len(values))[around], values[around, jump.column], ".-", color=INK, markersize=4, linewidth=0.8)
    axis.axvline(jump.step - 0.5, color=ACCENT, linewidth=1)
    axis.set(
        title=f"{jump.kind.capitalize()} in episode {jump.episode}, step {jump.step}",
        xlabel="step",
        ylabel=literal(demos.observation_layout.describe(jump.column)),
    )


def write_page(health: Health, name: str, picture: Path, path: Path) -> None:
    """Writes one self-contained HTML file: problems, then the figure, then statistics of every number."""
    rate = f", {health.rate:g} steps per second" if health.rate else ""
    errors = [error for error in health.prediction_error if error is not None]
    predicted = f" Median leave-one-out error: {np.median(errors):.2f}." if errors else ""
    page = f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{html.escape(name)}: demonstrations</title><style>{PAGE_STYLE}</style>
<h1>{html.escape(name)}</h1>
<p>{health.n_episodes} episodes, {health.n_steps} steps{rate}; {min(health.lengths)} to {max(health.lengths)} steps
each, median {np.median(health.lengths):g}.{predicted}</p>
<h2>Problems</h2>{_problem_table(health.problems)}
<h2>Figure</h2><img alt="lengths, prediction errors, coverage" src="{embedded(picture.read_bytes(), "image/png")}">
<h2>Numbers</h2>{_entry_table([*health.observations, *health.actions])}
</html>
"""
    write_file(path, page)


def _problem_table(problems: list[Problem]) -> str:
    if not problems:
        return "<p>None found.</p>"
    rows = "".join(
        f'<tr><td class="{p.severity}">{p.severity}</td><td>{html.escape(p.kind)}</td>'
        f'<td class="number">{"" if p.episode is None else p.episode}</td>'
        f'<td class="number">{"" if p.step is None else p.step}</td>'
        f"<td>{html.escape(p.message)}</td><td>{html.escape(p.advice)}</td></tr>"
        for p in problems
    )
    numbers = '<th class="number">episode</th><th class="number">step</th>'
    head = f"<th></th><th>kind</th>{numbers}<th>found</th><th>what to do</th>"
    return f"<table><tr>{head}</tr>{rows}</table>"


def _entry_table(entries: list[EntryFacts]) -> str:
    rows = "".join(
        f"<tr><td>{html.escape(e.name)}</td>"
        + "".join(f'<td class="number">{value:.5g}</td>' for value in (e.low, e.high, e.mean, e.std))
        + f"<td>{e.state if e.state != 'ok' else ''}</td></tr>"
        for e in entries
    )
    numbers = "".join(f'<th class="number">{name}</th>' for name in ("low", "high", "mean", "std"))
    return f"<table><tr><th>number</th>{numbers}<th></th></tr>{rows}</table>"
