"""Demonstrations count in all poses in which bodies look the same, and nothing else changes."""

import json
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from closedform import ClosedFormError, ClosedFormPolicy, Demos, KernelRegressionPolicy, Layout, load_policy
from closedform.analysis.leave_one_out import leave_one_out
from closedform.demos.episode import Episode
from closedform.geometry.encoding import Encoding
from closedform.geometry.so3 import rotation_matrix, two_columns
from closedform.policies.backends.batch_planner import Numbers
from closedform.rewrites.copies import Symmetry
from closedform.weights.terms.goal import Goal
from tests.worlds import reference_and_compiled

PLANE = Layout.parse("hand position 2, block position 2, block angle"), Layout.parse("hand position 2")
SPACE = (
    Layout.parse("hand position 3, hand quaternion, cube position 3, cube quaternion_wxyz"),
    Layout.parse("hand position 3, hand rotation6d, - binary"),
)


def about(axis, angles):
    """Rotations (n, 3, 3) about an axis."""
    vectors = np.asarray(angles)[:, None] * np.eye(3)["xyz".index(axis)]
    return rotation_matrix(Encoding(Layout.of((None, "axis_angle"))).encode(vectors))


def encoded(kind, matrices):
    return Encoding(Layout.of((None, kind))).decode(two_columns(matrices))


def declared(layout, **symmetries):
    """A layout with symmetries of the rotations of bodies, or of their positions where they have none."""
    entries = layout.to_json()
    for body, symmetry in symmetries.items():
        own = [entry for entry in entries if entry["body"] == body and entry["kind"] not in ("binary", "vector")]
        own[-1]["symmetry"] = symmetry
    return Layout.from_json(entries)


def pushes(rng, n_episodes=6, n_steps=24, **symmetries):
    """A hand that brings a block from anywhere to one pose, by a way of its own in each episode."""
    episodes = []
    for _ in range(n_episodes):
        start, end = rng.uniform(-1, 1, 3) * (1, 1, 2), np.array([0.3, -0.2, 0.6]) + rng.normal(scale=0.02, size=3)
        share = np.linspace(0, 1, n_steps + 1)[:, None] ** rng.uniform(0.7, 1.5)
        block = start + (end - start) * share
        side = block[:, 2] + rng.uniform(-2, 2) + share[:, 0]
        hand = block[:, :2] + 0.3 * np.stack([np.cos(side), np.sin(side)], 1)
        episodes.append((np.concatenate([hand, block], 1)[:-1], hand[1:]))
    return Demos(episodes, declared(PLANE[0], **symmetries), PLANE[1])


