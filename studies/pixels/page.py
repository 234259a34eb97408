"""The page of the study of pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from closedform.files import write_file
from studies.pixels.bodies import DEMOS
from studies.runner import Runner, interval, markdown_table

_WORDS = {
    "poses": "poses from the simulator",
    "bodies": "bodies found in pictures",
    "features": "features of pictures, without bodies",
}


def write_page(
    runner: Runner,
    rows: Sequence[dict[str, Any]],
    tried: Sequence[dict[str, Any]],
    films: Sequence[tuple[str, str]],
    harder: Mapping[str, str],
    missing: Sequence[str],
    n_demos: int,
) -> None:
    """Writes docs/results/pixels/README.md."""
    main = [row for row in rows if row["key"] in _WORDS]
    bodies = next(row for row in rows if row["key"] == "bodies")
    table = markdown_table(
        ["observations", "score", "success", "episodes", "ms a picture, median (p95)"],
        [
            [_WORDS[row["key"]], interval(row, "score"), interval(row, "success"), str(row["episodes"]), _ms(row)]
            for row in main
        ],
    )
    robust = markdown_table(
        ["pictures", "score", "success", "position error, median (p95)", "angle error, median (p95)"],
        [
            [
                *(harder.get(row["key"], "as the simulator draws them"), interval(row, "score")),
                *(interval(row, "success"), _error(row, "position", ""), _error(row, "angle", "°")),
            ]
            for row in rows
            if row["key"] in harder or row["key"] == "bodies"
        ],
    )
    ranked = sorted(tried, key=lambda row: -row["score"])
    features = markdown_table(
        ["maps", "readout", "projection", "numbers", "layout", "policy", "score", "success"],
        [
            [
                *(row["encoder"], row["readout"], row["projection"], str(row["rank"]), row["layout"]),
                row["settings"] or "default",
                interval(row, "score"),
                interval(row, "success"),
            ]
            for row in ranked
        ],
    )
    shown = "\n\n".join(f"![{name} episode]({name}.gif)\n\nThe {name} episode: {caption}." for name, caption in films)
    not_run = f"\nNot evaluated, since a package was missing: {', '.join(missing)}.\n" if missing else ""
    write_file(
        runner.output / "README.md",
        f"""# Push-T from pictures

Made by `{runner.command}`; [origin.json](origin.json) records versions and machine. Pictures have 96x96 pixels, the
agent's position is known, and the T is not: it is found in the pictures. Nothing is trained. The default policy, the
{n_demos} demonstrations of `{DEMOS}`, seeds from {bodies["seed"]} on; mean and 95% interval over episodes
([data](pixels.csv)).

{table}

With bodies, observations are the agent's position and the pose of the T, in demonstrations as well: they are rendered
from their states and perceived. With features, there is no pose, only the numbers described below. For comparison,
from pictures of the same size with a trained encoder, Diffusion Policy reports 0.84 (its best checkpoint 0.91) and GPI
0.83 (0.87); these are their numbers, not ours.

{shown}

Left: the picture, with outlines of the bodies where they were found. Right: the demonstrations that the current plan
follows and how they went on (green), carried over to the present, and the plan (black).

## Harder pictures

Noise, shadow and pattern are there while learning as well; the light changes afterward. Errors are over all steps of
all episodes, against the simulator, in units of 512 a side (a pixel is 5.3); the center and the zero angle of the found
body are fitted on the demonstrations.

{robust}

## Features without bodies

Maps of a picture are read out as moments (how much, where, how spread, how skewed) or as averages on a grid, and
projected to a few numbers. *pca*: where features vary most. *actions*, *features*, *both*: reduced-rank regression on
the next actions, on the features to come, and on both, without what the agent's position says by itself; the strength
of regularization is chosen on episodes held out. *one unit*: distances count as the regression scales them;
*each scaled*: every number to [-1, 1]. `lite0-3` are the first three blocks of EfficientNet-lite0, frozen, with weights
of ImageNet; the other maps are not trained at all. {ranked[0]["episodes"]} episodes each,
development seeds from {ranked[0]["seed"]} on ([data](features.csv)).

{features}
{not_run}""",
    )


def _ms(row: Mapping[str, Any]) -> str:
    return "" if row["frame_ms"] is None else f"{row['frame_ms']:.1f} ({row['frame_ms_p95']:.1f})"


def _error(row: Mapping[str, Any], what: str, unit: str) -> str:
    return f"{row[f'{what}_error']:.2f}{unit} ({row[f'{what}_error_p95']:.2f}{unit})"
