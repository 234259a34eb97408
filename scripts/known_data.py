"""Measures data sets that the default policy is known to succeed on; `closedform inspect` compares others with them.

    python scripts/known_data.py

docs/results/pusht and docs/results/robomimic say how often it does. Needs the datasets `pusht` and `robomimic-lift-10`
(`closedform data get NAME`), and takes a minute.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from closedform import load_demos
from closedform.analysis import examine

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "src/closedform/analysis/known.json"


def main() -> None:
    """Writes `known.json`."""
    rows = []
    for name, source, actions in (
        ("Push-T, human", "pusht", "recorded"),
        ("Push-T, embedded", "pusht-embedded", "recorded"),
        ("robomimic Lift, human", "robomimic-lift-10", "absolute"),
    ):
        health = examine(load_demos(source, actions=actions))
        errors = [error for error in health.prediction_error if error is not None]
        row = {
            "name": name,
            "episodes": health.n_episodes,
            "steps": health.n_steps,
            "error": round(float(np.median(errors)), 3),
        }
        rows.append(row)
        print(row)
    TARGET.write_text(json.dumps({"made_by": "python scripts/known_data.py", "data": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
