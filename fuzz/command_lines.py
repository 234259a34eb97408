"""Unusual command lines: they work, or fail with one line that says why."""

from __future__ import annotations

import dataclasses
import io
import os
import shutil
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from closedform import ClosedFormPolicy, save_demos
from closedform.cli import commands, main
from closedform.errors import ConfigError
from fuzz.results import make_results
from fuzz.worker import WrongResultError
from fuzz.worlds import make_demos

WORLD = {"observations": "hand position 2, block position 2, block angle", "actions": "hand position 2", "seed": 3}
WORLD |= {"n_episodes": 3, "n_steps": 12, "scale": 1.0, "repeated": False, "still": False}
DEMOS = ("demos", "demos", "demos.hdf5", "demos.zarr", "demos.npz", "policy", "a.json", "text", "nowhere")
ODD = ("", ".", "..", "-", "--", "x" * 300, "\udcff", "²", "٣", "~nouser", "a/b/c", "$x^{$", "\n", "pusht")
NUMBERS = ("0", "1", "2", "-1", "0.5", "nan", "inf", "-inf", "1e400", "9" * 30, "9" * 5000, "²", "٣", "0x1", "1_0", "")
SETTINGS = ("tau", "bandwidth", "n_neighbors", "n_action_steps", "n_diffusion_steps", "frames", "padding", "nothing")
NOT_RUN = "as far as a command gets while fuzzing"
POSITIONAL = {
    "compare": ("results", "results"),
    "convert": ("demos", "new"),
    "data": ("data", "word"),
    "edit": ("edit", "policy"),
    "fit": ("demos",),
    "index": ("demos",),
    "info": ("policy",),
    "inspect": ("demos",),
    "report": ("results", "results"),
    "serve": ("demos",),
    "train": ("demos",),
    "tune": ("demos",),
}
USUAL = {
    "edit": ["--demos", "demos", "--everything", "demos", "--output", "new"],
    "eval": ["--demos", "demos", "--env", "pusht"],
    "explain": ["--demos", "demos", "--observation", "0.1", "0.2", "0.3", "0.4", "0.5"],
    "fit": ["--output", "new"],
    "generate": ["--task", "lift", "--output", "new.hdf5"],
    "index": ["--output", "new"],
    "monitor": ["--upstream", "ws://127.0.0.1:9", "--demos", "demos"],
    "train": ["--output", "new"],
}


class CommandLines:
    """Runs `closedform` in this process, in a folder with files of every kind; long work is never started."""

    def __init__(self, folder: Path) -> None:
        """Makes the files that commands run on."""
        self._folder, demos = folder, make_demos(WORLD)
        save_demos(demos, folder / "demos")
        save_demos(demos, folder / "demos.hdf5")
        save_demos(demos, folder / "demos.zarr")
        everything = {"observations": demos.all_observations(), "actions": demos.all_actions()}
        np.savez(folder / "demos.npz", **everything, episode_ends=[12, 24, 36])  # pyright: ignore[reportArgumentType]
        ClosedFormPolicy(demos, n_action_steps=4).save(folder / "policy")
        for name in ("a.json", "b.json"):
            make_results(name).save(folder / name)
        (folder / "text").write_text("text\n")
        forbid_long_work()
        run_command(["inspect", str(folder / "demos"), "--output", str(folder / "warm_up")], folder, "80")

    def draw(self, rng: np.random.Generator) -> dict[str, Any]:
        """A command with arguments that mostly have the right form."""
        command = str(rng.choice(list(commands())))
        arguments = [_word(rng, kind) for kind in POSITIONAL.get(command, ())]
        fields = [f for f in dataclasses.fields(commands()[command]) if f.kw_only or f.name in ("json", "output")]
        arguments += USUAL.get(command, []) if rng.random() < 0.8 else []
        for field in rng.permutation(np.array(fields, object))[: int(rng.choice([0, 0, 1, 1, 2, 4]))]:
            option = "-o" if field.name == "output" else f"--{field.name.replace('_', '-')}"
            arguments += [option, *_value(rng, field.name, str(field.type))]
        if rng.random() < 0.15:
            extra = str(rng.choice(["--help", "--version", "--nothing", *ODD]))
            arguments.insert(int(rng.integers(len(arguments) + 1)), extra)
        columns = str(rng.choice(["80", "80", "80", "5", "1", "0", "-1", "x", "1000000"]))
        closed = bool(rng.random() < 0.05)
        return {"arguments": [command, *arguments], "columns": columns, "closed": closed}

    def check(self, case: dict[str, Any], folder: Path) -> None:
        """Runs it in a copy of the folder."""
        shutil.copytree(self._folder, folder, dirs_exist_ok=True)
        run_command(case["arguments"], folder, case.get("columns", "80"), closed=case.get("closed", False))


