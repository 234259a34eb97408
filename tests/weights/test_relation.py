"""Relations: where hands are, seen from the objects."""

from dataclasses import fields, replace

import numpy as np
import pytest

from closedform import ClosedFormPolicy, Demos, Layout
from closedform.geometry.encoding import Encoding
from closedform.geometry.rigid import into_frame
from closedform.kernels.records import Candidates
from closedform.transfer.frame import BodyPoses, Frame, frame_axes
from closedform.weights.terms.relation import Relation
from tests.conftest import random_demos

WORLDS = {
    "planar": ("hand position 2, box position 2, box angle 1, cup position 2", "hand position 2"),
    "angle in space": ("hand position 3, box position 3, box angle 1", "hand position 3"),
    "quaternion": ("cup position 3, hand position 3, box quaternion 4, box position 3", "hand position 3"),
}


def relations_of(policy):
    return [term for term in policy.model.kernel.terms if isinstance(term, Relation)]


def world(name, seed=0, n_episodes=4):
    observations, actions = (Layout.parse(text) for text in WORLDS[name])
    rng = np.random.default_rng(seed)
    plain = random_demos(rng, n_episodes, 30, observations.width, actions.width)
    episodes = [(e.observations.copy(), e.actions) for e in plain]
    for numbers, _ in episodes:
        for entry, columns in observations.slices():
            if entry.kind == "quaternion":
                numbers[:, columns] /= np.linalg.norm(numbers[:, columns], axis=1, keepdims=True)
    return Demos(episodes, observations, actions)


@pytest.mark.parametrize("name", WORLDS)
def test_it_is_the_distance_between_hands_in_the_frames_of_objects(name):
    demos = world(name)
    policy = ClosedFormPolicy(demos, goal_weight=0.0, relation_weight=3.0, relevance=False)
    model, (relation,) = policy.model, relations_of(policy)
    query = demos.all_observations()[7]
    rows = np.arange(len(model.store))
    episodes, steps = model.store.row_episodes, model.store.row_steps
    seen = np.array([demos.episodes[e].observations[s] for e, s in zip(episodes, steps, strict=True)])
    features = model.kernel.features(np.repeat(query[None, None], policy.config.n_obs_steps, axis=1))[0]
    got = relation(Candidates(features, rows, model.features_at(rows), model.store.row_episodes))

    encoding = Encoding(demos.observation_layout)
    poses = BodyPoses(demos.observation_layout, encoding.dimension)
    dimension = poses.dimension
    index = {body: i for i, (body, *_) in enumerate(poses.bodies)}
    hand_block = Encoding(demos.action_layout).blocks

    def places(observations):
        at = poses(observations)
        hands = at[:, index["hand"], :dimension]
        found = {}
        for body, i in index.items():
            if body != "hand":
                frame = Frame(body, i, turns=poses.bodies[i][2] is not None, whole=True)
                found[body] = into_frame(hands[:, None], hand_block, *frame_axes(frame, at, dimension))[:, 0]
        return found

    there, here = places(seen), places(query[None])
    unit = 1 / model.kernel.scale[np.flatnonzero(model.kernel.scale)[0]]  # every world's first entry is a position
    nearness = {body: 1 / (np.sum(x**2) / unit**2 + 0.01) for body, x in here.items()}
    expected = sum(
        nearness[body] / sum(nearness.values()) * np.sum((there[body] - here[body]) ** 2, axis=1) for body in there
    )
    np.testing.assert_allclose(got, 3.0 * expected / unit**2, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", WORLDS)
def test_kernels_and_reference_agree(name, monkeypatch):
    demos = world(name, seed=1)
    policy = ClosedFormPolicy(demos, relation_weight=6.4)
    assert relations_of(policy)
    observations, plans = demos.all_observations()[::9] + 0.01, []
    for disabled in ("0", "1"):
        monkeypatch.setenv("CLOSEDFORM_DISABLE_KERNELS", disabled)
        plans.append(policy.sample(observations, 2, seed=0))
    np.testing.assert_allclose(*plans, atol=1e-4)


def test_a_demonstration_in_which_the_hand_is_beside_the_object_comes_before_one_near_in_the_world():
    """The box is turned by a quarter. One episode has the hand where it is, the other at its place beside the box."""
    layout, actions = Layout.parse("hand position 2, box position 2, box angle 1"), Layout.parse("hand position 2")
    episodes = []
    for hand, angle in (([1.0, 0.0], 0.0), ([0.0, 1.0], 0.0)):
        observations = np.tile([*hand, 0.0, 0.0, angle], (8, 1)) + 1e-3 * np.arange(8)[:, None]
        episodes.append((observations, np.tile(hand, (8, 1))))
    demos = Demos([*episodes, ([[-1.0, -1.0, 1.0, 1.0, 2.0]] * 8, [[0.0, 0.0]] * 8)], layout, actions)
    observation = [0.0, 1.0, 0.0, 0.0, np.pi / 2]  # the hand of the second episode, beside the box as in the first
    followed = [
        ClosedFormPolicy(demos, relation_weight=w, goal_weight=0.0, metric="euclidean").plan(observation, seed=0)
        for w in (0.0, 6.4)
    ]
    assert [plan.episodes[0] for plan in followed] == [1, 0]


def test_without_a_hand_or_an_object_nothing_is_added():
    rng = np.random.default_rng(0)
    alone = random_demos(rng, 4, 30, 2, 2)
    layout = Layout.parse("hand position 2")
    assert not relations_of(ClosedFormPolicy(alone))
    assert not relations_of(ClosedFormPolicy(Demos(list(alone), layout, layout)))
    assert not relations_of(ClosedFormPolicy(world("planar"), "paper", n_neighbors=20))
    assert not relations_of(ClosedFormPolicy(world("planar"), features="scaled"))


def test_on_a_device_nothing_is_made_elsewhere():
    """Tensors of the device "meta" have no numbers, and do not mix with others."""
    torch = pytest.importorskip("torch")
    policy = ClosedFormPolicy(world("quaternion"))
    (relation,), n_features = relations_of(policy), len(policy.model.kernel.scale)
    arrays = {f.name: getattr(relation, f.name) for f in fields(relation)}
    moved = {k: torch.as_tensor(v).to("meta") for k, v in arrays.items() if isinstance(v, np.ndarray)}
    queries, features = torch.empty((3, n_features), device="meta"), torch.empty((3, 5, n_features), device="meta")
    rows = torch.empty((3, 5), dtype=torch.int64, device="meta")
    assert replace(relation, **moved)(Candidates(queries, rows, features, rows)).shape == (3, 5)