def places(rng, n_episodes=6, n_steps=20, cube=None, hand=None):
    """A hand that grasps a cube and brings it to one pose."""
    episodes = []
    for _ in range(n_episodes):
        place, goal = rng.uniform(-1, 1, 3), np.array([0.2, 0.1, 0.5])
        turn, share = rng.uniform(-0.7, 0.7), np.clip(np.linspace(-1, 1, n_steps), 0, 1)[:, None]
        cubes = place + (goal - place) * share + rng.normal(scale=1e-3, size=(n_steps, 3))
        yaw = turn * (1 - share[:, 0])
        hands = cubes + (rng.uniform(-1, 1, 3) * np.clip(np.linspace(1, -1, n_steps), 0, 1)[:, None]) + (0, 0, 0.1)
        axes, own = about("z", yaw), about("z", yaw + 0.3) @ about("x", np.full(n_steps, np.pi))
        seen = [hands, encoded("quaternion", own), cubes, encoded("quaternion_wxyz", axes)]
        grip = (np.arange(n_steps) > n_steps // 2)[:, None]
        episodes.append((np.concatenate(seen, 1), np.concatenate([hands, two_columns(own), grip], 1)))
    named = {name: text for name, text in (("cube", cube), ("hand", hand)) if text is not None}
    actions = declared(SPACE[1], hand=hand) if hand is not None else SPACE[1]
    return Demos(episodes, declared(SPACE[0], **named), actions)


def images(policy, observation, action=None):
    """All images of an observation, and of an action."""
    symmetry = policy.model.spec.rewrites.find(Symmetry)
    action = np.zeros(policy.action_layout.width) if action is None else action
    if action.ndim == 1:
        action = action[None]
    episode = Episode(np.repeat(observation[None], len(action), 0), action)
    return symmetry.episodes(episode)


def found(demos):
    """The symmetry of demonstrations that have one."""
    symmetry = Symmetry.find(demos)
    assert symmetry is not None
    return symmetry


def images_in(plan):
    """Which images of episodes a plan was made of."""
    assert plan.copies is not None
    return plan.copies


WORLDS = {
    "mirror": lambda rng: pushes(rng, block="mirror_x"),
    "mirror_y": lambda rng: pushes(rng, block="mirror_y"),
    "turn3": lambda rng: pushes(rng, block="turn3"),
    "square": lambda rng: pushes(rng, block="turn4+mirror_x"),
    "cube": lambda rng: places(rng, cube="turn4_z"),
    "cube and hand": lambda rng: places(rng, cube="turn4_z+mirror_x", hand="mirror_x"),
    "gripper": lambda rng: places(rng, cube="mirror_y", hand="turn2_z+mirror_y"),
}


@pytest.mark.parametrize("world", WORLDS)
@settings(max_examples=4, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1))
def test_plans_in_a_turned_or_mirrored_scene_are_turned_or_mirrored(world, seed):
    rng = np.random.default_rng(seed)
    demos = WORLDS[world](rng)
    # Without a goal, which is the median of each coordinate and so not quite the same in a turned scene.
    policy = KernelRegressionPolicy(demos, n_action_steps=5, n_execute=3, bandwidth=2.0, goal_weight=0.0)
    episode = demos[int(rng.integers(len(demos)))]
    observation = np.array(episode.observations[int(rng.integers(len(episode)))])
    first = policy.observation_layout.entries[0].size
    observation[:first] += rng.normal(scale=0.1, size=first)
    actions = policy.plan(observation).actions
    encoding = Encoding(policy.action_layout)
    for image in images(policy, observation, actions)[1:]:
        plan = policy.plan(image.observations[0])
        np.testing.assert_allclose(encoding.encode(plan.actions), encoding.encode(image.actions), atol=1e-6)


@pytest.mark.parametrize("world", WORLDS)
def test_images_are_rigid_and_their_bodies_look_the_same(world):
    demos = WORLDS[world](np.random.default_rng(1))
    symmetry = found(demos)
    spatial = demos.observation_layout.spatial
    positions = [c for e, c in demos.observation_layout.slices() if e.kind == "position"]
    for image in symmetry.episodes(demos[0]):
        Demos([image], demos.observation_layout, demos.action_layout)  # whose rotations are rotations
        apart, before = (
            np.linalg.norm(e.observations[:, positions[0]] - e.observations[:, positions[1]], axis=1)
            for e in (image, demos[0])
        )
        np.testing.assert_allclose(apart, before, atol=1e-9)
        if spatial:  # gravity is not mirrored
            assert np.allclose(image.observations[:, 2], demos[0].observations[:, 2])
    assert symmetry.n_copies > 1


def layouts_of(demos):
    return demos.observation_layout, demos.action_layout


def test_of_several_bodies_the_one_that_ends_most_precisely_says_where_to_mirror():
    plain = pushes(np.random.default_rng(0))
    goal = np.array([0.3, -0.2, 0.6])
    layout = Layout.parse(
        "hand position 2, block position 2, block angle 1 mirror_x, goal position 2, goal angle 1 mirror_x"
    )

    def mirror(goal):
        seen = [(np.c_[e.observations, np.tile(goal, (len(e), 1))], e.actions) for e in plain]
        return found(Demos(seen, layout, PLANE[1])).mirror or pytest.fail("no mirror")

    np.testing.assert_allclose(mirror(goal).point[:2], goal[:2])
    np.testing.assert_allclose(mirror(goal).normal[:2], [np.cos(0.6), np.sin(0.6)])
    for elsewhere in (goal + np.array([1.0, 1.0, 0.0]), goal + np.array([0.0, 0.0, 1.5])):
        with pytest.raises(ClosedFormError, match="'goal' and 'block' in two"):
            mirror(elsewhere)


