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
from closedform.deploy.perception.tracker import Tracker
from closedform.deploy.shared_camera import SharedCamera, picture_box
from closedform.files import check_writable, write_file
from closedform.twin.block import coverage
from closedform.twin.plant import SILENCE, Plant
from closedform.twin.settings import TwinSettings

DISTURBANCES = ("stopped for a second", "killed", "camera frozen")
DISTURBED_AFTER = 20  # steps
_LONG = 120.0  # seconds


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
    tracker = Tracker(plant["cell"], plant["intrinsics"], plant["camera"])
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
        done=lambda seen: coverage(1e-3 * seen[2], 1e-3 * seen[3], seen[4]) > 0.95,
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
    for _ in range(DISTURBED_AFTER if disturbance else 0):
        try:
            ours.recv()
        except EOFError:  # it ended before
            break
    disturb(process, plant, disturbance)
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
    return outcome(folder, plant, seed, disturbance)


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
    output: Annotated[Path, arg(aliases=["-o"])] = Path("docs/results/robot/clock.json")
    """The file to write."""

    def run(self) -> None:
        """Runs what is missing, prints a line for each episode and writes the file."""
        check_writable(self.output)
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
        facts = {"command": "python -m studies.robot_clock", "machine": provenance.machine(), "episodes": rows}
        write_file(self.output, json.dumps(facts, indent=1) + "\n")
        print(f"results: {self.output}")


if __name__ == "__main__":
    run(lambda: tyro.cli(Make))
