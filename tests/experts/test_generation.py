"""Scripted demonstrations: experts succeed, and the file is robomimic's, however often it was interrupted."""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from closedform import load_demos
from closedform.demos.robomimic_tasks import TASKS
from closedform.errors import ClosedFormError
from closedform.evaluation.robomimic import Robomimic
from closedform.experts.generation import generate
from closedform.experts.record import EXPERTS, record

h5py: Any = import_module("h5py")


def test_there_is_an_expert_for_every_task():
    assert set(EXPERTS) == set(TASKS)


@pytest.mark.parametrize("task", TASKS)
def test_experts_succeed(task):
    recorded = record(Robomimic(task), 0)
    assert recorded is not None and recorded.successes[-1] and len(recorded.actions) <= TASKS[task].max_steps
    assert recorded.actions.shape == (len(recorded.states), 7 * TASKS[task].n_arms)


def test_the_file_is_robomimics_and_replays(tmp_path):
    tried = generate("lift", 2, tmp_path / "lift.hdf5", seed=3)
    assert tried >= 2
    demos = load_demos(tmp_path / "lift.hdf5")
    assert demos.observation_layout == TASKS["lift"].observation_layout
    assert demos.action_layout == TASKS["lift"].action_layout and demos.rate == 20.0
    environment = Robomimic("lift")
    with h5py.File(tmp_path / "lift.hdf5") as file:
        data = file["data"]
        assert "scripted" in data.attrs["source"] and data.attrs["total"] == demos.n_steps
        assert json.loads(data.attrs["env_args"])["env_name"] == "Lift"
        assert set(data["demo_0"]) == {"obs", "actions", "states", "rewards", "dones"}
        assert "/robosuite/models" not in data["demo_0"].attrs["model_file"]
        for index, episode in enumerate(demos):
            group = data[f"demo_{index}"]
            environment.restore(group["states"][0], group.attrs["model_file"])
            assert any(environment.step(action).success for action in episode.actions)


def test_an_interrupted_generation_goes_on_and_workers_change_nothing(tmp_path):
    def stop(kept, tried):
        raise KeyboardInterrupt

    path = tmp_path / "lift.hdf5"
    with pytest.raises(KeyboardInterrupt):
        generate("lift", 3, path, progress=stop)
    assert not path.exists()
    with pytest.raises(ClosedFormError, match="a generation of 'lift' from seed 9 to resume, found"):
        generate("lift", 3, path, seed=9)
    generate("lift", 3, path)
    generate("lift", 3, tmp_path / "other.hdf5", workers=2)
    for a, b in zip(load_demos(path), load_demos(tmp_path / "other.hdf5"), strict=True):
        assert np.array_equal(a.observations, b.observations) and np.array_equal(a.actions, b.actions)
    assert not path.with_name("lift.hdf5.partial").exists()


@pytest.mark.parametrize(
    ("task", "n", "message"),
    [("kitchen", 2, "unknown task 'kitchen': expected one of lift, can"), ("lift", 0, "expected at least one episode")],
)
def test_what_cannot_be_generated_is_said(tmp_path, task, n, message):
    with pytest.raises(ClosedFormError, match=message):
        generate(task, n, tmp_path / "x.hdf5")


@pytest.mark.parametrize("task", TASKS)
def test_the_episodes_in_the_repository_replay(task):
    path = Path(__file__).parents[1] / "data" / "robomimic" / f"{task}.hdf5"
    environment = Robomimic(task)
    demos = environment.read(str(path))
    with h5py.File(path) as file:
        group = file["data/demo_0"]
        environment.restore(group["states"][0], group.attrs["model_file"])
    assert len(demos) == 2 and any(environment.step(action).success for action in demos[0].actions)


def test_an_episode_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path, n = tmp_path / "lift.hdf5", [0]
    create = h5py.Group.create_dataset

    def interrupted(*arguments, **options):
        n[0] += 1
        if n[0] == 12:  # in the middle of the second episode
            raise KeyboardInterrupt
        return create(*arguments, **options)

    monkeypatch.setattr(h5py.Group, "create_dataset", interrupted)
    with pytest.raises(KeyboardInterrupt):
        generate("lift", 2, path)
    monkeypatch.undo()
    generate("lift", 2, path)
    with h5py.File(path) as file:
        assert sorted(file["data"]) == ["demo_0", "demo_1"]
        assert all(set(demo) == {"obs", "actions", "states", "rewards", "dones"} for demo in file["data"].values())


def test_no_seed_is_left_out_by_several_workers(tmp_path):
    generate("lift", 7, tmp_path / "lift.hdf5", workers=2)
    with h5py.File(tmp_path / "lift.hdf5") as file:
        assert [file[f"data/demo_{i}"].attrs["seed"] for i in range(7)] == list(range(7))  # all of which succeed


def test_places_that_cannot_be_written_are_said_at_once(tmp_path):
    with pytest.raises(ClosedFormError, match="expected a file to write, found a folder"):
        generate("lift", 1, tmp_path)
    (tmp_path / "x.hdf5.partial").write_text("not HDF5")
    with pytest.raises(ClosedFormError, match=r"x\.hdf5\.partial: expected a generation to resume.*remove it"):
        generate("lift", 1, tmp_path / "x.hdf5")


def test_an_output_that_is_there_is_refused_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr("closedform.experts.generation.Robomimic", None)  # nothing is begun
    (tmp_path / "x.hdf5").write_text("mine")
    with pytest.raises(ClosedFormError, match=r"x\.hdf5: expected a path that does not exist yet"):
        generate("lift", 1, tmp_path / "x.hdf5")
    assert [path.name for path in tmp_path.iterdir()] == ["x.hdf5"]


def test_a_full_disk_is_one_line_and_loses_no_episode(tmp_path):
    """In a process of its own: HDF5 used to crash, and the limit is a process's."""
    script = """
import resource, sys
from pathlib import Path
from closedform.errors import SaveError
from closedform.experts import generation
from closedform.experts.record import RecordedEpisode
import numpy as np

def record(environment, seed):
    values = np.random.default_rng(seed).normal(size=(2000, 3))
    return RecordedEpisode(seed, {"object": values}, values, np.ones(2000, bool), values, "model")

generation.record, generation.Robomimic = record, lambda task: None
for limit, message in ((50_000, "seed_0"), (500_000, "x.hdf5: ")):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        generation.generate("lift", 4, Path("x.hdf5"))
        raise AssertionError("there was room")
    except SaveError as error:
        assert message in str(error) and "File too large; nothing was changed" in str(error), error
assert len(list(Path("x.hdf5.partial").glob("seed_*.hdf5"))) == 4 and not Path("x.hdf5").exists()
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
generation.record = None
print(generation.generate("lift", 4, Path("x.hdf5")), [path.name for path in Path().iterdir()])
"""
    pytest.importorskip("resource")
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "4 ['x.hdf5']\n"), done.stderr
    assert done.stderr == ""
    with h5py.File(tmp_path / "x.hdf5") as file:
        assert [file[f"data/demo_{i}"].attrs["seed"] for i in range(4)] == [0, 1, 2, 3]