def test_the_end_of_a_mirrored_demonstration_is_where_all_end():
    demos = pushes(np.random.default_rng(0), n_episodes=12, block="mirror_x")
    symmetry = found(demos)
    ends = np.array([symmetry.image(episode, 1).observations[-1, 2:] for episode in demos])
    np.testing.assert_allclose(np.median(ends, 0), np.median([e.observations[-1, 2:] for e in demos], 0), atol=0.15)


@pytest.mark.parametrize("world", WORLDS)
def test_reference_kernels_and_torch_agree(world):
    demos = WORLDS[world](np.random.default_rng(2))
    policy = ClosedFormPolicy(demos, n_action_steps=4, n_diffusion_steps=8, n_perturbations=4, n_neighbors=60)
    seen = np.array([images(policy, demos[0].observations[i])[-1].observations[0] for i in (2, 8, 15)])
    windows = policy.windows(seen)
    reference, compiled = reference_and_compiled(policy, windows)
    planner = policy.batch_planner("cpu")
    numbers = Numbers.like_the_reference(planner, len(windows), np.random.default_rng(1))
    _, chunks = planner.plan(planner.queries(windows), numbers)
    np.testing.assert_allclose(compiled.chunks, reference.chunks, atol=1e-4)
    np.testing.assert_allclose(chunks.numpy(), reference.chunks, atol=1e-3)


@pytest.mark.parametrize("world", WORLDS)
def test_provenance_names_the_recorded_episode(world):
    demos = WORLDS[world](np.random.default_rng(3))
    policy = ClosedFormPolicy(demos, n_diffusion_steps=5, bandwidth=0.01, goal_weight=0.0)
    n_copies = policy.store.n_copies
    assert policy.episode_ids == list(range(len(demos)))
    assert policy.episodes == demos.episodes
    assert policy.n_windows == n_copies * demos.n_steps
    for episode in (0, 4):
        for index, image in enumerate(images(policy, demos[episode].observations[1])):
            plan = policy.plan(image.observations[0], seed=0)
            assert (plan.episodes[0], plan.steps[0], images_in(plan)[0]) == (episode, 1, index)
            rows = policy.store.rows_at(plan.episodes, plan.steps, images_in(plan))
            np.testing.assert_array_equal(policy.store.copies_of(rows), images_in(plan))
            np.testing.assert_array_equal(policy.store.episode_ids[policy.store.row_episodes[rows]], plan.episodes)


def test_no_image_of_an_episode_predicts_it():
    demos = pushes(np.random.default_rng(4), n_episodes=9, block="turn2+mirror_x")
    policy = ClosedFormPolicy(demos, n_diffusion_steps=4)
    for index in (0, 5):
        rest = policy.model.leave_out(index)
        assert index not in rest.store.episode_ids
        assert len(rest) == len(policy.model) - 4 * len(demos[index])
    assert [left.episode for left in leave_one_out(policy, n_windows=2)] == list(range(len(demos)))
    rows = np.arange(len(policy.store))
    np.testing.assert_array_equal(
        policy.store.recorded_ids[policy.store.origins(rows)], policy.store.episode_ids[policy.store.row_episodes]
    )


