"""Datasets with the real LeRobotDataset: it reads what we wrote, and we read what it wrote."""

import numpy as np
import pytest
import torch
from conftest import train
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from PIL import Image

from closedform import Demos, Layout, load_demos, load_policy, save_demos
from closedform.demos.catalog import PUSHT_OBSERVATIONS
from lerobot_policy_closedform.observations import pusht_poses


def number(width):
    return {"dtype": "float32", "shape": (width,), "names": None}


def write_theirs(path, episodes, **more):
    """Episodes, lists of frames, with LeRobot's own writer."""
    features = {key: number(len(value)) for key, value in episodes[0][0].items() if key not in more}
    written = LeRobotDataset.create("local/theirs", 10, {**features, **more}, root=path)
    for index, frames in enumerate(episodes):
        for frame in frames:
            written.add_frame({**frame, "task": f"task {index % 2}"})
        written.save_episode()
    written.finalize()
    return written


def test_lerobot_reads_what_we_wrote(dataset, demos):
    theirs = LeRobotDataset("local/pusht", root=dataset)
    assert theirs.num_episodes == len(demos) and theirs.num_frames == sum(map(len, demos)) and theirs.fps == 10
    rows = np.cumsum([0, *map(len, demos)])
    for index in (0, int(rows[1]), int(rows[2]) - 1, theirs.num_frames - 1):
        episode = int(np.searchsorted(rows, index, side="right")) - 1
        frame, step = theirs[index], index - rows[episode]
        assert frame["episode_index"] == episode and frame["frame_index"] == step
        assert np.allclose(frame["observation.state"], demos[episode].observations[step], atol=1e-4)
        assert np.allclose(frame["action"], demos[episode].actions[step], atol=1e-4)
        assert frame["task"] == "demonstration" and frame["timestamp"].item() == pytest.approx(step / 10)
    stats = theirs.meta.stats["observation.state"]
    everything = np.concatenate([episode.observations for episode in demos]).astype(float)
    assert np.allclose(stats["mean"], everything.mean(0)) and np.allclose(stats["max"], everything.max(0))


def test_it_takes_windows_and_episodes_of_what_we_wrote(dataset, demos):
    deltas = {"observation.state": [-0.1, 0.0], "action": [0.0, 0.1, 0.2]}
    theirs = LeRobotDataset("local/pusht", root=dataset, episodes=[1, 3], delta_timestamps=deltas)
    assert theirs.num_frames == len(demos[1]) + len(demos[3])
    frame = theirs[len(demos[1]) + 4]
    assert np.allclose(frame["observation.state"], demos[3].observations[3:5], atol=1e-4)
    assert np.allclose(frame["action"], demos[3].actions[4:7], atol=1e-4) and not frame["action_is_pad"].any()
    assert theirs[len(demos[1]) - 1]["action_is_pad"].tolist() == [False, True, True]


def test_it_reads_tasks_and_rates_of_what_we_wrote(tmp_path):
    rng = np.random.default_rng(0)
    pairs = [(rng.normal(size=(5, 3)), rng.normal(size=(5, 1))) for _ in range(3)]
    demos = Demos(pairs, Layout.plain(3), Layout.plain(1), rate=20, tasks=["push", "pull", "push"])
    save_demos(demos, tmp_path / "ours", "lerobot")
    theirs = LeRobotDataset("local/ours", root=tmp_path / "ours")
    assert theirs.fps == 20 and [theirs[i]["task"] for i in (0, 5, 10)] == ["push", "pull", "push"]
    assert np.allclose(theirs[7]["action"], pairs[1][1][2])
    assert np.array_equal(load_demos(tmp_path / "ours")[1].actions, pairs[1][1])


def picture(episode, step):
    """A smooth one, which a video keeps almost as it is."""
    y, x = np.mgrid[:64, :96]
    return np.stack([x + 9 * step, 2 * y + 20 * episode, 100 + 0 * x + 5 * step], -1).astype(np.uint8)


def test_we_read_what_lerobot_wrote_and_its_videos(tmp_path):
    rng, lengths = np.random.default_rng(0), (7, 4, 6)
    camera = {"dtype": "video", "shape": (64, 96, 3), "names": ["height", "width", "channels"]}
    episodes = [
        [
            {
                "observation.state": rng.normal(size=3).astype("f4"),
                "action": rng.normal(size=2).astype("f4"),
                "observation.images.top": picture(index, step),
            }
            for step in range(length)
        ]
        for index, length in enumerate(lengths)
    ]
    write_theirs(tmp_path / "theirs", episodes, **{"observation.images.top": camera})
    ours = load_demos(tmp_path / "theirs")
    assert ours.cameras == ("observation.images.top",) and not ours.skipped and ours.rate == 10
    assert ours.tasks == ("task 0", "task 1", "task 0")
    for index, (episode, frames) in enumerate(zip(ours, episodes, strict=True)):
        assert np.array_equal(episode.observations, [frame["observation.state"] for frame in frames])
        assert np.array_equal(episode.actions, [frame["action"] for frame in frames])
        for step, found in enumerate(episode.images["observation.images.top"]):
            assert np.abs(found.astype(int) - picture(index, step)).mean() < 4
    assert len(load_demos(tmp_path / "theirs", episodes=[1])[0]) == 4


