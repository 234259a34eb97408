"""Plans in a body's frame move with the scene, and agreement finds the frame that explains the demonstrations."""

import numpy as np
import pytest

from closedform import ClosedFormPolicy, Demos, Layout
from closedform.geometry.so3 import columns_of_quaternion, quaternion_of, rotation_matrix, two_columns
from tests.conftest import PLANAR_ACTIONS, PLANAR_OBSERVATIONS, planar_demos

SPATIAL_OBSERVATIONS = Layout.of(("hand", "position", 3), ("can", "position", 3), ("can", "quaternion"))
SPATIAL_ACTIONS = Layout.of(("hand", "position", 3), ("hand", "rotation6d"), (None, "binary"))


def turned(angle):
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def move_planar(observations, actions, angle, shift):
    """A rigid motion of a whole planar scene."""
    rotation = turned(angle)
    moved = observations.copy()
    for columns in (slice(0, 2), slice(2, 4)):
        moved[:, columns] = observations[:, columns] @ rotation.T + shift
    moved[:, 4] += angle
    return moved, actions @ rotation.T + shift


@pytest.mark.parametrize(("frames", "angle"), [("block", 2.1), ("auto", 0.0), ("hand,block.position", 0.0)])
def test_a_planar_scene_can_be_moved(both_ways, frames, angle):
    """A frame with axes of its own follows every rigid motion; all frames but the world's follow a translation."""
    demos = planar_demos(np.random.default_rng(0))
    shift = np.array([5.0, -3.0])
    moved = Demos(
        [move_planar(e.observations, e.actions, angle, shift) for e in demos], PLANAR_OBSERVATIONS, PLANAR_ACTIONS
    )
    policy, policy_moved = (ClosedFormPolicy(d, frames=frames, n_action_steps=6) for d in (demos, moved))
    n_moved = 0
    for seed in range(10):
        observation = demos[seed % 6].observations[2 * seed : 2 * seed + 1] + 0.02
        plan = policy.plan(observation[0], seed=seed)
        observation_moved, actions_moved = move_planar(observation, plan.actions, angle, shift)
        plan_moved = policy_moved.plan(observation_moved[0], seed=seed)
        assert plan_moved.frame == plan.frame
        if plan.frame != "world":
            n_moved += 1
            np.testing.assert_allclose(plan_moved.actions, actions_moved, atol=1e-6)
            assert (plan_moved.episodes[0], plan_moved.steps[0]) == (plan.episodes[0], plan.steps[0])
    assert n_moved >= 8 or (frames == "auto" and n_moved >= 1)


def spatial_demos(rng, n_episodes=6, n_steps=25):
    """A hand that descends in a spiral onto a can, which stands a little askew, and closes."""
    episodes = []
    for _ in range(n_episodes):
        quaternion = rng.normal(size=4) * [0.2, 0.2, 0.2, 1.0]
        quaternion /= np.linalg.norm(quaternion)
        rotation, position = rotation_matrix(columns_of_quaternion(quaternion)), rng.uniform(-0.5, 0.5, 3)
        t = np.linspace(0, 1, n_steps + 1)
        around = 4 * t + rng.normal(scale=0.02, size=t.shape)
        path = np.stack([0.1 * np.cos(around), 0.1 * np.sin(around), 0.3 * (1 - t)], 1)
        hand = path @ rotation.T + position
        facing = np.broadcast_to(two_columns(rotation), (n_steps, 6))
        can = np.broadcast_to([*position, *quaternion], (n_steps, 7))
        gripper = np.where(t[1:] > 0.8, 1.0, -1.0)[:, None]
        episodes.append((np.concatenate([hand[:-1], can], 1), np.concatenate([hand[1:], facing, gripper], 1)))
    return Demos(episodes, SPATIAL_OBSERVATIONS, SPATIAL_ACTIONS)


def move_spatial(observations, actions, rotation, shift):
    moved, moved_actions = observations.copy(), actions.copy()
    for columns in (slice(0, 3), slice(3, 6)):
        moved[:, columns] = observations[:, columns] @ rotation.T + shift
    moved[:, 6:] = quaternion_of(rotation @ rotation_matrix(columns_of_quaternion(observations[:, 6:])))
    moved_actions[:, :3] = actions[:, :3] @ rotation.T + shift
    moved_actions[:, 3:9] = two_columns(rotation @ rotation_matrix(actions[:, 3:9]))
    return moved, moved_actions


def test_a_spatial_scene_can_be_moved(both_ways):
    demos = spatial_demos(np.random.default_rng(1))
    quaternion = np.array([0.3, -0.5, 0.2, 0.7])
    rotation = rotation_matrix(columns_of_quaternion(quaternion / np.linalg.norm(quaternion)))
    shift = np.array([1.0, -2.0, 0.5])
    moved = Demos(
        [move_spatial(e.observations, e.actions, rotation, shift) for e in demos], SPATIAL_OBSERVATIONS, SPATIAL_ACTIONS
    )
    policy, policy_moved = (ClosedFormPolicy(d, frames="can", n_action_steps=6) for d in (demos, moved))
    for seed in range(6):
        observation = demos[seed].observations[3 * seed : 3 * seed + 1]
        plan = policy.plan(observation[0], seed=seed)
        observation_moved, actions_moved = move_spatial(observation, plan.actions, rotation, shift)
        plan_moved = policy_moved.plan(observation_moved[0], seed=seed)
        assert plan.frame == plan_moved.frame == "can"
        np.testing.assert_allclose(plan_moved.actions, actions_moved, atol=1e-6)


