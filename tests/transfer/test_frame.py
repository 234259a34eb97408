"""Frames transfer chunks, and agreement finds the frame in which demonstrations are the same."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from closedform import ClosedFormError, ClosedFormPolicy, Demos, Layout
from closedform.geometry.encoding import Encoding
from closedform.geometry.rigid import into_frame, out_of_frame
from closedform.kernels.records import RowsRecord, Transfers
from closedform.kernels.transfer import find_voters, transfer_chunk
from closedform.transfer.frame import N_VOTERS, BodyPoses, frame_axes, voters

PLANAR = Layout.of(("hand", "position", 2), ("block", "position", 2), ("block", "angle"))
SPATIAL = Layout.of(("hand", "position", 3), ("hand", "quaternion"), ("can", "position", 3), ("can", "rotation6d"))
PLANAR_ACTION = Layout.of(("hand", "position", 2), ("hand", "angle"), ("hand", "vector", 2), (None, "binary"))
SPATIAL_ACTION = Layout.of(("hand", "position", 3), ("hand", "rotation6d"), (None, "binary"))


def observations_of(layout, rng, n):
    values = rng.normal(size=(n, layout.width))
    for entry, columns in layout.slices():
        if entry.kind == "quaternion":
            values[:, columns] /= np.linalg.norm(values[:, columns], axis=1, keepdims=True)
        elif entry.kind == "rotation6d":
            values[:, columns] = Encoding(Layout.of(("a", "rotation6d"))).decode(values[:, columns])
        elif entry.kind == "binary":
            values[:, columns] = np.sign(values[:, columns])
    return values


@pytest.mark.parametrize(("layout", "action_layout"), [(PLANAR, PLANAR_ACTION), (SPATIAL, SPATIAL_ACTION)])
def test_leaving_a_frame_undoes_entering_it_and_kernels_enter_alike(layout, action_layout):
    rng = np.random.default_rng(0)
    encoding = Encoding(action_layout)
    poses_of = BodyPoses(layout, encoding.dimension)
    poses = poses_of(observations_of(layout, rng, 6))
    chunks = encoding.encode(observations_of(action_layout, rng, 6 * 4)).reshape(6, 4, -1)
    blocks = np.array([(b.start, b.size, b.turns, b.moves, 0) for b in encoding.blocks], np.int64)
    hands, turns, choice = np.full((1, 3), -1), np.zeros((1, 3, 3)), np.array([(0, -1)])
    offset, scale = rng.normal(size=encoding.width), rng.uniform(0.5, 2, size=encoding.width)
    names, held = [], np.full((6, 1), -1)
    for frame in poses_of.frames():
        names.append(frame.name)
        axes = frame_axes(frame, poses, poses_of.dimension)
        inside = into_frame(chunks, encoding.blocks, *axes)
        np.testing.assert_allclose(out_of_frame(inside, encoding.blocks, *axes), chunks, atol=1e-12)
        for i in range(6):
            transferred = np.empty(4 * encoding.width)
            rotation = np.empty((poses_of.dimension, poses_of.dimension))
            frames = np.array([(frame.body, frame.turns, 0)])
            rows = RowsRecord(np.empty((0, 0)), 6, chunks.reshape(24, -1), 4 * np.arange(6), np.arange(6), poses, held)
            scaling = offset[None], scale[None], np.empty(0)
            transfers = Transfers(
                4, blocks, frames, hands, turns, poses_of.dimension, *scaling, N_VOTERS, 2.0, np.zeros(len(hands))
            )
            transfer_chunk(rows, i, transfers, choice, rotation, transferred)
            np.testing.assert_allclose(transferred, ((inside[i] - offset) * scale).ravel(), atol=1e-12)
    expected = ["world", "hand", "block", "block.position"]
    assert names == (expected if layout is PLANAR else ["world", "hand", "hand.position", "can", "can.position"])


def test_frames_are_selected_by_name():
    poses = BodyPoses(PLANAR, 2)
    assert [frame.name for frame in poses.select("block, world")] == ["block", "world"]
    with pytest.raises(ClosedFormError, match="unknown frame 'lid': expected 'auto' or some of world, hand, block"):
        poses.select("lid")


def test_without_moving_entries_there_is_only_the_world():
    assert [frame.name for frame in BodyPoses(PLANAR, Encoding(Layout.plain(2)).dimension).frames()] == ["world"]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), min_size=1, max_size=60))
def test_voters_are_the_nearest_of_each_episode(neighbors):
    squared, episodes = (np.array(values) for values in zip(*neighbors, strict=True))
    chosen = voters(squared.astype(float), episodes)
    if len(set(episodes)) > 1:
        assert len(set(episodes[chosen])) == len(chosen) == min(N_VOTERS, len(set(episodes)))
        for voter in chosen:
            assert squared[voter] == squared[episodes == episodes[voter]].min()
    assert (np.diff(squared[chosen]) >= 0).all()
    compiled = np.empty(N_VOTERS, np.int64)
    count = find_voters(np.arange(len(squared)), squared.astype(float), episodes, compiled)
    np.testing.assert_array_equal(compiled[:count], chosen)


def reaches(rng, n_episodes=30, n_steps=20, apart=0.03, noise=0.02):
    """A hand goes to about where a goal without a rotation is; a cup with one stands somewhere else, turned anyhow."""
    episodes = []
    for _ in range(n_episodes):
        goal, angle = np.array([0.3, 0, 0]) + rng.normal(0, apart, 3), rng.normal(0, 0.02)
        end = goal + rng.normal(0, noise, 3)
        hand = np.linspace(0, 1, n_steps + 1)[:, None] * end
        cup = np.array([0, 0.3, 0, 0, 0, np.sin(angle / 2), np.cos(angle / 2)])
        episodes.append((np.hstack([hand[:-1], np.tile(cup, (n_steps, 1)), np.tile(goal, (n_steps, 1))]), hand[1:]))
    layout = Layout.parse("hand position 3, cup position 3, cup quaternion 4, goal position 3")
    return Demos(episodes, layout, Layout.parse("hand position 3"))


def test_a_goal_without_a_rotation_is_not_worse_than_a_cup_with_one(both_ways):
    demos = reaches(np.random.default_rng(0))
    fair, unfair = (
        ClosedFormPolicy(demos, position_frames=fair, selection=False, relevance=False) for fair in (True, False)
    )
    queries = []
    for goal in np.random.default_rng(1).normal([0.3, 0, 0], 0.05, (20, 3)):
        queries.append(np.concatenate([0.8 * goal, [0, 0.3, 0, 0, 0, 0, 1], goal]))

    def frames(policy):
        return [policy.plan(query, seed=0).frame for query in queries]

    def missed(policy):
        return np.mean([np.linalg.norm(policy.plan(q, seed=0).actions[-1] - q[-3:]) for q in queries])

    assert frames(fair).count("goal") > 15 > frames(unfair).count("goal")
    assert missed(fair) < missed(unfair)


def test_an_unrelated_body_without_a_rotation_does_not_replace_the_world():
    rng = np.random.default_rng(0)
    episodes = [  # the goal is anywhere, and the hand goes to the same place
        (np.hstack([e.observations[:, :10], np.tile(rng.uniform(-0.3, 0.3, 3), (len(e), 1))]), e.actions)
        for e in reaches(rng)
    ]
    demos = reaches(rng)
    policy = ClosedFormPolicy(Demos(episodes, demos.observation_layout, demos.action_layout))
    assert "goal" not in {policy.plan(observations[10], seed=0).frame for observations, _ in episodes}
