"""Goals: where demonstrations end, and what motion is still needed."""

import numpy as np
import pytest

from closedform import ClosedFormPolicy, Demos, Layout
from closedform.kernels.records import Candidates
from closedform.weights.terms.goal import Goal
from tests.conftest import PLANAR_ACTIONS, PLANAR_OBSERVATIONS, planar_demos, random_demos, slow_on_the_reference

LINE_OBSERVATIONS = Layout.of(("hand", "position", 2), ("box", "position", 2))
LINE_ACTIONS = Layout.of(("hand", "position", 2))


def pushes(ends, n_steps=20):
    """A hand behind a box pushes it along x from 0 to each of the ends, with constant speed."""
    episodes = []
    for end in ends:
        box = np.stack([np.linspace(0, end, n_steps), np.zeros(n_steps)], 1)
        hand = box - [0.1, 0]
        episodes.append((np.concatenate([hand, box], 1), np.concatenate([hand[1:], hand[-1:]])))
    return Demos(episodes, LINE_OBSERVATIONS, LINE_ACTIONS)


def moved(demos):
    """The same, but the block moves and turns in every episode."""
    episodes = [
        (e.observations + np.linspace(0, 1, len(e))[:, None] * np.array([0, 0, 0.3, 0.2, 0.5]), e.actions)
        for e in demos
    ]
    return Demos(episodes, demos.observation_layout, demos.action_layout)


def goal_of(policy):
    goal = next(term for term in policy.model.kernel.terms if isinstance(term, Goal))
    assert isinstance(goal, Goal)
    return goal


def test_the_goal_is_the_middle_of_the_ends_of_what_is_not_commanded():
    rng = np.random.default_rng(0)
    ends = 1 + 0.02 * rng.normal(size=41)
    ends[0] = 5.0  # one that went wrong
    policy = ClosedFormPolicy(pushes(ends))
    goal = goal_of(policy)
    assert goal.columns.tolist() == [2, 3]  # the box, not the hand
    assert goal.middle[0] / policy.model.kernel.scale[2] == pytest.approx(np.median(ends))
    assert goal.tolerance == pytest.approx(2 / 41)


def test_the_penalty_compares_the_motion_that_is_left():
    demos = pushes([1.0, 1.0, 1.0, 0.9])
    policy = ClosedFormPolicy(demos)
    query = policy.model.kernel.features(np.array([[[0.85, 0, 0.95, 0]]]))[0]  # 0.05 are needed
    rows = np.arange(policy.n_windows)
    penalty = goal_of(policy)(Candidates(query, rows, policy.model.features_at(rows), policy.store.row_episodes))
    left = np.concatenate([e.observations[-1, 2] - e.observations[:, 2] for e in demos])
    order = np.argsort(np.abs(left - 0.05), kind="stable")
    assert np.all(np.diff(penalty[order]) >= -1e-12) and penalty.min() == 0


def test_it_ends_where_demonstrations_end_on_average_although_the_nearest_one_stops_short():
    rng = np.random.default_rng(1)
    demos = pushes(1 + rng.uniform(-0.1, 0.1, 60))

    def final_box(goal_weight):
        hand, box = np.array([-0.1, 0.0]), np.array([0.0, 0.0])
        agent = ClosedFormPolicy(demos, goal_weight=goal_weight, loop_memory=0.0).agent(seed=0)
        for _ in range(60):
            hand = agent.act(np.concatenate([hand, box]))
            box = np.array([max(box[0], hand[0] + 0.1), 0.0])
        return box[0]

    middle = np.median([e.observations[-1, 2] for e in demos])
    assert abs(final_box(0.3) - middle) < 0.02
    assert abs(final_box(0.3) - middle) < abs(final_box(0.0) - middle)


def marked_pushes(rng, n_episodes=40, n_steps=20, spread=0.05):
    """A hand pushes a box along x to about where a marker is, which is elsewhere in every episode."""
    episodes = []
    for marker in rng.uniform(0.5, 1.5, n_episodes):
        box = np.stack([np.linspace(0, marker + spread * rng.normal(), n_steps), np.zeros(n_steps)], 1)
        hand = box - [0.1, 0]
        seen = np.concatenate([hand, box, np.tile([marker, 0.2], (n_steps, 1))], 1)
        episodes.append((seen, np.concatenate([hand[1:], hand[-1:]])))
    layout = Layout.of(("hand", "position", 2), ("box", "position", 2), ("marker", "position", 2))
    return Demos(episodes, layout, LINE_ACTIONS)


def test_a_goal_that_differs_between_episodes_is_where_a_marker_is():
    demos = marked_pushes(np.random.default_rng(0))
    policy = ClosedFormPolicy(demos)
    goal = goal_of(policy)
    assert goal.columns.tolist() == [2, 3]  # the box; the marker is never moved
    assert goal.references.tolist() == [4, 5] and (goal.ratios > 0).all()
    differences = [e.observations[-1, 2] - e.observations[-1, 4] for e in demos]
    assert goal.middle[0] / policy.model.kernel.scale[2] == pytest.approx(np.median(differences))

    shared = goal_of(ClosedFormPolicy(demos, goals="shared"))
    assert shared.columns.tolist() == [2, 3, 4, 5] and not shared.ratios.any()


