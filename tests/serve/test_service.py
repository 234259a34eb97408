"""What is served, without a wire: observations by name, sessions, provenance, new demonstrations."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from closedform import ClosedFormPolicy, Demos, Layout
from closedform.analysis.familiarity import measure_familiarity
from closedform.demos.chosen_layouts import choose_layouts
from closedform.errors import ClosedFormWarning, ConfigError, DataError
from closedform.policies.named_observation import entry_names
from closedform.serve import Service, service, session
from closedform.serve.action_range import ActionRange
from closedform.serve.observations import ObservationReader
from closedform.weights.terms.action_prefix import ActionPrefix
from tests.conftest import planar_demos, random_demos, slow_on_the_reference
from tests.evaluation.toy import displaced_demos
from tests.serve.held_plans import held_plans

DEMOS = planar_demos(np.random.default_rng(0))
HERE = DEMOS.episodes[2].observations[3]


@pytest.fixture(scope="module")
def served():
    return Service(ClosedFormPolicy(DEMOS, n_diffusion_steps=5), false_alarm_rate=0.05)


def test_a_reply_is_the_agents_plan_and_says_what_is_behind_it(served):
    agent = served.policy.agent(seed=3)
    session = served.open()
    session.reset(3)
    for step in (0, 4, 8):  # loop memory and randomness go on from plan to plan
        seen = DEMOS.episodes[1].observations[step]
        reply, plan = served.answer({"observation": seen}, session), agent.plan(seen)
        np.testing.assert_array_equal(reply["actions"], plan.actions)
    assert reply["demonstrations"] == plan.episodes.tolist() and reply["steps"] == plan.steps.tolist()
    assert reply["weights"] == plan.weights.tolist() and sum(reply["weights"]) == pytest.approx(1)
    assert reply["frame"] == plan.frame and reply["cut_short"] is False
    expected = measure_familiarity(served.policy, 0.05)
    assert reply["familiarity"] == {
        "alarm": False,
        "distance": plan.distance,
        "threshold": expected.threshold,
        "share_nearer": expected.share_nearer(plan.distance),
        "false_alarm_rate": 0.05,
    }
    arrays = [key for key, value in reply.items() if isinstance(value, np.ndarray)]
    assert arrays == ["actions"]  # others would be sliced by openpi's ActionChunkBroker


def test_an_observation_far_away_raises_the_alarm(served):
    reply = served.answer({"observation": HERE + 5}, served.open())
    assert reply["familiarity"]["alarm"] and reply["familiarity"]["share_nearer"] == 1


def test_actions_far_outside_the_demonstrated_range_are_not_served(served):
    far = HERE + 1e12  # finite, in the frame of a body far away
    with pytest.raises(DataError, match=r"alarm: .*far outside the demonstrated range.*--any-actions"):
        served.answer({"observation": far}, served.open())
    asked_for = Service(served.policy, any_actions=True)
    reply = asked_for.answer({"observation": far}, asked_for.open())
    assert reply["familiarity"]["alarm"] and reply["actions"].min() > 1e11
    one = Demos(DEMOS.episodes[:1], DEMOS.observation_layout, DEMOS.action_layout)
    alone = Service(ClosedFormPolicy(one, n_diffusion_steps=5))  # which has no alarm
    with pytest.raises(DataError, match="far outside the demonstrated range"):
        alone.answer({"observation": far}, alone.open())
    for demos in (DEMOS, choose_layouts(displaced_demos(), "infer").demos):  # also where targets are planned
        policy = ClosedFormPolicy(demos, n_diffusion_steps=5)
        limits = ActionRange.of(policy)
        assert all(limits.problem(episode.actions) is None for episode in demos)
        assert limits.problem(np.full((2, policy.action_layout.width), 1e9)) is not None


def test_keys_of_a_request_can_be_chosen():
    """As DROID's: their numbers follow each other."""
    keys = "observation/joint_position", "observation/gripper_position"
    served = Service(ClosedFormPolicy(DEMOS, n_diffusion_steps=5), keys=keys)
    request = {keys[0]: HERE[:4], keys[1]: HERE[4:], "observation/wrist_image_left": np.zeros((2, 2, 3), np.uint8)}
    reply = served.answer({**request, "seed": 0}, served.open())
    expected = served.policy.agent(seed=0).plan(HERE).actions
    np.testing.assert_array_equal(reply["actions"], expected)
    assert reply["ignored_keys"] == ["observation/wrist_image_left"]
    assert list(served.metadata()["observation_keys"]) == list(keys)
    for wrong in ({keys[0]: HERE[:4]}, {keys[0]: HERE[:4], keys[1]: HERE}, {"observation": HERE}):
        with pytest.raises(DataError, match="expected"):
            served.answer(wrong, served.open())