def test_relevance_and_shrinkage_are_judged_by_other_episodes_only(monkeypatch):
    """An image that lies on its episode would predict it perfectly."""
    from closedform.judge import relevance, shrinkage

    asked = []
    for module in (relevance, shrinkage):
        chunks = module.transferred_chunks

        def watched(store, transfer, near, queries, n_steps, chunks=chunks):
            asked.append(store.origins(near) == store.origins(queries)[:, None])
            return chunks(store, transfer, near, queries, n_steps)

        monkeypatch.setattr(module, "transferred_chunks", watched)
    ClosedFormPolicy(pushes(np.random.default_rng(5), n_episodes=12, block="mirror_x"))
    assert asked and not any(same.any() for same in asked)


@pytest.mark.parametrize("world", ["square", "gripper"])
def test_a_saved_policy_plans_the_same_and_holds_each_step_once(tmp_path, world):
    demos = WORLDS[world](np.random.default_rng(6))
    policy = ClosedFormPolicy(demos, n_diffusion_steps=5)
    policy.save(tmp_path / "policy")
    content = json.loads((tmp_path / "policy" / "config.json").read_text())
    assert content["n_steps"] == demos.n_steps
    loaded = load_policy(tmp_path / "policy")
    assert loaded.observation_layout == demos.observation_layout
    for observation in (demos[0].observations[3], images(policy, demos[1].observations[3])[-1].observations[0]):
        np.testing.assert_array_equal(
            loaded.plan(observation, seed=1).actions, policy.plan(observation, seed=1).actions
        )


@pytest.mark.parametrize("world", ["square", "gripper"])
def test_adding_and_removing_episodes(tmp_path, world):
    demos = WORLDS[world](np.random.default_rng(7))
    policy = ClosedFormPolicy(demos[:5], n_diffusion_steps=5)
    observation = images(policy, demos[5].observations[2])[-1].observations[0]
    before = policy.plan(observation, seed=1)
    added = policy.add(demos[5])
    plan = policy.plan(observation, seed=1)
    assert plan.episodes[0] == added and images_in(plan)[0] > 0
    policy.save(tmp_path / "policy")  # which builds everything anew
    np.testing.assert_array_equal(load_policy(tmp_path / "policy").plan(observation, seed=1).actions, plan.actions)
    policy.remove(added)
    np.testing.assert_array_equal(policy.plan(observation, seed=1).actions, before.actions)


def test_an_agent_remembers_images_while_episodes_come():
    demos = pushes(np.random.default_rng(8), block="mirror_x")
    policy = ClosedFormPolicy(demos[:5], n_diffusion_steps=5)
    agent = policy.agent(seed=0)
    agent.plan(images(policy, demos[3].observations[4])[1].observations[0])
    store, penalty = policy.store, agent.state.on(policy.store).penalty
    used = {(store.row_episodes[row], store.row_steps[row]) for row in penalty.rows}
    policy.add(demos[5])
    after = agent.state.on(policy.store).penalty
    assert {(policy.store.row_episodes[row], policy.store.row_steps[row]) for row in after.rows} == used
    assert any(episode % 2 for episode, _ in used)


def test_where_bodies_are_turned_their_goal_is_as_sure_as_before():
    plain, turned = (places(np.random.default_rng(9), cube=cube) for cube in (None, "turn4_z"))
    scales = []
    for demos in (plain, turned):
        kernel = ClosedFormPolicy(demos, n_diffusion_steps=2).model.kernel
        scales.append(next(term for term in kernel.terms if isinstance(term, Goal)).scale)
    np.testing.assert_allclose(scales[1], scales[0], rtol=0.5)


