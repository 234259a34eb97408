"""LeRobot datasets whose description is odd, or whose frames are lost or double, are refused in one line."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from closedform import ClosedFormError, ClosedFormPolicy, Demos, load_demos, load_policy, save_demos
from closedform.cli import main
from tests.conftest import planar_demos
from tests.demos.bad_files import lerobot, refused


def add_file(path, number, episodes, **columns):
    n = len(episodes)
    table = {"observation.state": np.arange(n) + 0.5, "action": np.zeros(n), "episode_index": episodes, **columns}
    pq.write_table(pa.table(table), path / "data" / "chunk-000" / f"file-{number:03d}.parquet")


FEATURES = {"observation.state": {"dtype": "float64", "shape": [1]}, "action": {"dtype": "float64", "shape": [1]}}


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"fps": 10**400}, "steps per second, found a number too large"),
        ({"fps": 0}, "steps per second, found 0"),
        ({"fps": -5}, "found -5"),
        ({"fps": float("nan")}, "found nan"),
        ({"fps": float("inf")}, "found a number too large"),
        ({"fps": True}, "expected a number of steps per second, found True"),
        ({"fps": "10"}, "expected a number of steps per second, found '10'"),
        ({"features": FEATURES | {"action": {"shape": None}}}, "the shape of action to be whole numbers, found None"),
        ({"features": FEATURES | {"action": {"shape": ["1"]}}}, "the shape of action to be whole numbers"),
        ({"features": FEATURES | {"action": {"shape": [2**70]}}}, "the shape of action to be whole numbers"),
        ({"features": FEATURES | {"action": {"shape": [2]}}}, "expected action of 2 numbers, found 1"),
        ({"features": [1]}, "description of features"),
        ({"features": FEATURES | {"x": 1}}, "a dictionary for each feature"),
        ({"codebase_version": ["v3.0"]}, "expected a version"),
        ({"total_frames": 7}, "expected 7 frames according to info.json, found 4"),
        ({"total_episodes": 7}, "expected 7 episodes according to info.json, found 2"),
        ({"closedform": {"action_layout": 5}}, "expected action_layout to be a layout"),
        ({"closedform": {"action_layout": [{"kind": [], "size": 1}]}}, "expected action_layout to be a layout"),
        ({"closedform": {"closedform_checksums": 5}}, "expected closedform_checksums"),
    ],
    ids=str,
)
def test_odd_descriptions_of_lerobot_are_refused(tmp_path, facts, message):
    path = lerobot(tmp_path / "lr", **facts)
    add_file(path, 0, [0, 0, 1, 1])
    refused(path, message)


@pytest.mark.parametrize("order", ["frame_index", "index", "timestamp", None])
def test_files_with_the_same_episode_are_not_mixed(tmp_path, order):
    path = lerobot(tmp_path / "lr")
    frames = {"frame_index": [0, 1, 2], "index": [0, 1, 2], "timestamp": [0.0, 0.1, 0.2]}
    columns = {order: frames[order]} if order else {}
    add_file(path, 0, [0, 0, 0], **columns)
    add_file(path, 1, [0, 0, 0], **columns)
    refused(path, "(expected each frame of episode 0 once|found episode 0 twice: file-000.parquet, file-001.parquet)")


def test_an_episode_that_goes_on_in_another_file_is_put_together(tmp_path):
    path = lerobot(tmp_path / "lr")
    add_file(path, 0, [1, 1, 0], frame_index=[2, 3, 0])
    add_file(path, 1, [0, 1, 1], frame_index=[1, 0, 1])
    found = load_demos(path)
    assert [episode.observations[:, 0].tolist() for episode in found] == [[2.5, 0.5], [1.5, 2.5, 0.5, 1.5]]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"frame_index": [0, 1, 3, 0]}, "each frame of episode 0 once"),
        ({"frame_index": [1, 2, 3, 0]}, "each frame of episode 0 once"),
        ({"frame_index": [0, 1, np.nan, 0]}, "each frame of episode 0 once"),
        ({"index": [5, 5, 6, 7]}, "each frame of episode 0 once"),
        ({"timestamp": [0.0, 0.1, 0.1, 0]}, "each frame of episode 0 once"),
        ({"episode_index": [0, np.nan, 0, 1]}, "expected episode_index to be whole numbers, found nan"),
        ({"episode_index": [0, 0.5, 0, 1]}, "expected episode_index to be whole numbers, found 0.5"),
        ({"episode_index": [0, 1, 0, 1]}, "expected the frames of an episode together, found episode 0 twice"),
        ({"episode_index": ["a", "a", "a", "b"]}, "expected episode_index to be numbers"),
    ],
    ids=str,
)
def test_frames_that_are_lost_or_double_are_noticed(tmp_path, columns, message):
    path = lerobot(tmp_path / "lr")
    add_file(path, 0, columns.pop("episode_index", [0, 0, 0, 1]), **columns)
    refused(path, message)


def test_several_tasks_are_not_mixed(tmp_path, capsys):
    """Two opposite tasks would send every episode to one side."""
    demos = planar_demos(np.random.default_rng(0), 4, 8)
    both = Demos(demos, demos.observation_layout, demos.action_layout, 10.0, ["left", "right", "left", "left"])
    save_demos(both, tmp_path / "lr", "lerobot")
    read = load_demos(tmp_path / "lr")
    expected = "expected demonstrations of one task, found 'left' (3 episodes), 'right' (1 episodes); choose one with"
    for made in (
        lambda: ClosedFormPolicy(read),
        lambda: main(["fit", str(tmp_path / "lr"), "-o", str(tmp_path / "p")]),
    ):
        with pytest.raises((ClosedFormError, SystemExit)) as caught:
            made()
        assert expected in (str(caught.value) if caught.type is not SystemExit else capsys.readouterr().err)
    assert len(ClosedFormPolicy(read.of_task("left")).episodes) == 3
    assert len(ClosedFormPolicy(read.of_task("*")).episodes) == 4
    main(["fit", str(tmp_path / "lr"), "-o", str(tmp_path / "p"), "--only-task", "right"])
    assert load_policy(tmp_path / "p").fingerprint()["episodes"] == 1
    with pytest.raises(ClosedFormError, match=r"expected episodes of the task 'up', found 'left' \(3 episodes\)"):
        read.of_task("up")
    capsys.readouterr()
    main(["convert", str(tmp_path / "lr"), str(tmp_path / "folder")])
    assert "tasks not written: 'left' (3 episodes), 'right' (1 episodes); --only-task" in capsys.readouterr().out


def test_lengths_of_episodes_are_compared_with_the_table_of_episodes(tmp_path):
    demos = planar_demos(np.random.default_rng(0), 3, 8)
    demos.rate = 10.0
    save_demos(demos, tmp_path / "lr", "lerobot")
    table = tmp_path / "lr" / "meta" / "episodes" / "chunk-000" / "file-000.parquet"
    pq.write_table(pa.table({"episode_index": [0, 1, 2], "length": [8, 7, 8]}), table)
    refused(tmp_path / "lr", "episode 1: expected 7 frames according to meta/episodes, found 8 frames")
    table.unlink()
    lines = [json.dumps({"episode_index": i, "length": 8, "quality": 0.5}) for i in range(2)]
    (tmp_path / "lr" / "meta" / "episodes.jsonl").write_text("\n".join(lines))
    refused(tmp_path / "lr", "episode 2: expected no such episode according to meta/episodes")