def test_a_plan_cut_by_the_deadline_says_so():
    with pytest.warns(ClosedFormWarning, match="plans will be late"):
        quick = Service(ClosedFormPolicy(DEMOS, deadline=1e-9))
    assert quick.answer({"observation": HERE}, quick.open())["cut_short"] is True


@pytest.mark.parametrize(
    "request_",
    [
        {"observation": HERE.tolist()},
        {"state": HERE},
        {"observation/state": HERE},
        {"observation": {"state": HERE, "image": 1}},
        {"hand_position": HERE[:2], "block_position": HERE[2:4], "block_angle": HERE[4]},
        {"observation/hand_position": HERE[:2], "block_position": HERE[2:4], "observation.block_angle": HERE[4:]},
        {"observation": {"block_angle": HERE[4:], "block_position": HERE[2:4], "hand_position": HERE[None, :2]}},
    ],
)
def test_every_way_to_name_an_observation_gives_the_same_plan(served, request_):
    expected = served.answer({"observation": HERE, "seed": 0}, served.open())["actions"]
    reply = served.answer({**request_, "seed": 0, "prompt": "push"}, served.open())
    np.testing.assert_array_equal(reply["actions"], expected)
    assert reply["ignored_keys"] == ["prompt"]


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ([1, 2], "a map of names to values, found list"),
        ({}, r"'observation', an array of 5 numbers, or the keys hand_position \(2\), .*; found nothing"),
        ({"hand_position": HERE[:2]}, "found hand_position, without block_position, block_angle"),
        ({"observation": HERE, "hand_position": HERE[:2]}, "once, found observation, hand_position"),
        ({"observation": HERE[:4]}, r"observation: expected 5 numbers, found shape \(4,\)"),
        ({"observation": np.stack([HERE, HERE])}, r"found shape \(2, 5\)"),
        ({"observation": "text"}, "array of real numbers"),
        ({"observation": [1, [2]]}, "array of real numbers"),
        ({"observation": HERE * np.nan}, "must be finite"),
        ({"observation": {"observation": {"observation": HERE}}}, "observation must be an array of real numbers"),
        ({"observation": HERE, "executed": 13}, "at most the 12 actions"),
        ({"observation": HERE, "executed": -1}, "executed: expected a whole number"),
        ({"observation": HERE, "executed": True}, "executed: expected a whole number"),
        ({"observation": HERE, "seed": "x"}, "seed: expected a whole number"),
        ({"observation": HERE, "endpoint": "kill"}, "expected infer, reset, add or remove, found 'kill'"),
        ({"observation": HERE, "endpoint": []}, "expected infer, reset, add or remove"),
        ({"observation": HERE, "session_id": 1.5}, "session_id: expected"),
        ({"observation": HERE, "session_id": "x" * 300}, "session_id: expected"),
        ({f"key {i}": 0 for i in range(99)}, "and 87 more"),
    ],
)
def test_what_cannot_be_answered_is_one_line(served, request_, message):
    with pytest.raises((DataError, ConfigError), match=message) as error:
        served.answer(request_, served.open())
    assert "\n" not in str(error.value) and len(str(error.value)) < 1000