@settings(max_examples=10, deadline=None, derandomize=True)
@given(angles=st.lists(st.floats(-3.0, 3.0), min_size=2, max_size=2), upside_down=st.booleans())
def test_turns_by_any_angle_change_nothing(angles, upside_down):
    demos = places(np.random.default_rng(10), cube="turn_z")
    columns = slice(10, 14)

    def twisted(observations, angle):
        values, encoding = np.array(observations), Encoding(Layout.of((None, "quaternion_wxyz")))
        turned = rotation_matrix(encoding.encode(values[..., columns])) @ about("z", [angle])[0]
        values[..., columns] = encoding.decode(two_columns(turned))
        return values

    if upside_down:
        kind = Encoding(Layout.of((None, "quaternion_wxyz")))
        for_all = []
        for episode in demos:
            values = np.array(episode.observations)
            turned = rotation_matrix(kind.encode(values[:, columns])) @ about("x", [np.pi])[0]
            values[:, columns] = kind.decode(two_columns(turned))
            for_all.append((values, episode.actions))
        demos = Demos(for_all, *layouts_of(demos))
    plans = []
    for angle in angles:
        first = twisted(demos[0].observations, angle)
        other = Demos([(first, demos[0].actions), *demos.episodes[1:]], *layouts_of(demos))
        policy = KernelRegressionPolicy(other, n_action_steps=5, bandwidth=1.0)
        assert policy.model.spec.rewrites.find(Symmetry) is None  # one pose stands for all of them
        plans.append(policy.plan(twisted(demos[1].observations[14], -angle)).actions)
    np.testing.assert_allclose(plans[0], plans[1], atol=1e-6)


def test_a_body_that_turns_in_a_hand_is_still_held():
    held = []
    for cube in (None, "turn_z"):
        held.append(ClosedFormPolicy(places(np.random.default_rng(11), cube=cube), n_diffusion_steps=2).store.held)
    np.testing.assert_array_equal(*held)
    assert (held[0] >= 0).any()


def test_displacements_may_go_where_those_of_images_go():
    """Planned displacements keep to the demonstrated range, and a mirrored push goes the other way."""
    demos = pushes(np.random.default_rng(14), n_episodes=8, block="mirror_x")
    moves = [(e.observations, np.diff(e.observations[:, :2], axis=0, append=e.observations[-1:, :2])) for e in demos]
    demos = Demos(moves, demos.observation_layout, Layout.parse("hand vector 2"))
    policy = ClosedFormPolicy(demos, n_diffusion_steps=2)
    assert policy.targets is not None
    (part,) = policy.targets.displacements
    mirrored = np.concatenate([found(demos).image(episode, 1).actions for episode in demos])
    assert (mirrored.min(0) >= np.array(part.low) - 1e-9).all()
    assert (mirrored.max(0) <= np.array(part.high) + 1e-9).all()


def test_without_symmetries_plans_are_as_before():
    plain, mirrored = pushes(np.random.default_rng(12)), pushes(np.random.default_rng(12), block="mirror_x")
    observation = plain[0].observations[3]
    expected = ClosedFormPolicy(plain, n_diffusion_steps=5).plan(observation, seed=0).actions
    switched_off = ClosedFormPolicy(mirrored, n_diffusion_steps=5, symmetry=False)
    np.testing.assert_array_equal(switched_off.plan(observation, seed=0).actions, expected)
    assert switched_off.observation_layout == mirrored.observation_layout
    paper = [ClosedFormPolicy(demos, "paper", n_neighbors=40, n_diffusion_steps=5) for demos in (plain, mirrored)]
    first, second = (policy.plan(observation, seed=0).actions for policy in paper)
    np.testing.assert_array_equal(first, second)


def test_layouts_with_symmetries_are_written_and_read():
    text = "hand position 2, block position 2, block angle 1 turn4+mirror_x, - other 2 mirror"
    layout = Layout.parse(text)
    assert layout == Layout.from_json(json.loads(json.dumps(layout.to_json())))
    assert layout.entries[2].symmetry == "turn4+mirror_x"
    assert all("symmetry" not in entry for entry in layout.asymmetric.to_json())
    assert layout.asymmetric == Layout.parse("hand position 2, block position 2, block angle, - other 2")


