"""Changed results files: `compare` and `report` read or refuse them, and run no code that they name."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from closedform.evaluation.episode_result import EpisodeResult
from closedform.evaluation.evaluation_result import EvaluationResult
from closedform.evaluation.origin import Origin
from closedform.evaluation.subject import Subject
from fuzz import changes
from fuzz.worker import WrongResultError

CANARY = "fuzz_canary"
N_EPISODES = 4


def make_results(name: str) -> EvaluationResult:
    """Results of an evaluation in an environment that is not installed."""
    rng = np.random.default_rng(len(name))
    rows = []
    for seed in range(N_EPISODES):
        scores = rng.uniform(0, 1, 4)
        rows.append(
            EpisodeResult(
                seed=100000 + seed,
                score=float(scores[0]),
                success=bool(scores[1] > 0.5),
                steps=int(100 * scores[2]) + 1,
                most_repeated=1,
                loop=False,
                demonstrations=((0, 0.5),),
                distances=(0.5, float(scores[3])),
                latency_ms=(1.0, 2.0),
                neural_shares=(0.25, 1.0),
                frames=(("block", 1), ("world", 1)),
                held=(("", 2),),
                n_effective=(1.0, 2.5),
                shrinkage=0.1,
                outside=(0.25, "entry 4 (block angle)"),
                extra={"turns": [[3, 0.5, 30]]},
            )
        )
    subject = Subject(
        env="nothing",
        demos={"name": "demos", "episodes": 3, "steps": 36, "crc32": "0"},
        policy={"name": "default", "class": "ClosedFormPolicy"},
        parameters={"tau": 0.07},
        seed=100000,
        n_episodes=N_EPISODES,
    )
    origin = Origin(
        command="closedform eval",
        date="2026-01-01T00:00:00",
        versions={"closedform": "0.1.0"},
        machine={"processor": "x", "cores": 2},
    )
    return replace(EvaluationResult.of(subject, rows, origin), extra={"notes": ["a note"]})


class Results:
    """Two results files, one of them changed."""

    def __init__(self, folder: Path) -> None:
        """Writes the originals."""
        from fuzz.command_lines import forbid_long_work

        self._folder = folder
        for name in ("a.json", "b.json"):
            make_results(name).save(folder / name)
        forbid_long_work()
        (folder / "warm_up").mkdir()
        self.check({"command": ["report"], "changes": []}, folder / "warm_up")

    def draw(self, rng: np.random.Generator) -> dict[str, Any]:
        """Changes of one of the files, and the command to run on them."""
        drawn = changes.draw_changes(rng, self._folder / "b.json")
        if rng.random() < 0.1:
            code = str(rng.choice([f"{CANARY}:run", "os:abort", "builtins:breakpoint", f"{CANARY}:Run"]))
            drawn.append({"file": "", "do": "json", "at": ["env"], "value": code})
        command = [["compare"], ["compare"], ["compare", "--json"], ["report"]][int(rng.integers(4))]
        name = str(rng.choice(["b.json", "b.json", "$x^{$.json", "<b>.json", "\udcff.json"]))
        return {"command": command, "changes": drawn, "name": name, "both": bool(rng.random() < 0.3)}

    def check(self, case: dict[str, Any], folder: Path) -> None:
        """Compares with or reports on the changed file."""
        from fuzz.command_lines import run_command

        changed, other = folder / case.get("name", "b.json"), folder / "a.json"
        for path, name in ((changed, "b.json"), (other, "a.json")):
            path.write_bytes((self._folder / name).read_bytes())
        for path in (changed, other) if case.get("both") else (changed,):
            changes.apply(path, case["changes"])
        canary = folder / "canary"
        program = f"import pathlib\npathlib.Path({str(canary)!r}).mkdir()\ndef run(): pass\n"
        (folder / f"{CANARY}.py").write_text(program)
        try:
            output = ["-o", str(folder / "report.html")] if case["command"] == ["report"] else []
            run_command([*case["command"], str(changed), str(other), *output], folder)
        finally:
            sys.modules.pop(CANARY, None)
            if canary.exists():
                raise WrongResultError("code ran from a results file")