def test_entries_of_the_same_name_are_numbered():
    layout = Layout.of((None, "other", 2), ("hand", "position", 3), (None, "other", 1))
    assert entry_names(layout) == {"other_0": 2, "hand_position": 3, "other_1": 1}
    window, used = ObservationReader(layout, 2).read(
        {"other_0": np.ones((2, 2)), "hand_position": np.zeros((2, 3)), "other_1": np.array([5, 6])}
    )
    assert window.tolist() == [[1, 1, 0, 0, 0, 5], [1, 1, 0, 0, 0, 6]] and len(used) == 3
    with pytest.raises(DataError, match="as many rows each"):
        ObservationReader(layout, 2).read({"other_0": np.ones((2, 2)), "hand_position": np.zeros(3), "other_1": 5})


def test_named_sessions_are_apart_and_go_on(served):
    def actions(name, step, **more):
        seen = DEMOS.episodes[0].observations[step]
        return served.answer({"observation": seen, "session_id": name, **more})["actions"]

    alone = [actions("alone", 0, seed=7), actions("alone", 4), actions("alone", 8)]
    first = actions("a", 0, seed=7)
    actions("b", 20, seed=1)
    second = actions(np.array(["a"]), 4)
    actions("b", 24)
    third = actions(b"a", 8)
    np.testing.assert_array_equal(alone, [first, second, third])
    served.answer({"endpoint": "reset", "session_id": "a", "seed": 7})
    np.testing.assert_array_equal(actions("a", 0), alone[0])


def test_requests_that_wait_together_are_answered_as_alone(served):
    """Sessions, loop memory and randomness stay apart; what cannot be answered harms nobody else."""
    together, apart = ([served.open() for _ in range(8)] for _ in range(2))
    for number, sessions in enumerate(zip(together, apart, strict=True)):
        for each in sessions:
            each.reset(number)
    for step in range(0, 24, 4):
        requests = [{"observation": DEMOS.episodes[i % 6].observations[step + i % 3]} for i in range(8)]
        requests[3] = {"observation": HERE[:3]}
        requests[4] = {"observation": HERE + 1e200}  # at no finite distance
        expected = [answered(served, *pair) for pair in zip(requests, apart, strict=True)]
        found = dict(
            pair for some in served.answer_together(list(zip(requests, together, strict=True))) for pair in some
        )
        assert sorted(found) == list(range(8))
        for index, alone in enumerate(expected):
            if isinstance(alone, Exception):
                assert str(found[index]) == str(alone) and index in (3, 4)
                continue
            np.testing.assert_array_equal(found[index]["actions"], alone["actions"])
            assert {**found[index], "actions": 0, "policy_timing": 0} == {**alone, "actions": 0, "policy_timing": 0}


def answered(served, request, session):
    try:
        return served.answer(request, session)
    except DataError as error:
        return error


def test_one_session_twice_among_requests_that_wait_together(served):
    agent, session = served.policy.agent(seed=2), served.open()
    session.reset(2)
    seen = DEMOS.episodes[1].observations
    requests = [({"observation": seen[step]}, session) for step in (0, 4)]
    found = dict(pair for some in served.answer_together(requests) for pair in some)
    for index, step in enumerate((0, 4)):
        np.testing.assert_array_equal(found[index]["actions"], agent.plan(seen[step]).actions)


def test_a_session_has_one_request_at_a_time(served, monkeypatch):
    with ThreadPoolExecutor(2) as pool, held_plans(served.policy, monkeypatch) as held:
        first = pool.submit(served.answer, {"observation": HERE, "session_id": "twice"})
        assert held.began.wait(60)
        monkeypatch.setattr(session, "PATIENCE", 0.0)
        with pytest.raises(DataError, match="session 'twice': expected one request at a time"):
            served.answer({"observation": HERE, "session_id": "twice"})
        monkeypatch.setattr(session, "PATIENCE", 60.0)
        second = pool.submit(served.answer, {"observation": HERE, "session_id": "twice"})
        held.go_on.set()
        assert first.result(60)["actions"].shape == second.result(60)["actions"].shape == (12, 2)