REFUSED = {
    "block angle 1 mirror": "expected words such as mirror_x",
    "block angle 1 mirror_z": "expected words such as mirror_x",
    "block angle 1 turn4_x": "expected words such as mirror_x",
    "block angle 1 turn1": "2 to 64",
    "block angle 1 turn99": "2 to 64",
    "block quaternion 4 turn4": "expected words such as mirror_x",
    "block quaternion 4 turn7_x+turn5_y": "at most 64",
    "block quaternion 4 turn_x+turn_y": "one axis",
    "block position 2 turn4": "turns are declared on a rotation",
    "block vector 2 mirror_x": "found 'mirror_x' on kind 'vector'",
    "- angle 1 mirror_x": "on the rotation of a body",
    "- other 2 mirror_x": "on kind 'other'",
    "block position 2 mirror_x, block angle": "found on its position",
}


@pytest.mark.parametrize("text", REFUSED)
def test_declarations_that_make_no_sense_are_refused(text):
    with pytest.raises(ClosedFormError, match=re.escape(REFUSED[text])) as caught:
        Layout.parse(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [3, "spin", "mirror_x\n", ["mirror_x"]])
def test_unknown_symmetries_in_files_are_refused(value):
    with pytest.raises(ClosedFormError, match="symmetry"):
        Layout.from_json([{"kind": "angle", "size": 1, "body": "block", "symmetry": value}])


def test_scenes_that_cannot_be_mirrored_are_refused():
    def refuses(message, demos, **parameters):
        with pytest.raises(ClosedFormError, match=message):
            ClosedFormPolicy(demos, **parameters)

    rng = np.random.default_rng(13)
    refuses("hand quaternion.*mirrored as a whole", places(rng, cube="mirror_x"))
    refuses(
        "'hand' is commanded",
        places(rng, cube="mirror_x").with_layouts(declared(SPACE[0], cube="mirror_x", hand="mirror_x"), SPACE[1]),
    )
    refuses(
        "commanded axes of body 'hand' differ",
        places(rng, cube="mirror_x").with_layouts(
            declared(SPACE[0], cube="mirror_x", hand="mirror_x"), declared(SPACE[1], hand="mirror_y")
        ),
    )
    refuses("upright", places(rng, cube="mirror_z", hand="mirror_x"))
    refuses("not commanded", pushes(rng, hand="mirror_x"))
    ends_anywhere = Demos([(e.observations[: 4 + i], e.actions[: 4 + i]) for i, e in enumerate(pushes(rng, 12))])
    refuses("one direction", ends_anywhere.with_layouts(declared(PLANE[0], block="mirror_x"), PLANE[1]))
    plain = pushes(rng)
    wide = Demos([(np.c_[e.observations, e.observations[:, :1]], e.actions) for e in plain])
    layout = Layout.parse("hand position 2, block position 2, block angle 1 mirror_x, - other 1")
    refuses("entry 5.*expected mirror,", wide.with_layouts(layout, PLANE[1]))
    same = Layout.parse("hand position 2, block position 2, block angle 1 mirror_x, - other 1 mirror")
    assert ClosedFormPolicy(wide.with_layouts(same, PLANE[1])).model.spec.rewrites.find(Symmetry) is not None
    refuses("index: expected exact where", pushes(rng, block="mirror_x"), index="faiss")
    with pytest.raises(ClosedFormError, match="turns in steps"):
        places(rng).with_layouts(SPACE[0], declared(SPACE[1], hand="turn_z"))


@pytest.mark.parametrize(
    "damage",
    [
        None,
        {"mirror": None, "centers": [0.0]},
        {"mirror": {"point": [0, 0, 0], "normal": [0, 0, 1]}, "centers": [0.0]},
        {"mirror": {"point": [0, 0, 0], "normal": [1, 0, 0]}, "centers": []},
        {"mirror": {"point": [0, 0, "x"], "normal": [1, 0, 0]}, "centers": [0.0]},
        {"mirror": {"point": [0, 0, 1e300], "normal": [1, 0, 0]}, "centers": [0.0]},
        [],
    ],
)
def test_damaged_symmetries_of_saved_policies_are_refused(damage):
    layouts = declared(PLANE[0], block="mirror_x"), PLANE[1]
    with pytest.raises(ClosedFormError, match="symmetry"):
        Symmetry.from_json(damage, *layouts)
