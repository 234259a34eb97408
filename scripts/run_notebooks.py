"""Runs all notebooks of examples/notebooks, with smaller numbers than a reader would choose: `make test-notebooks`."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[1] / "examples" / "notebooks"
SMALLER = {  # what a reader runs, and what is run here
    "02_push_t": {"episodes=20": "episodes=2"},
    "03_wrong_way_round": {"N_SAMPLES = 12": "N_SAMPLES = 2", '"pusht-dit")': '"pusht-dit").with_sampling("ddim", 10)'},
    "04_never_seen_the_right": {
        "N_EPISODES = 8": "N_EPISODES = 1\nPushT.max_steps = 40",
        '"pusht-dit-left")': '"pusht-dit-left").with_sampling("ddim", 10)',
    },
    "06_pixels": {"episodes=4, demonstrations=100": "episodes=1, demonstrations=6"},
    "07_pendulum": {"range(100000, 100050)": "range(100000, 100001)"},
}


def made_smaller(name: str, notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The notebook with the replacements of `SMALLER`."""
    for old, new in SMALLER.get(name, {}).items():
        having = [cell for cell in notebook.cells if old in cell.source]
        assert len(having) == 1, f"{name}: expected one cell with {old}, found {len(having)}"
        having[0].source = having[0].source.replace(old, new)
    return notebook


def main() -> None:
    """Runs each in a folder of its own; stops at the first that fails, with its error."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        start = time.perf_counter()
        notebook = made_smaller(path.stem, nbformat.read(path, as_version=4))
        with tempfile.TemporaryDirectory() as folder:
            NotebookClient(notebook, timeout=600, resources={"metadata": {"path": folder}}).execute()
        print(f"{path.name}: {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
