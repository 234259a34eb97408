"""Health: every kind of problem is found where it is, and sound demonstrations have none."""

import html
import json
from dataclasses import replace

import numpy as np
import pytest

from closedform import Demos, Layout, load_demos
from closedform.analysis.episode_problems import find_short
from closedform.analysis.health import examine
from closedform.analysis.health_report import draw, write_page
from closedform.analysis.problem import Problem, grouped
from closedform.analysis.verdict import _known, judge
from tests.conftest import PLANAR_ACTIONS, PLANAR_OBSERVATIONS, planar_demos


def spoiled(change, n_episodes=12):
    """Sound demonstrations with one thing done to them."""
    demos = planar_demos(np.random.default_rng(0), n_episodes=n_episodes)
    pairs = [(e.observations.copy(), e.actions.copy()) for e in demos]
    pairs = change(pairs) or pairs
    return Demos(pairs, PLANAR_OBSERVATIONS, PLANAR_ACTIONS, rate=10.0, finite=False)


def found(demos, kind):
    return [(p.episode, p.step) for p in examine(demos).problems if p.kind == kind]


def pushing(n_episodes=8, push=True, cut=None):
    """A hand goes to a block and, if it can push, takes it to the origin, where it rests."""
    rng, episodes = np.random.default_rng(0), []
    for _ in range(n_episodes):
        hand, block = rng.uniform(1, 2, 2) * rng.choice([-1, 1], 2), rng.uniform(0.2, 0.8, 2)
        seen, done = [], []
        while len(seen) < (cut or 200) and (len(seen) < 2 or not np.array_equal(seen[-1], seen[-2])):
            held = push and np.linalg.norm(hand - block) < 0.05
            step = np.clip((np.zeros(2) if held else block) - hand, -0.05, 0.05)
            seen.append([*hand, *block])
            done.append(hand + step)
            hand, block = hand + step, block + step if held else block
        rest = 5 * push
        episodes.append((np.array([*seen, *seen[-1:] * rest]), np.array([*done, *done[-1:] * rest])))
    layouts = Layout.parse("hand position 2, block position 2"), Layout.parse("hand position 2")
    return Demos(episodes, *layouts, rate=10.0)


def test_sound_demonstrations_have_no_problems():
    health = examine(pushing())
    assert [p for p in health.problems if p.severity != "note" or p.kind in ("never moved", "ends in motion")] == []
    assert judge(health).text.startswith("These look like demonstrations that work")


def test_failures_cut_at_a_limit_are_not_demonstrations_that_work():
    health = examine(pushing(push=False, cut=20))
    warned = {p.kind: p for p in health.problems if p.severity == "warning"}
    assert warned["equal lengths"].message == "all 8 episodes have 20 steps"
    assert warned["never moved"].message == "block is elsewhere in each episode and moves in none"
    assert "8 of 8 episodes end in motion" in {p.message for p in health.problems}
    assert "that work" not in judge(health).text


def test_a_goal_that_never_moves_is_a_note_where_something_else_does():
    goals = np.random.default_rng(1).uniform(size=(8, 2))
    pushed = pushing()
    pairs = [
        (np.concatenate([e.observations, np.broadcast_to(goals[i], (len(e), 2))], 1), e.actions)
        for i, e in enumerate(pushed)
    ]
    layout = Layout.parse("hand position 2, block position 2, goal position 2")
    found = [p for p in examine(Demos(pairs, layout, pushed.action_layout)).problems if p.kind == "never moved"]
    assert [(p.severity, p.column) for p in found] == [("note", 4)]


def test_torques_are_no_commands():
    """A pendulum held upright by a torque: errors grow faster than a policy replans, however well it predicts."""
    rng, episodes = np.random.default_rng(0), []
    for length in rng.integers(60, 90, 8):
        angle, speed, seen, torques = rng.uniform(-0.5, 0.5), 0.0, [], []
        for _ in range(length):
            torque = np.clip(-12 * angle - 3 * speed, -2, 2)
            seen.append([np.cos(angle), np.sin(angle), speed])
            torques.append([torque])
            speed += 0.05 * (15 * np.sin(angle) + 3 * torque)
            angle += 0.05 * speed
        episodes.append((np.array(seen), np.array(torques)))
    health = examine(Demos(episodes, rate=20.0))
    assert "that work" not in judge(health).text
    assert "indirect actions" in {p.kind for p in health.problems if p.severity == "warning"}


def test_numbers_that_are_not_finite_are_found():
    def change(pairs):
        pairs[3][0][7, 1] = np.nan
        pairs[5][1][2, 0] = np.inf

    health = examine(spoiled(change))
    errors = [p for p in health.problems if p.severity == "error"]
    assert (
        [(p.episode, p.step) for p in errors] == [(3, 7), (5, 2)] == [(p.episode, p.step) for p in health.problems[:2]]
    )
    assert "observation entry 1 (hand position) is nan" in errors[0].message
    assert all(error is None for error in health.prediction_error)  # no policy can be built from them


