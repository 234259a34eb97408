"""What is found in demonstrations agrees with what was declared, or is left open."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from closedform import ClosedFormError, Demos, Layout, load_demos
from closedform.demos.infer import InferredLayouts, describe
from closedform.demos.inference.names import body_of, named_positions
from tests.conftest import real_demos, real_file
from tests.demos.infer_worlds import door, handwriting, joints, poses, smooth, stacked_pick
from tests.worlds import POLICIES

ROBOMIMIC = Path(__file__).parents[1] / "data" / "robomimic"
OPEN = ("other", "binary")
WIDTHS = {
    "object": 10,
    "robot0_eef_pos": 3,
    "robot0_eef_quat": 4,
    "robot0_eef_vel_ang": 3,
    "robot0_eef_vel_lin": 3,
    "robot0_gripper_qpos": 2,
    "robot0_gripper_qvel": 2,
    "robot0_joint_pos": 7,
    "robot0_joint_pos_cos": 7,
    "robot0_joint_vel": 7,
}


def unlabeled(demos: Demos) -> Demos:
    return Demos([(episode.observations, episode.actions) for episode in demos])


def found_in(demos: Demos) -> InferredLayouts:
    """What is found, checked to be usable: the layouts fit the data, and lines print them as they can be written."""
    inferred = Layout.infer(unlabeled(demos))
    inferred.relabel(demos)
    for layout in (inferred.observation_layout, inferred.action_layout):
        assert Layout.parse(str(layout)) == layout
    lines = describe(inferred)
    assert lines[0].endswith(str(inferred.observation_layout))
    assert len(lines) == 2 + len(inferred.findings) and not any("\n" in line for line in lines)
    assert all(0 <= f.confidence <= 1 and f.columns and f.evidence and f.overrule for f in inferred.findings)
    told = {(f.side, c) for f in inferred.findings for c in f.columns}
    assert {("observation", c) for c in range(inferred.observation_layout.width)} <= told
    assert json.loads(json.dumps(inferred.to_json()))["commands"] == [
        {**c, "action_columns": list(c["action_columns"]), "observation_columns": list(c["observation_columns"])}
        for c in inferred.to_json()["commands"]
    ]
    return inferred


def known(layout: Layout) -> dict[tuple[int, str, int], str | None]:
    """The entries that say something, with their bodies."""
    return {(s.start, e.kind, e.size): e.body for e, s in layout.slices() if e.kind not in OPEN}


def assert_agrees(found: Layout, declared: Layout, *, missing: int = 0) -> None:
    """Nothing is found that was not declared, bodies are told apart alike, and `missing` entries are left open."""
    one, other = known(found), known(declared)
    assert set(one) <= set(other), "found something else than was declared"
    assert len(other) - len(one) == missing
    pairs = {(one[entry], other[entry]) for entry in one}
    assert len({a for a, _ in pairs}) == len({b for _, b in pairs}) == len(pairs)


def unwrapped(demos: Demos, column: int) -> Demos:
    episodes = []
    for episode in demos:
        observations = episode.observations.astype(np.float64)
        observations[:, column] = np.unwrap(observations[:, column])
        episodes.append((observations, episode.actions))
    return Demos(episodes, demos.observation_layout, demos.action_layout)


@pytest.mark.parametrize("name", ["pusht-embedded", "pusht"])
@pytest.mark.parametrize("turns", ["wrapped", "unwrapped"])
def test_pusht_is_found_as_declared(name, turns):
    demos = real_demos(name)
    demos = unwrapped(demos, 4) if turns == "unwrapped" else demos
    inferred = found_in(demos)
    assert_agrees(inferred.observation_layout, demos.observation_layout)
    assert_agrees(inferred.action_layout, demos.action_layout)
    (command,) = inferred.commands
    assert (command.how, command.body, command.scale) == ("target", "hand", 1.0)
    assert command.observation_columns == (0, 1) and 1 <= command.lag <= 3


@pytest.mark.parametrize("turns", ["wrapped", "unwrapped"])
def test_few_demonstrations_are_enough_for_pusht(pusht, turns):
    demos = pusht[:25] if turns == "wrapped" else unwrapped(pusht[:25], 4)
    assert_agrees(found_in(demos).observation_layout, demos.observation_layout)


@pytest.mark.parametrize(
    ("task", "observed", "commanded"),
    [("can", 0, 1), ("lift", 0, 0), ("square", 0, 0), ("tool_hang", 0, 0), ("transport", 2, 0)],
)
def test_robomimic_is_found_as_declared_or_left_open(task, observed, commanded):
    """Two episodes each: bins that never move are left open, and a rotation target that never changes."""
    demos = load_demos(ROBOMIMIC / f"{task}.hdf5")
    inferred = found_in(demos)
    assert_agrees(inferred.observation_layout, demos.observation_layout, missing=observed)
    assert_agrees(inferred.action_layout, demos.action_layout, missing=commanded)


@pytest.mark.parametrize("actions", ["recorded", "absolute", "absolute_6d"])
def test_lift_is_found_as_declared_for_all_forms_of_its_actions(actions):
    demos = load_demos(real_file("robomimic", "lift_ph_low_dim_10demos.hdf5"), actions=actions)
    inferred = found_in(demos)
    assert_agrees(inferred.observation_layout, demos.observation_layout)
    assert_agrees(inferred.action_layout, demos.action_layout)
    command = inferred.commands[0]
    assert command.how == ("displacement" if actions == "recorded" else "target")
    assert command.action_columns == (0, 1, 2) and command.observation_columns == (10, 11, 12)


def test_joints_and_velocities_beside_poses_do_not_mislead():
    names = list(WIDTHS)
    for order in (names, names[::-1]):
        path = real_file("robomimic", "lift_ph_low_dim_10demos.hdf5")
        demos = load_demos(path, observation_keys=order, actions="absolute")
        found = found_in(demos).observation_layout
        kinds = {(entry.kind, entry.body) for entry in found.entries if entry.kind not in OPEN}
        assert kinds == {(kind, body) for body in ("body1", "hand") for kind in ("position", "quaternion")} | {
            ("vector", None)
        }
        starts = np.cumsum([0] + [WIDTHS[key] for key in order])[:-1]
        object_at, hand_at, turn_at = (int(starts[order.index(name)]) for name in (names[0], names[1], names[2]))
        assert set(known(found)) == {
            (object_at, "position", 3),
            (object_at + 3, "quaternion", 4),
            (object_at + 7, "vector", 3),
            (hand_at, "position", 3),
            (turn_at, "quaternion", 4),
        }


def test_a_hand_that_is_only_seen_from_the_object_is_no_position():
    keys = ["robot0_joint_pos", "robot0_eef_quat", "object"]  # without robot0_eef_pos
    demos = load_demos(real_file("robomimic", "lift_ph_low_dim_10demos.hdf5"), observation_keys=keys)
    inferred = found_in(demos)
    assert (18, "position", 3) not in known(inferred.observation_layout)
    assert "hand" not in inferred.action_layout.bodies


@pytest.mark.parametrize("order", ["xyzw", "wxyz"])
@pytest.mark.parametrize("goal", [True, False])
def test_stacked_frames_displacements_and_quaternions_are_found(order, goal):
    demos = stacked_pick(np.random.default_rng(0), order=order, goal=goal)
    inferred = found_in(demos)
    kind = "quaternion" if order == "xyzw" else "quaternion_wxyz"
    assert known(inferred.observation_layout) == {
        (0, "position", 3): "hand",
        (4, "position", 3): "body1",
        (7, kind, 4): "body1",
        **({(36, "position", 3): "body2"} if goal else {}),
    }
    assert {(c.column, c.source) for c in inferred.copies} == {(c + 18, c) for c in range(18)}
    assert set(range(11, 18)) <= set(inferred.constants)
    assert known(inferred.action_layout) == {(0, "vector", 3): "hand"}
    (command,) = inferred.displacements
    assert command.scale == pytest.approx(0.01, rel=0.05)
    assert command.lag == pytest.approx(0.7 / 0.3, abs=0.3)  # the mean delay of what moves by 0.3 of the rest in a step
    assert command.r2 > 0.95


def test_units_do_not_matter():
    demos = stacked_pick(np.random.default_rng(1))
    scale = np.ones(39)
    for start in (0, 4, 18, 22, 36):
        scale[start : start + 3] = 1000.0
    millimeters = Demos([(e.observations * scale, e.actions) for e in demos])
    one, other = Layout.infer(demos), Layout.infer(millimeters)
    assert one.observation_layout == other.observation_layout and one.action_layout == other.action_layout
    assert other.displacements[0].scale == pytest.approx(1000 * one.displacements[0].scale, rel=0.01)


@pytest.mark.parametrize("kind", ["quaternion", "quaternion_wxyz"])
def test_the_order_of_quaternions_is_found_in_observations_and_actions(kind):
    inferred = found_in(poses(np.random.default_rng(0), kind))
    assert known(inferred.observation_layout) == {(0, "position", 3): "hand", (3, kind, 4): "hand"}
    assert known(inferred.action_layout) == {(0, "position", 3): "hand", (3, kind, 4): "hand"}


@pytest.mark.parametrize("kind", ["rotation6d", "rotation6d_rows"])
def test_rows_or_columns_that_cannot_be_told_are_said_to_be_unknown(kind):
    inferred = found_in(poses(np.random.default_rng(0), kind))
    assert known(inferred.observation_layout) == {(0, "position", 3): "hand"}
    (finding,) = [f for f in inferred.findings if f.side == "observation" and f.kind == "rotation6d"]
    assert finding.columns == tuple(range(3, 9)) and finding.confidence < 0.5
    assert "rotation6d_rows" in finding.overrule and "order unknown" in finding.evidence


@pytest.mark.parametrize("how", ["target", "change"])
@pytest.mark.parametrize(("n_joints", "extra"), [(7, 21), (28, 11), (6, 0)])
@pytest.mark.parametrize("gains", ["one", "many"])
def test_joints_are_no_bodies(how, n_joints, extra, gains):
    demos = joints(np.random.default_rng(2), how, n_joints, extra)
    if gains == "many":
        gain = np.linspace(0.3, 2, n_joints)
        demos = Demos([(e.observations, e.actions * gain + gain - 1) for e in demos])
    inferred = found_in(demos)
    assert not known(inferred.observation_layout) and not inferred.action_layout.bodies
    assert all(command.body is None for command in inferred.commands)
    if gains == "one":
        (command,) = inferred.commands
        assert command.observation_columns == tuple(range(n_joints))


def test_differences_tell_positions_among_joints():
    inferred = found_in(door(np.random.default_rng(3)))
    assert known(inferred.observation_layout) == {
        (27, "position", 3): "body1",
        (30, "position", 3): "body2",
        (33, "vector", 3): None,
    }


@pytest.mark.parametrize(("how", "kind"), [("next", "target"), ("velocity", "velocity")])
def test_a_path_in_the_plane_is_a_position_and_its_velocity_is_found(how, kind):
    inferred = found_in(handwriting(np.random.default_rng(4), how))
    assert known(inferred.observation_layout) == {(0, "position", 2): "hand"}
    (command,) = inferred.commands
    assert command.how == kind
    if how == "next":
        assert (command.scale, command.lag) == (1.0, 1.0) and inferred.targets and not inferred.copies
    else:
        assert command.scale == pytest.approx(0.01) and command.lag == 0.0 and inferred.velocities


def nothing(what: str) -> Demos:
    rng = np.random.default_rng(5)
    match what:
        case "noise":
            return Demos([(rng.normal(size=(100, 20)), rng.normal(size=(100, 5))) for _ in range(10)])
        case "walks":
            paths = [np.cumsum(rng.normal(size=(100, 25)), 0) for _ in range(10)]
            return Demos([(path[:, :20], path[:, 20:]) for path in paths])
        case "smooth":
            return Demos([(smooth(rng, 100, 20), smooth(rng, 100, 5)) for _ in range(10)])
        case "one episode":
            return Demos([(smooth(rng, 100, 20), smooth(rng, 100, 5))])
        case "constants":
            return Demos([(np.ones((50, 6)), np.zeros((50, 2)))])
        case "integers":
            return Demos([(rng.integers(0, 5, (60, 8)), rng.integers(0, 3, (60, 2))) for _ in range(5)])
        case "one-hot":
            return Demos([(np.eye(4)[rng.integers(0, 4, 60)], rng.integers(0, 2, (60, 2))) for _ in range(5)])
        case "two steps":
            return Demos([(rng.normal(size=(2, 8)), rng.normal(size=(2, 2))) for _ in range(30)])
        case "one step":
            return Demos([(rng.normal(size=(1, 8)), rng.normal(size=(1, 2)))])
        case "no step":
            return Demos([(np.zeros((0, 8)), np.zeros((0, 2)))])
        case "images":
            return Demos([(rng.random((40, 3000)), rng.normal(size=(40, 2))) for _ in range(3)])
        case _:
            return Demos([(1e200 * smooth(rng, 60, 5), 1e300 * rng.normal(size=(60, 2))) for _ in range(5)])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "what",
    [
        "noise",
        "walks",
        "smooth",
        "one episode",
        "constants",
        "integers",
        "one-hot",
        "two steps",
        "one step",
        "no step",
        "images",
        "huge numbers",
    ],
)
def test_nothing_is_found_where_there_is_nothing(what):
    inferred = found_in(nothing(what))
    assert not known(inferred.observation_layout) and not known(inferred.action_layout)
    assert not inferred.commands and not inferred.copies


def test_two_values_are_binary_only_where_they_are_switched_between():
    rng = np.random.default_rng(6)
    still = [(np.full((30, 1), value), rng.normal(size=(30, 1))) for value in (0.3, 0.7)]
    assert found_in(Demos(still)).observation_layout.entries[0].kind == "other"  # two episodes, each at rest
    switched = [(rng.integers(0, 2, (30, 1)), rng.normal(size=(30, 1))) for _ in range(2)]
    assert found_in(Demos(switched)).observation_layout.entries[0].kind == "binary"


def test_numbers_that_are_not_finite_are_said_and_the_rest_is_found():
    demos = stacked_pick(np.random.default_rng(7))
    episodes = [(e.observations.copy(), e.actions) for e in demos]
    episodes[3][0][5, 3] = np.nan
    inferred = Layout.infer(Demos(episodes, finite=False))
    assert (0, "position", 3) in known(inferred.observation_layout)
    assert any(3 in f.columns and "not all finite" in f.evidence for f in inferred.findings)


def test_angles_are_found_by_their_jumps_and_degrees_are_only_named():
    rng = np.random.default_rng(8)
    turns = [np.cumsum(rng.normal(size=(200, 1)) * 0.2 + 0.05, 0) + rng.uniform(-3, 3) for _ in range(6)]
    radians = Demos([((t + np.pi) % (2 * np.pi) - np.pi, rng.normal(size=(200, 1))) for t in turns])
    assert known(found_in(radians).observation_layout) == {(0, "angle", 1): None}
    degrees = found_in(Demos([(np.degrees(e.observations), e.actions) for e in radians]))
    assert not known(degrees.observation_layout)
    assert any("degrees" in finding.evidence for finding in degrees.findings)
    within = Demos([(np.sin(t), rng.normal(size=(200, 1))) for t in turns])  # never jumps: any number could be so
    assert not known(found_in(within).observation_layout)


def test_axis_angles_are_found_by_their_flips():
    rng = np.random.default_rng(9)
    episodes = []
    for _ in range(6):
        turns = smooth(rng, 200, 3, 1.0) + np.array([3.0, 0.0, 0.0])
        angle = np.linalg.norm(turns, axis=1, keepdims=True)
        short = np.where(angle > np.pi, turns * (1 - 2 * np.pi / angle), turns)
        episodes.append((short, rng.normal(size=(200, 1))))
    assert known(found_in(Demos(episodes)).observation_layout) == {(0, "axis_angle", 3): None}


def test_the_last_action_in_an_observation_is_a_copy():
    rng = np.random.default_rng(10)
    episodes = []
    for _ in range(5):
        actions = rng.normal(size=(50, 2))
        last = np.concatenate([np.zeros((1, 2)), actions[:-1]])
        episodes.append((np.concatenate([smooth(rng, 50, 3), last], 1), actions))
    inferred = found_in(Demos(episodes))
    assert [(c.column, c.source, c.of) for c in inferred.copies] == [(3, 0, "action"), (4, 1, "action")]


def test_a_quaternion_that_is_none_in_one_late_episode_is_left_open():
    """Only a part of large data is looked at closely, but layouts have to fit all of it."""
    rng = np.random.default_rng(11)
    episodes = []
    for _ in range(40):
        angle = np.cumsum(rng.normal(size=(1000, 1)) * 0.05, 0) + rng.uniform(-3, 3)
        quaternion = np.concatenate([0 * angle, 0 * angle, np.sin(angle / 2), np.cos(angle / 2)], 1)
        episodes.append([quaternion, rng.normal(size=(1000, 1))])
    assert known(found_in(Demos([tuple(e) for e in episodes])).observation_layout) == {(0, "quaternion", 4): None}
    episodes[1][0] = episodes[1][0] * (np.arange(1000) != 500)[:, None]
    assert not known(found_in(Demos([tuple(e) for e in episodes])).observation_layout)


@pytest.mark.parametrize("how", ["velocity", "target"])
@pytest.mark.parametrize("scale", [1.0, 200.0])
def test_the_heading_of_a_planar_robot_is_no_height(how, scale):
    """x, y and a wrapped heading, all three commanded at once."""
    rng = np.random.default_rng(12)
    episodes = []
    for _ in range(8):
        path = np.concatenate([smooth(rng, 201, 2, scale), np.cumsum(rng.normal(size=(201, 1)) * 0.1 + 0.06, 0)], 1)
        actions = np.diff(path, axis=0) / 0.05 if how == "velocity" else path[1:]
        wrapped = np.concatenate([path[:, :2], (path[:, 2:] + np.pi) % (2 * np.pi) - np.pi], 1)
        episodes.append((wrapped[:-1], actions))
    inferred = found_in(Demos(episodes))
    assert known(inferred.observation_layout) == {(0, "position", 2): "hand", (2, "angle", 1): None}
    assert (0, "vector" if how == "velocity" else "position", 2) in known(inferred.action_layout)


@pytest.mark.parametrize("seed", range(4))
def test_episodes_that_are_all_alike_count_as_one(seed):
    """What happens at the same time in each episode is no evidence that one thing commands the other."""
    rng = np.random.default_rng(seed)
    path = smooth(rng, 100, 20)
    episodes = [
        (path[:, :15] + 0.05 * smooth(rng, 100, 15), path[:, 15:] + 0.05 * smooth(rng, 100, 5)) for _ in range(9)
    ]
    inferred = found_in(Demos(episodes))
    assert not known(inferred.observation_layout) and not inferred.commands


def test_numbers_that_are_not_in_order_are_left_open():
    """The hand's coordinates are far apart: that two of them are next to each other makes no planar hand."""
    demos = stacked_pick(np.random.default_rng(13))
    order = [0, 1, 3, 4, 7, 2, 8, 5, 9, 6, 10]
    inferred = found_in(Demos([(e.observations[:, order], e.actions) for e in demos]))
    assert not known(inferred.observation_layout)


