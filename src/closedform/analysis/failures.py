"""Failures: the episodes of an evaluation that did not succeed, and what happened in them."""

from __future__ import annotations

import html
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from closedform.analysis.familiarity import Familiarity
from closedform.analysis.html_page import details_of, table_of
from closedform.evaluation.episode_result import EpisodeResult

_LEFT_THE_DATA = 0.1  # alarm rate of a rollout that has left the data; the usual one is 0.01
_NOTE = (
    "Distances are to the nearest demonstrated observation. The alarm rate is the fraction of plans farther away than "
    "99% of left-out demonstrations (the first plan: than 99% of their starts); above a tenth, the rollout is said to "
    "have left the data. Repeats is the largest number of plans dominated by the same segment of a demonstration; from "
    "four on, it is said to have looped."
)


def failures_of(episodes: Sequence[EpisodeResult]) -> list[EpisodeResult]:
    """The episodes that did not succeed, the worst first."""
    return sorted((row for row in episodes if not row.success), key=lambda row: row.score)


def failure_section(
    episodes: Sequence[EpisodeResult],
    familiarity: Familiarity | None,
    group: int,
    shown: Collection[int],
    best_step: Callable[[int], int | None],
) -> str:
    """What happened in the failures: in words, with a link into those rollouts that can be watched.

    Args:
        episodes: all of an evaluation.
        familiarity: of the policy, if it is known.
        group: of the rollouts on the page.
        shown: seeds of the rollouts on the page.
        best_step: the step at which a rollout on the page had its highest score; None if that was at its start.
    """
    failures = failures_of(episodes)
    if not failures:
        return ""
    told, rows = [], []
    for row in failures:
        cause, alarms = _cause(row, familiarity)
        if row.seed in shown:
            told.append(_told(row, cause, group, best_step(row.seed)))
        rows.append(
            [
                str(row.seed),
                cause,
                f"{row.score:.3f}",
                _with_scale(float(np.median(row.distances)), familiarity),
                _with_scale(max(row.distances), familiarity),
                "" if familiarity is None else f"{alarms:.0%}",
                str(row.most_repeated),
                ", ".join(f"{episode} ({share:.0%})" for episode, share in row.demonstrations),
            ]
        )
    head = ["seed", "cause", "score", "distance, median", "largest", "alarm rate", "repeats", "most used episodes"]
    table = details_of("All of them, in numbers", f'<p class="note">{_NOTE}</p>{table_of(head, rows, 2)}')
    listed = f"<ul>{''.join(told)}</ul>" if told else ""
    return f"<h3>What happened in the {len(failures)} of {len(episodes)} that failed</h3>{listed}{table}"


def _with_scale(distance: float, familiarity: Familiarity | None) -> str:
    return f"{distance:.2f}" + (f", {familiarity.scale(distance)}" if familiarity else "")


def _cause(row: EpisodeResult, familiarity: Familiarity | None) -> tuple[str, float]:
    alarms = 0.0
    if familiarity is not None:
        alarms = float(np.mean([familiarity.at(first=i == 0).alarm(d) for i, d in enumerate(row.distances)]))
    causes: list[Any] = [("left the data", alarms > _LEFT_THE_DATA), ("looped", row.loop)]
    return " and ".join(word for word, found in causes if found) or "out of time", alarms


def _told(row: EpisodeResult, cause: str, group: int, best: int | None) -> str:
    def button(step: int, words: str) -> str:
        return f'<button data-open="{group},{row.seed},{step}">{words}</button>'

    end = "at the end" if best is None or best < row.steps else "at the end, which is its best"
    buttons = [button(row.steps, f"{end}, step {row.steps}")]
    if best is not None and best < row.steps:
        buttons.insert(0, button(best, f"at its best, step {best}"))
    return f"<li>Seed {row.seed}, score {row.score:.3f}: {html.escape(cause)}. Watch it {' '.join(buttons)}</li>"