def test_sessions_not_used_for_long_are_forgotten(served, monkeypatch):
    monkeypatch.setattr(service, "N_SESSIONS", 2)
    first, second = served.session("first"), served.session("second")
    assert served.session("first") is first
    served.session("third")
    assert served.session("first") is first and served.session("second") is not second


def test_windows_and_single_observations(monkeypatch):
    """A single observation is repeated, unless the robot says that it is one step after the last."""
    demos = random_demos(np.random.default_rng(1), 4, 20, 3, 2)
    two = Service(ClosedFormPolicy(demos, n_obs_steps=2, n_diffusion_steps=5))
    session, windows, plan = two.open(), [], two.policy.step_together

    def watched(seen, *rest):
        windows.extend(seen)
        return plan(seen, *rest)

    monkeypatch.setattr(two.policy, "step_together", watched)
    seen = demos.episodes[0].observations
    for request in (
        {"observation": seen[0]},
        {"observation": seen[1], "executed": 1},
        {"observation": seen[5]},
        {"observation": seen[8:10]},
        {"observation": seen[10], "executed": 1},
    ):
        two.answer(request, session)
    expected = [seen[[0, 0]], seen[[0, 1]], seen[[5, 5]], seen[[8, 9]], seen[[9, 10]]]
    np.testing.assert_array_equal(windows, expected)


@slow_on_the_reference
def test_displacements_follow_what_was_executed():
    """Where targets are planned, the controller's target depends on the actions executed, as for an agent."""
    demos = choose_layouts(displaced_demos(), "infer").demos
    policy = ClosedFormPolicy(demos, n_diffusion_steps=10)
    assert policy.targets is not None
    served, agent = Service(policy), policy.agent(seed=0)
    session = served.open()
    session.reset(0)
    for step in range(0, 12, 4):
        seen = demos.episodes[0].observations[step]
        reply = served.answer({"observation": seen}, session)
        actions = [agent.act(seen) for _ in range(4)]
        np.testing.assert_array_equal(reply["actions"][:4], actions)
    chunks = []
    for executed in (4, 1):
        session.reset(0)
        served.answer({"observation": demos.episodes[0].observations[0]}, session)
        seen = demos.episodes[0].observations[4]
        chunks.append(served.answer({"observation": seen, "executed": executed}, session)["actions"])
    assert not np.array_equal(*chunks)


def test_real_time_chunking(served):
    session, agent = served.open(), served.policy.agent(seed=1)
    session.reset(1)
    seen = DEMOS.episodes[1].observations
    left = served.answer({"observation": seen[0]}, session)["actions"][4:]
    agent.plan(seen[0])
    reply = served.answer({"observation": seen[4], "left_over": left, "delay": 2}, session)
    np.testing.assert_array_equal(reply["actions"], agent.plan(seen[4], ActionPrefix(left, 2)).actions)
    np.testing.assert_array_equal(reply["actions"][:2], left[:2])
    assert reply["ignored_keys"] == []
    for request in ({"delay": 2}, {"left_over": left, "delay": 9}, {"left_over": "text"}):
        with pytest.raises(DataError, match=r"delay|left_over"):
            served.answer({"observation": seen[4], **request}, session)