@pytest.mark.parametrize("make_demos", [planar_demos, spatial_demos])
def test_a_demonstration_applies_where_it_was_not_recorded(both_ways, make_demos):
    """A single demonstration is followed in the object's frame wherever the object is, but not in the world's."""
    demos = make_demos(np.random.default_rng(2), n_episodes=8)
    body, size = demos.observation_layout.bodies[1], demos.observation_layout.entries[0].size
    errors = {}
    for frames in ("world", body):
        policy = ClosedFormPolicy(demos[:1], frames=frames, n_action_steps=5, shrinkage=0)
        errors[frames] = [
            np.abs(policy.plan(episode.observations[0], seed=0).actions - episode.actions[:5])[:, :size].max()
            for episode in demos[1:]
        ]
    assert np.median(errors[body]) < 0.1 < 0.2 < np.median(errors["world"])


def test_a_frame_that_only_turns_about_z_carries_heading_along(both_ways):
    """An arm of four degrees of freedom: x, y, z and yaw, and a block on a table."""
    observations = Layout.of(("hand", "position", 3), ("hand", "angle"), ("block", "position", 3), ("block", "angle"))
    actions = Layout.of(("hand", "position", 3), ("hand", "angle"))
    approach = np.linspace([0.3, 0.1, 0.4, 0.5], [0.0, 0.0, 0.0, 0.0], 6)

    def seen_from(block):
        x, y, z, yaw = block
        path = np.concatenate(
            [approach[:, :2] @ turned(yaw).T + [x, y], approach[:, 2:3] + z, approach[:, 3:] + yaw], 1
        )
        return np.concatenate([path[:-1], np.tile(block, (5, 1))], 1), path[1:]

    demos = Demos([seen_from([0.2, 0.1, 0.0, 0.4])], observations, actions)
    policy = ClosedFormPolicy(
        demos, frames="block", n_action_steps=5, padding=False
    )  # one window, so one demonstration
    elsewhere = seen_from([-0.5, 0.7, 0.2, 2.3])
    difference = policy.plan(elsewhere[0][0], seed=0).actions - elsewhere[1]
    np.testing.assert_allclose(difference[:, :3], 0, atol=1e-6)
    np.testing.assert_allclose(np.sin(difference[:, 3] / 2), 0, atol=1e-6)


def test_the_hand_stays_at_a_goal_that_is_fixed_to_a_body():
    """Left to choose, a plan is not made in the hand's own frame, in which a hand at rest may drift anywhere."""
    rng = np.random.default_rng(4)
    episodes = []
    for _ in range(30):
        block = [*rng.uniform(-0.5, 0.5, 2), rng.uniform(-np.pi, np.pi)]
        goal = np.array(block[:2]) + turned(block[2]) @ [0.1, 0.05] + 0.003 * rng.normal(size=2)
        share = np.minimum(np.linspace(0, 1.6, 41), 1.0)[:, None]
        path = rng.uniform(-1, 1, 2) * (1 - share) + goal * share
        episodes.append((np.concatenate([path[:-1], np.tile(block, (40, 1))], 1), path[1:]))
    demos = Demos(episodes, PLANAR_OBSERVATIONS, PLANAR_ACTIONS)
    policy = ClosedFormPolicy(demos, n_diffusion_steps=20, n_perturbations=8)
    errors = []
    for episode in list(demos)[:6]:
        agent, hand = policy.agent(seed=0), episode.observations[0, :2]
        for _ in range(80):
            hand = agent.act(np.concatenate([hand, episode.observations[0, 2:]]))
            assert agent.last_plan is not None and agent.last_plan.frame != "hand"
        block = episode.observations[0, 2:]
        errors.append(np.linalg.norm(hand - (block[:2] + turned(block[2]) @ [0.1, 0.05])))
    assert np.median(errors) < 0.03


def test_the_world_is_chosen_where_the_goal_is_fixed_in_it(both_ways):
    """The block lies anywhere, but the hand always goes to the same place."""
    rng = np.random.default_rng(3)
    episodes = []
    for _ in range(12):
        start, block = rng.uniform(-1, 1, 2), [*rng.uniform(-1, 1, 2), rng.uniform(-3, 3)]
        path = start + np.linspace(0, 1, 16)[:, None] * (np.array([0.5, 0.5]) - start)
        episodes.append((np.concatenate([path[:-1], np.tile(block, (15, 1))], 1), path[1:]))
    demos = Demos(episodes, PLANAR_OBSERVATIONS, PLANAR_ACTIONS)
    policy = ClosedFormPolicy(demos, n_action_steps=6)
    frames = [policy.plan(demos[e].observations[9], seed=e).frame for e in range(12)]
    assert frames.count("world") >= 9