def test_jumps_are_found():
    def change(pairs):
        pairs[4][0][10, 0] += 50

    assert found(spoiled(change), "jump") == [(4, 10), (4, 11)]


def test_a_problem_says_which_number_it_is_about():
    def change(pairs):
        pairs[4][0][10, 3] += 50
        pairs[6][1][5, 1] += 1e3
        for observations, _ in pairs:
            observations[:, 4] = 0.3

    health = examine(spoiled(change))
    columns = {kind: {p.column for p in health.problems if p.kind == kind} for kind in ("jump", "unusual action")}
    assert columns == {"jump": {3}, "unusual action": {1}}
    assert [p.column for p in health.problems if p.kind == "constant"] == [4]

    def spoil(pairs):
        pairs[3][0][7, 1] = np.nan

    assert [p.column for p in examine(spoiled(spoil)).problems if p.severity == "error"] == [1]


def test_the_picture_does_not_depend_on_the_words_of_a_message(tmp_path):
    def change(pairs):
        pairs[4][0][10, 3] += 50

    demos = spoiled(change)
    health = examine(demos)
    assert any(p.kind == "jump" for p in health.problems)
    reworded = replace(health, problems=[replace(p, message="entry 0") for p in health.problems])
    for name, shown in (("a.png", health), ("b.png", reworded)):
        draw(shown, demos, tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


@pytest.mark.parametrize("kind", ["angle", "other"])
def test_a_wrapped_angle_is_told_from_a_jump(kind):
    angle = np.linspace(5.5, 7.5, 40)[:, None] % (2 * np.pi)
    demos = Demos([(angle + 0.001 * i, np.zeros((40, 1))) for i in range(3)], Layout.of((None, kind)))
    problems = [p for p in examine(demos).problems if p.kind == "wrapped angle"]
    assert [p.episode for p in problems] == [0, 1, 2]
    assert {p.severity for p in problems} == {"note" if kind == "angle" else "warning"}
    assert problems[0].advice.startswith("declare") == (kind == "other")


def test_a_quaternion_may_change_its_sign_but_not_jump():
    turn = np.linspace(0, 1, 60)
    quaternions = np.stack([0 * turn, 0 * turn, np.sin(turn / 2), np.cos(turn / 2)], 1)
    flipped, jumping = quaternions.copy(), quaternions.copy()
    flipped[30:] *= -1
    jumping[30] = [1.0, 0.0, 0.0, 0.0]
    layout = Layout.of(("hand", "quaternion"))
    for observations, expected in ((flipped, []), (jumping, [(1, 30), (1, 31)])):
        episodes = [(quaternions, turn[:, None]), (observations, turn[:, None])]
        assert found(Demos(episodes, layout), "jump") == expected


def flipping(t):
    """Rotations about x by nearly a half turn, recorded as axis-angles shorter than that, and as quaternions."""
    angles = np.pi + 0.2 * np.sin(t)
    wrapped = np.where(angles > np.pi, angles - 2 * np.pi, angles)
    signs = np.where(np.sin(3 * t) > 0, 1, -1)
    zeros = np.zeros_like(t)
    axis_angles = np.stack([wrapped, zeros, zeros], 1)
    return axis_angles, np.stack([np.sin(angles / 2), zeros, zeros, np.cos(angles / 2)], 1) * signs[:, None]


@pytest.mark.parametrize("kind", ["axis_angle", "quaternion"])
@pytest.mark.parametrize("declared", [True, False])
def test_a_rotation_that_changes_its_sign_does_not_jump(kind, declared):
    t = np.linspace(0, 12, 80)
    values = flipping(t)[kind == "quaternion"]
    layout = Layout.of(("hand", kind)) if declared else None
    problems = examine(Demos([(values, t[:, None]), (values, t[:, None])], layout)).problems
    found_kinds = {p.kind for p in problems if p.severity == "warning"} - {"duplicate", "indirect actions"}
    assert found_kinds == (set() if declared else {"undeclared rotation"})
    assert declared or f"declare it {kind}" in next(p.advice for p in problems if p.kind == "undeclared rotation")


def test_a_gripper_that_opens_and_closes_is_binary_and_has_not_lost_a_marker():
    def change(pairs):
        for observations, _ in pairs:
            observations[:, 3] = np.arange(len(observations)) >= 20
            observations[7:9, 3] = 1.0

    problems = examine(spoiled(change)).problems
    assert not [p for p in problems if p.kind == "jump"]
    switches = [p for p in problems if p.kind == "binary number"]
    assert switches[0].severity == "note" and "declare it binary" in switches[0].advice
    assert switches[0].message.endswith("switches from 0 to 1")


def test_a_gripper_with_noise_switches_and_a_lost_marker_jumps():
    rng = np.random.default_rng(0)

    def change(pairs):
        for observations, _ in pairs:
            n = len(observations)
            observations[:, 3] = 0.04 * (np.arange(n) < rng.integers(10, 20)) + 1e-4 * rng.normal(size=n)
        pairs[4][0][7, 2] += 50

    problems = [p for p in examine(spoiled(change)).problems if p.kind in ("jump", "switch") and p.episode is not None]
    assert {(p.kind, p.severity, p.column) for p in problems} == {("jump", "warning", 2), ("switch", "note", 3)}


def test_rotations_and_switches_among_the_actions_are_not_unusual():
    t = np.linspace(0, 12, 400)
    rotations = np.stack([np.where(np.arange(400) % 150 == 7, -3.1, 3.1), 0 * t, 0 * t], 1)
    gripper = (np.arange(400) % 200 == 5).astype(float)[:, None]
    actions = np.concatenate([rotations, gripper, t[:, None]], 1)
    actions[100, 4] = 90.0
    layout = Layout.of(("hand", "axis_angle"), (None, "other", 2))
    problems = examine(Demos([(t[:, None], actions), (t[:, None], actions + 0.0)], None, layout)).problems
    assert {p.column for p in problems if p.kind == "unusual action"} == {4}


def test_problems_are_grouped_by_kind_and_counted():
    def change(pairs):
        for observations, _ in pairs:
            observations[9, 2] = np.nan

    groups = grouped(examine(spoiled(change)).problems)
    assert [(g.severity, g.kind, g.count) for g in groups if g.severity == "error"] == [("error", "not finite", 12)]
    assert groups[0].describe().endswith("is nan (12 in all, the first in episode 0, step 9)")


def test_the_verdict_is_in_words_and_compares_with_data_that_work():
    sound = examine(spoiled(lambda pairs: pairs))
    known = max(_known().values())
    clean = replace(sound, problems=[])
    for error, level in ((0.9 * known, "good"), (1.1 * known, "warning")):
        verdict = judge(replace(clean, prediction_error=[error] * 12))
        assert verdict.level == level and f"{error:.2f}" in verdict.text and "Push-T" in verdict.text
    assert judge(replace(clean, prediction_error=[None] * 12)).level == "warning"
    alike = max(_known().values()) + 0.003  # printed as the same number
    assert judge(replace(clean, prediction_error=[alike] * 12)).level == "good"
    jump = Problem("warning", "jump", "it jumps", "look", 3, 4)
    told = judge(replace(clean, prediction_error=[0.0] * 12, problems=[jump, jump]))
    assert told.level == "warning" and "jump (2)" in told.text
    bad = judge(replace(clean, problems=[Problem("error", "not finite", "it is nan", "remove", 3, 4)]))
    assert bad.level == "error" and "cannot be used as they are: it is nan (in episode 3, step 4)" in bad.text


def test_columns_of_a_file_keep_their_names(tmp_path):
    rng = np.random.default_rng(0)
    lines = ["episode,obs_shoulder,obs_elbow,act_force"]
    lines += [f"{i // 20},{a},{b},{c}" for i, (a, b, c) in enumerate(rng.normal(size=(60, 3)))]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    health = examine(load_demos(tmp_path / "a.csv")[:2])
    assert [fact.name for fact in health.observations] == ["observation obs_shoulder", "observation obs_elbow"]
    assert health.actions[0].name == "action act_force"


def test_constant_numbers_are_found():
    def change(pairs):
        for observations, _ in pairs:
            observations[:, 4] = 0.3
        pairs[0][0][5, 3] = 0.0
        for observations, _ in pairs:
            observations[:, 3] = 5e3 + 1e-9 * observations[:, 3]

    states = [entry.state for entry in examine(spoiled(change)).observations]
    assert states == ["ok", "ok", "ok", "nearly constant", "constant"]


def test_duplicates_idle_stretches_short_episodes_and_unusual_actions_are_found():
    def change(pairs):
        pairs[7] = (pairs[2][0].copy(), pairs[2][1].copy())
        pairs[5][0][8:25], pairs[5][1][8:25] = pairs[5][0][8], pairs[5][1][8]
        pairs[9] = (pairs[9][0][:3], pairs[9][1][:3])
        pairs[1][1][20, 1] = 40.0

    demos = spoiled(change)
    assert found(demos, "duplicate") == [(7, 0)]
    assert found(demos, "idle") == [(5, 8)]
    assert found(demos, "short") == [(9, 0)]
    assert found(demos, "unusual action") == [(1, 20)]


def test_an_episode_unlike_the_others_and_thin_coverage_are_found():
    rng = np.random.default_rng(1)
    pairs = []
    for i in range(14):
        hand = np.linspace(0, 1, 40)[:, None] * [1.0, 0.5] + 0.01 * rng.normal(size=(40, 2))
        pairs.append((hand, -hand if i == 6 else hand))
    pairs[11] = (pairs[11][0] + [0.0, 40.0], pairs[11][1])
    health = examine(Demos(pairs))
    assert 6 in [p.episode for p in health.problems if p.kind == "unlike the others"]
    assert {p.episode for p in health.problems if p.kind == "thin coverage" and p.episode is not None} == {11}


def test_many_problems_of_a_kind_are_summed_up():
    def change(pairs):
        for observations, _ in pairs:
            observations[9, 2] = np.nan

    problems = [p for p in examine(spoiled(change)).problems if p.kind == "not finite"]
    assert len(problems) == 6 and problems[-1].message == "7 more of the same kind, in episodes 5, 6, 7, 8, 9, 10, 11"


@pytest.mark.parametrize("n_episodes", [1, 2])
def test_very_few_demonstrations_are_no_problem(n_episodes):
    assert examine(spoiled(lambda pairs: pairs, n_episodes)).n_episodes == n_episodes


def test_pusht_has_a_wrapped_angle(pusht, monkeypatch):
    monkeypatch.setenv("CLOSEDFORM_DISABLE_KERNELS", "0")  # the reference would take minutes
    health = examine(pusht)
    wrapped = [p for p in health.problems if p.kind == "wrapped angle"]
    assert wrapped[0].message.startswith("observation entry 4 (block angle) jumps from 6.2")
    assert 0.05 < np.median([e for e in health.prediction_error if e is not None]) < 0.3


def test_the_report_is_one_file_that_says_it_all(tmp_path, pusht, monkeypatch):
    monkeypatch.setenv("CLOSEDFORM_DISABLE_KERNELS", "0")
    health = examine(pusht[:30])
    draw(health, pusht[:30], tmp_path / "report.png")
    write_page(health, "a <b> & c", tmp_path / "report.png", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")
    assert "a &lt;b&gt; &amp; c" in page and "wrapped angle" in page and "data:image/png;base64," in page
    assert "http" not in page and page.count('<details class="problem">') == len(grouped(health.problems))
    assert html.escape(judge(health).text) in page
    assert page.index("<h2>Problems") < page.index("<h2>Charts") < page.index("<h2>Numbers")


def test_the_facts_are_json(lift):
    facts = json.loads(json.dumps(examine(lift[:2]).to_json()))
    assert facts["n_episodes"] == 2 and len(facts["observations"]) == 19


def test_demonstrations_with_bad_numbers_can_be_loaded_to_be_examined(tmp_path):
    bad = np.zeros((5, 2))
    bad[3, 1] = np.nan
    np.savez(tmp_path / "a.npz", observations=bad, actions=np.zeros((5, 1)), episode_ends=[5])
    assert found(load_demos(tmp_path / "a.npz", finite=False), "not finite") == [(0, 3)]


@pytest.mark.parametrize("name", ["$x^{$", "$", "a\\$b$", "\udcff", "entry 7"])
@pytest.mark.parametrize("jump", [0.0, 50.0])
def test_names_are_drawn_as_they_are(tmp_path, name, jump):
    rng = np.random.default_rng(0)
    pairs = [(np.cumsum(rng.normal(size=(20, 2)), 0), rng.normal(size=(20, 1))) for _ in range(2)]
    pairs[1][0][10, 0] += jump
    demos = Demos(pairs, Layout.of((name, "position", 2)), Layout.of((name, "other", 1)))
    health = examine(demos)
    draw(health, demos, tmp_path / "p.png")
    write_page(health, name, tmp_path / "p.png", tmp_path / "p.html")
    assert "data:image/png" in (tmp_path / "p.html").read_text("utf-8")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("value", [1e308, -1e308, 1e155, np.inf, -np.inf, np.nan])
def test_whatever_number_there_is_can_be_examined_and_drawn(tmp_path, value):
    rng = np.random.default_rng(1)
    pairs = [(rng.normal(size=(6, 2)), rng.normal(size=(6, 1))) for _ in range(3)]
    pairs[1][0][2, 1] = pairs[2][1][3, 0] = value
    demos = Demos(pairs, finite=False)
    health = examine(demos)
    draw(health, demos, tmp_path / "p.png")
    write_page(health, "name", tmp_path / "p.png", tmp_path / "p.html")
    assert health.problems


def test_short_episodes_beyond_the_listed_ones_are_counted():
    problems = find_short([100] * 20 + [1] * 8)
    assert [problem.episode for problem in problems] == [20, 21, 22, 23, 24, None]
    assert "3 more" in problems[-1].message
    assert "25, 26, 27" in problems[-1].message