def with_codes(rng, noise=0.0):
    """A hand that is told to go somewhere, and two zeros and a one-hot number of its two goals, as half turns have."""
    episodes = []
    for index in range(9):
        goal = index % 2
        code = np.tile([0.0, 0.0, *np.eye(2)[goal]], (30, 1)) + noise * rng.normal(size=(30, 4))
        hand = np.linspace(rng.uniform(-1, 0, 2), np.eye(2)[goal], 31)
        episodes.append((np.concatenate([hand[:-1], code], 1), hand[1:]))
    return Demos(episodes)


@pytest.mark.parametrize("noise", [0.0, 1e-5])
def test_a_one_hot_code_is_no_rotation(noise):
    found = found_in(with_codes(np.random.default_rng(0), noise)).observation_layout
    assert not {entry.kind for entry in found.entries} & {"quaternion", "quaternion_wxyz", "rotation6d"}


@pytest.mark.parametrize("policy_class", POLICIES)
@pytest.mark.parametrize("preset", ["default", "paper"])
def test_an_inferred_kind_never_raises_and_a_declared_one_does(tmp_path, policy_class, preset):
    rng = np.random.default_rng(0)
    turns = rng.normal(size=(12, 1, 4)) + np.cumsum(0.1 * rng.normal(size=(12, 30, 4)), 1)
    turns /= np.linalg.norm(turns, axis=2, keepdims=True)
    hands = np.cumsum(rng.normal(scale=0.1, size=(12, 31, 3)), 1)
    switch = (np.arange(30) // 5 % 2)[:, None]
    demos = Demos(
        [
            (np.concatenate([h[:-1], q], 1), np.concatenate([h[1:], switch], 1))
            for h, q in zip(hands, turns, strict=True)
        ]
    )
    kind = Layout.parse("hand position 3, hand quaternion")
    declared = demos.with_layouts(kind, Layout.parse("hand position 3, hand binary"))
    entries = [replace(entry, inferred=True) for entry in (*kind.entries, *declared.action_layout.entries)]
    inferred = demos.with_layouts(Layout(tuple(entries[:2])), Layout(tuple(entries[2:])))
    assert all(entry.inferred for entry in Layout.infer(demos).observation_layout.entries)
    odd = np.array([*hands[0, 0], 1.0, 1.0, 0.0, 0.0])
    third = demos[0].observations, demos[0].actions + 0.5 * np.eye(4)[3]
    told = policy_class(declared, preset)
    with pytest.raises(ClosedFormError, match="expected unit length"):
        told.plan(odd, seed=0)
    with pytest.raises(ClosedFormError, match="expected two values"):
        told.add(third)
    guessed = policy_class(inferred, preset)
    guessed.save(tmp_path / "policy")
    for policy in (guessed, policy_class.load(tmp_path / "policy")):
        assert np.isfinite(policy.plan(odd, seed=0).actions).all()
        assert np.isfinite(policy.plan(odd * [1, 1, 1, 0, 0, 0, 0], seed=0).actions).all()
        policy.add((np.tile(odd, (30, 1)), demos[0].actions))
        policy.add(third)
        assert policy.observation_layout == declared.observation_layout


def test_names_of_columns_group_and_name_bodies(tmp_path):
    rng = np.random.default_rng(0)
    lines = ["episode,obs_ee_x,obs_ee_y,obs_cube_pos_0,obs_cube_pos_1,obs_joint_pos_0,obs_joint_pos_1,act_x,act_y"]
    for index in range(4):
        cube = rng.uniform(-1, 1, 2)  # never moves: nothing but its name says what it is
        hand = np.linspace(rng.uniform(-1, 1, 2), cube, 31)
        joints = np.cumsum(rng.normal(size=(30, 2)), 0)
        rows = np.concatenate([np.full((30, 1), index), hand[:-1], np.tile(cube, (30, 1)), joints, hand[1:]], 1)
        lines += [",".join(map(repr, row)) for row in rows.tolist()]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    inferred = Layout.infer(load_demos(tmp_path / "a.csv"))
    assert str(inferred.observation_layout) == "ee position 2, cube position 2, - other 2"
    assert str(inferred.action_layout) == "ee position 2"
    finding = next(f for f in inferred.findings if f.body == "cube")
    assert finding.evidence == "named obs_cube_pos_0, obs_cube_pos_1"


@pytest.mark.parametrize(
    ("names", "bodies", "positions"),
    [
        (["obs_ee_x", "obs_ee_y", "obs_grip"], ["ee", "ee", "grip"], [(0, 2)]),
        ([f"cube_pos[{i}]" for i in range(3)], ["cube"] * 3, [(0, 3)]),
        (["observation.tool.x", "observation.tool.y", "observation.tool.z"], ["tool"] * 3, [(0, 3)]),
        (["motor_0", "motor_1"], ["motor"] * 2, []),
        ([f"joint_pos[{i}]" for i in range(3)], ["joint"] * 3, []),
        (["ee_vel_x", "ee_vel_y"], ["ee_vel"] * 2, []),
        (["shoulder_pan.pos", "elbow.pos"], ["shoulder_pan", "elbow"], []),
        (["proxy", "taxy", "x", "y"], ["proxy", "taxy", "x", "y"], []),
    ],
)
def test_what_names_say(names, bodies, positions):
    assert [body_of([name]) for name in names] == bodies and named_positions(names) == positions