def test_a_demonstration_is_added_and_seen_by_the_next_plan():
    few = Demos(DEMOS.episodes[:1], DEMOS.observation_layout, DEMOS.action_layout)
    learning = Service(ClosedFormPolicy(few, n_diffusion_steps=5), learn=True)
    session, new = learning.open(), DEMOS.episodes[2]
    before = learning.answer({"observation": HERE}, session)
    assert before["familiarity"] is None and set(before["demonstrations"]) == {0}  # one episode calibrates nothing
    added = learning.add({"endpoint": "add", "observations": new.observations, "actions": new.actions})
    assert added == {"episode": 1, "episodes": 2}
    after = learning.answer({"observation": HERE}, session)
    assert set(after["demonstrations"]) == {1} and after["familiarity"]["distance"] == pytest.approx(0, abs=1e-6)
    for request in (
        {"observations": new.observations},
        {"observations": new.observations, "actions": new.actions[:-1]},
        {"observations": new.observations, "actions": new.actions, "images": 1},
        {"observations": new.observations[:, :4], "actions": new.actions},
        {"observations": new.observations * np.nan, "actions": new.actions},
    ):
        with pytest.raises(DataError):
            learning.add(request)
    assert learning.policy.fingerprint()["episodes"] == 2


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
def test_a_demonstration_that_nothing_can_be_compared_with_is_not_kept():
    """Its numbers are finite, and their squares are not."""
    learning = Service(ClosedFormPolicy(DEMOS, n_diffusion_steps=5), learn=True)
    before = learning.answer({"observation": HERE, "seed": 1}, learning.open())
    new = DEMOS.episodes[2]
    with pytest.raises(DataError):
        learning.add({"observations": new.observations * 1e300, "actions": new.actions})
    after = learning.answer({"observation": HERE, "seed": 1}, learning.open())
    np.testing.assert_array_equal(after["actions"], before["actions"])
    assert after["familiarity"] == before["familiarity"]
    assert learning.add({"observations": new.observations + 0.1, "actions": new.actions})["episodes"] == 7


def test_what_was_taught_is_removed_and_nothing_else():
    learning = Service(ClosedFormPolicy(DEMOS, n_diffusion_steps=5), learn=True)
    before, alarm = learning.answer({"observation": HERE, "seed": 1}, learning.open()), learning.familiarity
    added = learning.add({"observations": DEMOS[0].observations + 0.1, "actions": DEMOS[0].actions})
    taught = learning.answer({"observation": HERE, "seed": 1}, learning.open())
    assert not np.array_equal(taught["actions"], before["actions"])
    for wrong in (0, added["episode"] + 1, None, "6", -1):
        with pytest.raises(DataError, match=r"episode: expected|expected an episode that was added \(6\), found"):
            learning.remove({"endpoint": "remove", "episode": wrong})
    assert learning.change({"endpoint": "remove", "episode": added["episode"]}) == {"episode": 6, "episodes": 6}
    after = learning.answer({"observation": HERE, "seed": 1}, learning.open())
    np.testing.assert_array_equal(after["actions"], before["actions"])
    assert learning.familiarity is not None and alarm is not None
    assert learning.familiarity.threshold == alarm.threshold
    with pytest.raises(DataError, match=r"expected an episode that was added \(none\), found 6"):
        learning.remove({"endpoint": "remove", "episode": 6})


def test_an_episode_with_a_faulty_number_is_not_learned():
    learning = Service(ClosedFormPolicy(DEMOS, n_diffusion_steps=5), learn=True)
    faulty = DEMOS[0].observations.copy()
    faulty[4, 2] = 1e6
    with pytest.raises(DataError, match=r"episode 6: observations: found 1e\+06 at step 4, entry 2 \(block position\)"):
        learning.add({"observations": faulty, "actions": DEMOS[0].actions})
    assert learning.policy.fingerprint()["episodes"] == 6


def test_learning_has_to_be_allowed(served):
    with pytest.raises(ConfigError, match="without --learn"):
        served.remove({"episode": 0})
    with pytest.raises(ConfigError, match="without --learn"):
        served.add({"observations": HERE[None], "actions": HERE[None, :2]})
    assert served.policy.fingerprint()["episodes"] == 6