def run_command(arguments: Sequence[str], folder: Path, columns: str = "80", *, closed: bool = False) -> None:
    """Runs a command like a shell; raises `ConfigError` if it refused with one line, and other errors otherwise.

    Args:
        arguments: the command line.
        folder: for temporary output.
        columns: the width of the terminal, as in the environment variable.
        closed: whether the reader of the output has closed the pipe.
    """
    if closed:
        reader, writer = os.pipe()
        os.close(reader)
        stdout = os.fdopen(writer, "w", encoding="utf-8")
    else:
        stdout = (folder / ".stdout").open("w", encoding="utf-8")
    before = sys.stdout, sys.stderr, warnings.showwarning, list(sys.path), os.environ.get("COLUMNS")
    sys.stdout, sys.stderr = stdout, io.StringIO()
    os.environ["COLUMNS"] = columns
    status: Any = 0
    try:
        main(arguments)
    except SystemExit as stop:
        status = stop.code
    finally:
        said = sys.stderr.getvalue()
        sys.stdout, sys.stderr, warnings.showwarning, sys.path[:], width = before
        os.environ["COLUMNS"] = width or "80"
        stdout.close()  # flushes, as at the end of a process
    lines = said.splitlines()
    for line in lines:
        if not line.startswith("closedform: "):
            raise WrongResultError(f"a line that is not a message of closedform: {line!r}")
    if status and not closed:  # without a reader, messages are optional
        errors = [line for line in lines if len(line) > len("closedform: ")]
        if not errors:
            raise WrongResultError(f"exit status {status} without a message")
        if not errors[-1].endswith(NOT_RUN):
            raise ConfigError(errors[-1])


def forbid_long_work() -> None:
    """Replaces the functions that evaluate, train, film, generate and serve, so that commands stop there."""
    import closedform.analysis.report as report
    import closedform.evaluation.study as study
    import closedform.neural.training as training
    from closedform.serve import Gr00tServer, MonitorServer, OpenpiServer

    def refuse(*_: Any, **__: Any) -> Any:
        raise ConfigError(NOT_RUN)

    for owner, name in (
        (study, "evaluate"),
        (training.Trainer, "run"),
        (report, "filmed"),
        (MonitorServer, "run"),
        (OpenpiServer, "run"),
        (Gr00tServer, "run"),
    ):
        getattr(owner, name)  # it has to exist under this name
        setattr(owner, name, refuse)
    commands()["generate"].run = commands()["studio"].run = refuse


def _word(rng: np.random.Generator, kind: str) -> str:
    if rng.random() < 0.06:
        return str(ODD[int(rng.integers(len(ODD)))])
    choices: dict[str, Sequence[str]] = {
        "demos": DEMOS,
        "policy": ("policy", "policy", "pusht-dit", "demos", "nowhere"),
        "results": ("a.json", "b.json", "b.json", "text", "nowhere", "demos"),
        "new": (
            "new",
            "new.zarr",
            "new.hdf5",
            "new.npz",
            "new.csv",
            "new.zarr.zip",
            "deep/er/new",
            "demos",
            "text",
            "text/new",
            "policy",
        ),
        "data": ("list", "path", "get", "verify"),
        "word": ("nothing", "pusht", "demos", "robomimic-lift-10", "--json"),
        "edit": ("guide", "augment"),
    }
    return str(rng.choice(choices[kind]))


def _value(rng: np.random.Generator, name: str, kind: str) -> list[str]:
    """Values for an option, by its name and type."""
    number = str(NUMBERS[int(rng.integers(len(NUMBERS)))])
    special: dict[str, Callable[[], list[str]]] = {
        "set": lambda: [f"{rng.choice(SETTINGS)}={number}", *(["x"] if rng.random() < 0.1 else [])],
        "policy": lambda: [str(rng.choice(["default", "paper", "1nn", "vinn", _word(rng, "policy")]))],
        "env": lambda: [
            str(rng.choice(["pusht", "nothing", "json:nothing", ":", "nowhere.at.all:x", _word(rng, "word")]))
        ],
        "demos": lambda: [_word(rng, "demos")],
        "everything": lambda: [_word(rng, "demos")],
        "familiar": lambda: [_word(rng, "demos")],
        "json": lambda: [] if "bool" in kind else [str(rng.choice(["new.json", "a.json", "/", "text/x", "demos"]))],
        "output": lambda: [_word(rng, "new")],
        "to": lambda: [str(rng.choice(["folder", "zarr", "robomimic", "lerobot", "csv"]))],
        "task": lambda: [str(rng.choice(["lift", "nothing"]))],
        "device": lambda: [str(rng.choice(["cpu", "auto", "cuda", "nope", ""]))],
        "actions": lambda: [str(rng.choice(["recorded", "absolute", "absolute_6d", "displacements", "x"]))],
        "preset": lambda: [str(rng.choice(["default", "paper", "x"]))],
        "episodes": lambda: [
            str(rng.choice(["0", "0:2", "1,2", "2:0", "9", f"0:{number}", number, "0:1000000000000"]))
        ],
        "observation": lambda: [number, "0.1", "0.2", "0.3", "0.4"],
        "observation_layout": lambda: [
            str(
                rng.choice(
                    ["hand position 2, - other 3", "hand position 2, - ignored 3", "- other ²", "x", ",", "- other 5"]
                )
            )
        ],
    }
    if name in special:
        return special[name]()
    return [number] if any(word in kind for word in ("int", "float")) else [_word(rng, "word")]