def test_lerobot_reads_the_videos_that_we_wrote(tmp_path):
    lengths = (5, 8)
    for index, length in enumerate(lengths):
        folder = tmp_path / "images" / "top" / f"episode_{index:06d}"
        folder.mkdir(parents=True)
        for step in range(length):
            Image.fromarray(picture(index, step)).save(folder / f"{step}.png")
    rng = np.random.default_rng(0)
    save_demos(
        Demos([(rng.normal(size=(n, 3)), rng.normal(size=(n, 2))) for n in lengths], rate=10), tmp_path / "plain"
    )
    save_demos(load_demos(tmp_path / "plain", images=tmp_path / "images"), tmp_path / "ours", "lerobot")
    theirs = LeRobotDataset("local/ours", root=tmp_path / "ours", video_backend="pyav")
    assert theirs.meta.video_keys == ["observation.images.top"] and len(theirs) == sum(lengths)
    for row in range(len(theirs)):
        frame = theirs[row]
        found = 255 * frame["observation.images.top"].permute(1, 2, 0).numpy()
        wanted = picture(frame["episode_index"].item(), frame["frame_index"].item())
        assert np.abs(found - wanted).mean() < 4


def test_lerobot_adds_episodes_to_what_we_wrote(tmp_path, demos):
    save_demos(demos, tmp_path / "ours", "lerobot")
    more = LeRobotDataset.resume("local/ours", root=tmp_path / "ours")
    rows = [np.full(5, i, "f4") for i in range(4)]
    for row in rows:
        more.add_frame({"observation.state": row, "action": row[:2], "task": "other"})
    more.save_episode()
    more.finalize()
    found = load_demos(tmp_path / "ours")
    assert len(found) == len(demos) + 1 and found.verified == len(demos)  # the checksums of the others still hold
    assert found.observation_layout == demos.observation_layout and found.tasks is not None
    assert found.tasks[-2:] == ("demonstration", "other")
    assert np.array_equal(found[len(demos)].observations, rows)


def keypoints_of(observations):
    """Push-T's observations (T, 5) as LeRobot's frames: the agent, and the keypoints of the block."""
    tee = np.array([(-60, 0), (60, 0), (60, 30), (-60, 30), (-15, 30), (15, 30), (15, 120), (-15, 120)], float)
    c, s = np.cos(observations[:, 4]), np.sin(observations[:, 4])
    turned = np.einsum("tij,kj->tki", np.stack([np.stack([c, -s], -1), np.stack([s, c], -1)], 1), tee)
    points = turned + observations[:, None, 2:4]
    return np.concatenate([observations[:, :2], points.reshape(len(points), 16)], axis=1)


def test_a_policy_is_fitted_to_poses_where_a_dataset_has_keypoints(tmp_path, demos):
    some = [demos[e] for e in range(3)]
    wide = [keypoints_of(episode.observations[:30]) for episode in some]
    assert np.allclose(pusht_poses(wide[0])[:, :4], some[0].observations[:30, :4])
    episodes = [
        [
            {"observation.state": row[:2], "observation.environment_state": row[2:], "action": action}
            for row, action in zip(rows.astype("f4"), episode.actions.astype("f4"), strict=False)
        ]
        for rows, episode in zip(wide, some, strict=True)
    ]
    write_theirs(tmp_path / "keypoints", episodes)
    policy = load_policy(
        train(tmp_path / "keypoints", tmp_path / "run", "--policy.keypoints=pusht", "--policy.only_task=*")
    )
    assert policy.observation_layout == PUSHT_OBSERVATIONS
    turn = 2 * np.pi
    for found, episode in zip(policy.episodes, some, strict=True):
        assert np.allclose(found.observations[:, :4], episode.observations[:30, :4], atol=1e-3)
        apart = (found.observations[:, 4] - episode.observations[:30, 4] + np.pi) % turn - np.pi
        assert np.abs(apart).max() < 1e-4
    plain = load_policy(
        train(tmp_path / "keypoints", tmp_path / "plain", "--policy.layout=none", "--policy.only_task=*")
    )
    assert plain.observation_layout == Layout.plain(18)
    assert torch.cuda.is_available() is False  # the environment of these tests
