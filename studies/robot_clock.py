"""`python -m studies.robot_clock`: the whole chain on the wall clock, and what happens when parts of it fail.

The twin runs in a process of its own behind a fake UR controller; its camera's pictures come through shared memory; the
policy's process is started for each episode, with the unmodified ur_rtde in the controller's process. Some episodes are
disturbed on purpose: the policy's process is stopped for a second or killed, or the camera freezes.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from tyro.conf import arg

from closedform import ClosedFormPolicy, Episode, load_demos, provenance
from closedform.cli import run
from closedform.deploy import ControlProcess, ControlSpec, Mode, Runner, WallClock, read_journal
from closedform.deploy.drivers.ur import UrArm
from closedform.deploy.perception.marker_perception import MarkerPerception
from closedform.deploy.perception.tracker import MarkerTracker
from closedform.deploy.shared_camera import SharedCamera, picture_box
from closedform.evaluation.intervals import wilson_ci95
from closedform.evaluation.pusht import THRESHOLD
from closedform.files import check_writable, write_file
from closedform.twin.block import coverage
from closedform.twin.plant import SILENCE, Plant
from closedform.twin.settings import TwinSettings
from studies.runner import markdown_table

DISTURBANCES = ("stopped for a second", "killed", "camera frozen")
DISTURBED_AFTER = 20  # steps
_LONG = 120.0  # seconds
COMMAND = "python -m studies.robot_clock"


def policy_process(plant: dict[str, Any], folder: Path, seed: int, pipe: Connection) -> None:
    """One episode, in the process that may be stopped or killed."""
    camera = SharedCamera(picture_box(plant["intrinsics"].size, plant["box"]), plant["intrinsics"])
    policy = ClosedFormPolicy(load_demos("pusht-embedded"))
    policy.warm_up()
    spec = ControlSpec(
        partial(UrArm, plant["host"], silence=SILENCE),
        plant["kinematics"],
        plant["config"],
        plant["workspace"],
        folder / "ticks",
    )
    tracker = MarkerTracker(plant["cell"], plant["intrinsics"], plant["camera"])
    plane = plant["workspace"].plane
    perception = MarkerPerception(policy.observation_layout, "agent", tracker, plant["kinematics"], plane)
    control = ControlProcess(spec)
    with Runner(
        policy,
        control,
        camera,
        perception,
        WallClock(),
        plant["kinematics"],
        plant["workspace"],
        folder=folder,
        control_config=plant["config"],
        done=lambda seen: coverage(1e-3 * seen[2], 1e-3 * seen[3], seen[4]) > THRESHOLD,
        watch=lambda step: pipe.send(step.status.time),
    ) as runner:
        runner.run(seed=seed)
    control.close()
    camera.close()


def episode(plant: Plant, folder: Path, seed: int, disturbance: str | None) -> dict[str, Any]:
    """Runs an episode and says what is on record about it."""
    plant.freeze(False)
    plant.place(seed)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=policy_process, args=(plant.facts(), folder, seed, theirs))
    process.start()
    theirs.close()
    disturbed = disturbance is not None
    for _ in range(DISTURBED_AFTER if disturbance else 0):
        try:
            ours.recv()
        except EOFError:  # it ended before
            disturbed = False
            break
    disturb(process, plant, disturbance if disturbed else None)
    while process.is_alive():
        try:
            if ours.poll(1.0):
                ours.recv()
        except EOFError:
            break
    process.join()
    ours.close()
    end = time.monotonic() + _LONG
    while not (folder / "ticks" / "episode_000000.safetensors").exists() and time.monotonic() < end:
        time.sleep(0.05)  # the controller's process completes its record
    return {**outcome(folder, plant, seed, disturbance), "disturbed": disturbed}


def disturb(process: Any, plant: Plant, disturbance: str | None) -> None:
    """Does what is to go wrong."""
    if disturbance == "killed":
        process.kill()
    elif disturbance == "camera frozen":
        plant.freeze()
    elif disturbance is not None:
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(1.0)
        os.kill(process.pid, signal.SIGCONT)


def outcome(folder: Path, plant: Plant, seed: int, disturbance: str | None) -> dict[str, Any]:
    """What the record says about an episode."""
    ticks: Episode = load_demos(folder / "ticks")[0]
    lateness, actions = 1e3 * ticks.observations[:, 1], ticks.actions
    sent, arrived = actions[actions[:, 9] > 0, :6], plant.commands()[:, :6]
    speeds = np.diff(sent, axis=0) / plant.config.period
    changes = np.diff(speeds, axis=0, prepend=np.zeros((1, 6))) / plant.config.period
    lines = read_journal(folder / "journal.jsonl")
    steps = [line for line in lines if line["kind"] == "step"]
    ends = [line["reason"] for line in lines if line["kind"] == "end"]
    halts = np.flatnonzero(actions[:, 6] == Mode.HALT)
    moving = np.flatnonzero(np.any(np.diff(actions[:, :6], axis=0) != 0, axis=1))
    followed = set(actions[actions[:, 6] == Mode.RUN, 8].astype(int))
    halt_time = ticks.observations[moving[-1] + 1, 0] - ticks.observations[halts[0], 0] if len(halts) else None
    return {
        "seed": seed,
        "disturbance": disturbance,
        "reason": ends[0] if ends else "the policy's process was killed",
        "coverage": plant.coverage(),
        "steps": len(steps),
        "ticks": len(ticks.actions),
        "lateness_ms": np.percentile(lateness, [50, 99, 100]).round(3).tolist(),
        "sent": len(sent),
        "arrived": len(arrived),
        "unrecorded": len(followed - {line["sequence"] for line in steps}),
        "all_arrived": bool(len(sent) == len(arrived) and np.array_equal(sent, arrived)),
        "halted": bool(len(halts)),
        "seconds_to_rest": None if halt_time is None else round(max(0.0, float(halt_time)), 3),
        "acceleration": round(float(np.abs(changes).max()), 2),
        "observe_ms": np.percentile([line["ms"]["observe"] for line in steps], [50, 99]).round(1).tolist(),
        "plan_ms": np.percentile([line["ms"]["plan"] for line in steps], [50, 99]).round(1).tolist(),
    }


@dataclass(frozen=True)
class Make:
    """Run the whole chain on the wall clock; episodes that are on record are not run again."""

    episodes: int = 20
    """Undisturbed episodes; each disturbance is one more."""
    host: str = "127.0.0.77"
    """Loopback address of the fake controller."""
    fps: float = 30.0
    """Pictures a second; fewer for a slow computer."""
    work: Path = Path("outputs/robot_clock")
    """Folder for the records."""
    output: Annotated[Path, arg(aliases=["-o"])] = Path("docs/results/robot")
    """Folder for clock.json and clock.md."""

    def run(self) -> None:
        """Runs what is missing, prints a line for each episode and writes the results."""
        check_writable(self.output / "clock.json")
        plant, rows = None, []
        cases: list[tuple[int, str | None]] = [(100000 + i, None) for i in range(self.episodes)]
        cases += [(200000 + i, disturbance) for i, disturbance in enumerate(DISTURBANCES)]
        try:
            for seed, disturbance in cases:
                folder = self.work / str(seed)
                if not (folder / "outcome.json").exists():
                    plant = plant or Plant(self.host, TwinSettings(fps=self.fps))
                    if folder.exists():  # an interrupted one
                        folder.rename(folder.with_name(f"{seed}-interrupted-{time.time_ns()}"))
                    row = episode(plant, folder, seed, disturbance)
                    write_file(folder / "outcome.json", json.dumps(row))
                rows.append(json.loads((folder / "outcome.json").read_text(encoding="utf-8")))
                print({key: rows[-1][key] for key in ("seed", "disturbance", "reason", "coverage", "lateness_ms")})
        finally:
            if plant is not None:
                plant.close()
        ticks = [load_demos(self.work / str(row["seed"]) / "ticks")[0] for row in rows if not row["disturbance"]]
        lateness = 1e3 * np.concatenate([episode.observations[:, 1] for episode in ticks])
        facts = {
            "command": COMMAND,
            "commit": provenance.commit(),
            "date": provenance.now(),
            "versions": provenance.versions(),
            "machine": provenance.machine(),
            "fps": self.fps,
            "ticks": len(lateness),
            "lateness_ms": np.percentile(lateness, [50, 99, 100]).round(3).tolist(),
            "episodes": rows,
        }
        write_file(self.output / "clock.json", json.dumps(facts, indent=1) + "\n")
        write_file(self.output / "clock.md", page(facts))
        print(f"results: {self.output / 'clock.md'}")


def page(facts: dict[str, Any]) -> str:
    """The results in words and tables."""
    rows, (half, most, worst) = facts["episodes"], facts["lateness_ms"]
    calm, disturbed = ([row for row in rows if bool(row["disturbance"]) == which] for which in (False, True))
    done = sum(row["reason"] == "done" for row in calm)
    covered = sum(row["coverage"] > THRESHOLD for row in calm)
    low, high = wilson_ci95(covered, len(calm))
    table = [
        [
            row["disturbance"] + ("" if row["disturbed"] else " (ended before it came to that)"),
            row["reason"],
            "-" if row["seconds_to_rest"] is None else f"{row['seconds_to_rest']:.2f} s",
            f"{row['acceleration']:.1f} rad/s²",
            f"{row['arrived']} of {row['sent']}",
            f"{row['steps']}, {row['unrecorded']} missing",
        ]
        for row in disturbed
    ]
    head = ["the policy's process or its camera", "reason on record", "from halt to rest"]
    head += ["greatest acceleration", "commands that arrived", "steps on record"]
    processor, cores = facts["machine"]["processor"], facts["machine"]["cores"]
    return f"""# The whole chain on the wall clock

