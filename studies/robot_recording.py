"""Demonstrations recorded in the twin through the runner, for the study `robot`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from concurrent.futures import as_completed
from pathlib import Path
from typing import Any

from tqdm import tqdm

from closedform import Demos, Policy, load_demos, save_demos
from closedform.errors import DataError
from closedform.evaluation.pusht import THRESHOLD
from closedform.evaluation.workers import make_pool, one_thread_each
from closedform.files import appearing, read_json, write_file
from closedform.robot.clocks import LockstepClock
from closedform.robot.control import LockstepControl
from closedform.robot.controller import Controller
from closedform.robot.runner import Runner
from closedform.robot.twin.settings import TwinSettings
from closedform.robot.twin.station import Station


def record_demonstrations(
    policy: Policy[Any], folder: Path, seeds: range, *, pictures: bool = True, workers: int = 1
) -> Path:
    """Runs a policy in the twin, through the runner, and keeps the episodes that accomplish the task.

    An episode that is on record is not run again.

    Args:
        policy: that acts.
        folder: for the record of each episode; the demonstrations come into its subfolder `demos`.
        seeds: one per episode.
        pictures: whether poses come from rendered pictures; from the simulator otherwise.
        workers: the number of processes.

    Returns:
        The folder of the demonstrations.
    """
    output = folder / "demos"
    if output.exists():
        return output
    todo = [seed for seed in seeds if not (folder / f"{seed}" / "result.json").exists()]
    if todo:
        _record_all(policy, folder, todo, pictures, min(workers, len(todo)))
    parts = [folder / f"{seed}" for seed in seeds]
    kept = [load_demos(str(part / "demos")) for part in parts if read_json(part / "result.json")["done"]]
    if not kept:
        raise DataError(f"{folder}: expected an episode that accomplished the task, found none of {len(parts)}")
    episodes = [episode for demos in kept for episode in demos]
    save_demos(Demos(episodes, kept[0].observation_layout, kept[0].action_layout, rate=kept[0].rate), output)
    return output


def _record_all(policy: Policy[Any], folder: Path, seeds: list[int], pictures: bool, workers: int) -> None:
    parts = [seeds[first::workers] for first in range(workers)]
    if workers == 1:
        _record_part(policy, folder, tqdm(seeds, desc="recording", leave=False, disable=None), pictures)
        return
    pool = make_pool(workers, _nothing, ())
    try:
        with one_thread_each():
            waiting = [pool.submit(_record_part, policy, folder, part, pictures) for part in parts]
        for future in as_completed(waiting):
            future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _nothing() -> None:
    """What a process has to do before its first episode."""


def _record_part(policy: Policy[Any], folder: Path, seeds: Iterable[int], pictures: bool) -> None:
    with contextlib.closing(Station(TwinSettings(), pictures=pictures)) as station:
        for seed in seeds:
            _record(station, policy, folder / f"{seed}", seed, pictures)


def _record(station: Station, policy: Policy[Any], folder: Path, seed: int, pictures: bool) -> None:
    """Runs one episode from its start state."""
    clock = LockstepClock()
    station.follow(clock)
    station.place(seed)
    with appearing(folder, folder=True) as new:
        control = LockstepControl(
            station.arm, Controller(station.kinematics, station.config, station.workspace), clock, new / "ticks"
        )
        try:
            with Runner(
                policy,
                control,
                station.camera if pictures else None,
                station.perception if pictures else station.truth,
                clock,
                station.kinematics,
                station.workspace,
                folder=new,
                control_config=station.config,
                done=lambda _: station.coverage() > THRESHOLD,
            ) as runner:
                result = runner.run(seed=seed)
        finally:
            control.close()
        write_file(new / "result.json", json.dumps(result._asdict()) + "\n")