def test_a_marker_that_ends_do_not_follow_is_no_goal():
    rng = np.random.default_rng(0)
    layout = Layout.parse("hand position 2, box position 2, marker position 2")
    pushed = pushes(1 + 0.05 * rng.normal(size=30))
    episodes = [
        (np.concatenate([e.observations, np.tile(rng.uniform(-1, 1, 2), (20, 1))], 1), e.actions) for e in pushed
    ]
    goal = goal_of(ClosedFormPolicy(Demos(episodes, layout, LINE_ACTIONS)))
    assert goal.columns.tolist() == [2, 3] and not goal.ratios.any()


def test_where_nothing_is_moved_there_is_no_goal():
    rng = np.random.default_rng(0)
    layout = Layout.of(("hand", "position", 2), ("marker", "position", 2))
    episodes = []
    for _ in range(10):
        marker, path = rng.uniform(-1, 1, 2), np.linspace(0, 1, 21)[:, None]
        hand = path * marker
        episodes.append((np.concatenate([hand[:-1], np.tile(marker, (20, 1))], 1), hand[1:]))
    demos = Demos(episodes, layout, LINE_ACTIONS)
    assert not any(isinstance(term, Goal) for term in ClosedFormPolicy(demos).model.kernel.terms)


@slow_on_the_reference
def test_a_box_arrives_at_its_marker_more_precisely_than_one_demonstration():
    demos = marked_pushes(np.random.default_rng(2), n_episodes=60)
    middle = np.median([e.observations[-1, 2] - e.observations[-1, 4] for e in demos])

    def missed(**parameters):
        policy = ClosedFormPolicy(demos, loop_memory=0.0, **parameters)
        found = []
        for marker in np.linspace(0.6, 1.4, 8):
            hand, box, agent = np.array([-0.1, 0.0]), np.zeros(2), policy.agent(seed=0)
            for _ in range(60):
                hand = agent.act(np.concatenate([hand, box, [marker, 0.2]]))
                box = np.array([max(box[0], hand[0] + 0.1), 0.0])
            found.append(abs(box[0] - marker - middle))
        return np.mean(found)

    assert missed() < 0.02
    assert missed() < 0.7 * missed(goals="shared")


def test_without_bodies_there_is_no_goal():
    rng = np.random.default_rng(0)
    plain = random_demos(rng, 4, 30, 4, 2)
    observation = plain[0].observations[3]
    with_goal, without = (ClosedFormPolicy(plain, goal_weight=w).plan(observation, seed=0) for w in (0.3, 0.0))
    assert np.array_equal(with_goal.actions, without.actions)
    hand_only = Demos(list(plain), Layout.of(("hand", "position", 2), ("-", "other", 2)), LINE_ACTIONS)
    assert not any(isinstance(term, Goal) for term in ClosedFormPolicy(hand_only).model.kernel.terms)


def test_rotations_count_and_the_newest_observation_is_what_matters():
    demos = moved(planar_demos(np.random.default_rng(0)))
    one, two = (goal_of(ClosedFormPolicy(demos, n_obs_steps=n)) for n in (1, 2))
    assert one.columns.tolist() == [2, 3, 4, 5]
    assert two.columns.tolist() == [8, 9, 10, 11]
    assert np.allclose(one.middle, two.middle)


@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.parametrize("n_obs_steps", [1, 2])
def test_kernel_and_reference_agree(n_obs_steps, marked, monkeypatch):
    rng = np.random.default_rng(5)
    demos = marked_pushes(rng) if marked else moved(planar_demos(rng, n_episodes=12))
    policy = ClosedFormPolicy(demos, goal_weight=0.5, n_obs_steps=n_obs_steps, bandwidth=0.6)
    observations = demos.all_observations()[::37] + 0.01
    monkeypatch.setenv("CLOSEDFORM_DISABLE_KERNELS", "0")
    compiled = policy.sample(observations, 2, seed=0)
    monkeypatch.setenv("CLOSEDFORM_DISABLE_KERNELS", "1")
    assert np.allclose(policy.sample(observations, 2, seed=0), compiled, atol=1e-4)


def test_adding_and_removing_episodes_moves_the_goal():
    policy = ClosedFormPolicy(pushes([1.0, 1.0, 1.1]))
    scale = policy.model.kernel.scale[2]
    number = policy.add(pushes([1.2])[0])
    policy.add(pushes([1.2])[0])
    assert goal_of(policy).middle[0] / scale == pytest.approx(1.1)
    policy.remove(number)
    assert goal_of(policy).middle[0] / scale == pytest.approx(1.05)


def test_a_whole_pose_is_preferred_unless_another_frame_is_clearly_better():
    # Hands that go around a block at many angles: the world's frame is far worse, the block's whole pose is best.
    policy = ClosedFormPolicy(planar_demos(np.random.default_rng(0), n_episodes=20))
    assert policy.plan([0.3, 0, 0, 0, 0], seed=0).frame == "block"
    # Targets that are fixed in the world, wherever the block is: clearly the world.
    rng = np.random.default_rng(0)
    episodes = []
    for _ in range(20):
        block = np.broadcast_to(rng.uniform(-1, 1, 3), (20, 3))
        hand = np.linspace(rng.uniform(-1, 1, 2), [0.5, 0.5], 21)
        episodes.append((np.concatenate([hand[:-1], block], 1), np.broadcast_to([0.5, 0.5], (20, 2))))
    fixed = ClosedFormPolicy(Demos(episodes, PLANAR_OBSERVATIONS, PLANAR_ACTIONS))
    assert fixed.plan([0, 0, 0, 0, 0.5], seed=0).frame == "world"