Made by `{COMMAND}` (commit {facts["commit"]}, {facts["date"][:10]}; {processor}, {cores} cores, which also run the
simulation and render {facts["fps"]:g} pictures a second); [clock.json](clock.json) has every episode. Pictures of the
twin through shared memory, detection, the default policy, the 200 Hz controller in a process of its own, the unmodified
`ur_rtde`, and a fake controller box that moves the twin.

- **{len(calm)} episodes**: the runner ended {done} as done; the outline was really covered above {THRESHOLD:g} at the
  end of {covered} [{low:.2f}, {high:.2f}].
- **Lateness** of the 200 Hz loop: median {half:.2f} ms, one of a hundred above {most:.2f} ms, worst {worst:.1f} ms of
  {facts["ticks"]:,} ticks.
- **Commands**: {sum(row["sent"] for row in calm):,} sent, {sum(row["arrived"] for row in calm):,} arrived;
  {sum(row["all_arrived"] for row in calm)} of {len(calm)} episodes with every one of them, in order and unchanged.
- **Record**: {sum(row["unrecorded"] for row in calm)} steps that the controller followed are not in the journal.
- A step: detection {_range(calm, "observe_ms")}, planning {_range(calm, "plan_ms")} (medians of the episodes).

## What happens when a part fails

After {DISTURBED_AFTER} steps, on purpose. A halt within the limits of acceleration is smooth.

{markdown_table(head, table)}
"""


def _range(rows: list[dict[str, Any]], name: str) -> str:
    medians = [row[name][0] for row in rows]
    return f"{min(medians):.1f} to {max(medians):.1f} ms"


if __name__ == "__main__":
    run(lambda: tyro.cli(Make))
