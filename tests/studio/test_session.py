"""A studio session in lockstep: who drives, what becomes an episode, and what edits do."""

import gc
import tracemalloc

import numpy as np
import pytest

from closedform import ClosedFormPolicy, Demos, Episode, Layout
from closedform.errors import ClosedFormError, ConfigError, DataError, LoadError
from closedform.evaluation.drawing import Drawing, Placement
from closedform.evaluation.environment import StepResult
from closedform.studio import Collection, StudioSession
from closedform.studio.session import SHORTEST
from closedform.studio.take import Take
from tests.studio.toys import ACTIONS, OBSERVATIONS, Table, demonstrate, make_session, template, until_next


def test_nothing_moves_before_the_first_demonstration():
    session = make_session()
    before = session.observation
    for _ in range(5):
        session.step(None)
    assert session.driver == "nobody" and session.frame()["waiting"]
    np.testing.assert_array_equal(session.observation, before)


def test_the_first_demonstration_makes_the_policy_which_drives_from_that_very_state():
    session = make_session()
    demonstrate(session, 4)
    assert session.driver == "person" and session.collection.policy is None
    left = session.observation
    session.step(None)
    assert session.driver == "policy"
    policy = session.collection.policy
    assert policy is not None and len(policy.episodes) == 1 and len(policy.episodes[0]) == 4
    np.testing.assert_array_equal(session.target, policy.agent(seed=session.seed).act(left))


def test_a_correction_begins_at_the_state_where_the_hand_was_grabbed():
    session = make_session()
    demonstrate(session, 3)
    for _ in range(2):
        session.step(None)
    grabbed = session.observation
    for x in (10.0, 12.0, 14.0):
        session.step((x, 20.0))
    session.step(None)
    first, second = session.collection.takes
    assert (first.kind, second.kind) == ("demonstration", "correction")
    np.testing.assert_array_equal(second.episode.observations[0], grabbed)
    np.testing.assert_array_equal(second.episode.actions, [(10, 20), (12, 20), (14, 20)])
    assert session.collection.policy is not None and len(session.collection.policy.episodes) == 2


def test_an_episode_counts_at_the_next_plan():
    session = make_session()
    demonstrate(session)
    assert session.outcome == "success"
    until_next(session)
    session.step(None)
    assert session.insight is not None and {ghost["take"] for ghost in session.insight["ghosts"]} == {0}
    demonstrate(session, 3)
    for _ in range(2):
        session.step(None)
    assert 1 in {ghost["take"] for ghost in session.insight["ghosts"]}  # the policy goes on with what was just shown


def test_what_is_behind_a_plan_has_all_of_its_weight():
    session = _taught(4)
    session.set_parameters({"bandwidth": 2.0})
    session.step(None)
    assert session.insight is not None
    behind = session.insight["behind"]
    assert len(behind) > 1 and sum(take["weight"] for take in behind) == pytest.approx(1, abs=1e-3)
    assert [take["weight"] for take in behind] == sorted((take["weight"] for take in behind), reverse=True)


def test_a_touch_is_not_kept():
    session = make_session()
    demonstrate(session, SHORTEST - 1)
    session.step(None)
    assert not session.collection.takes and "not kept" in session.notices[-1]


def test_holding_on_through_the_end_does_not_drive_the_next_run():
    session = make_session()
    demonstrate(session)
    assert session.outcome == "success" and session.collection.takes[0].success
    seed = session.seed
    while session.seed == seed:
        session.step((50.0, 50.0))
    session.step((50.0, 50.0))
    assert session.driver == "policy"
    session.step(None)
    session.step((50.0, 50.0))
    assert session.driver == "person"


@pytest.mark.parametrize("how", ["retry", "end"])
def test_a_stretch_is_kept_when_the_run_is_left(how):
    session = make_session()
    demonstrate(session, 4)
    getattr(session, how)()
    assert len(session.collection.takes) == 1 and session.n_steps == 0
    assert session.seed == (0 if how == "retry" else 1)


def test_pause_stops_time():
    session = make_session()
    demonstrate(session, 3)
    session.pause()
    before = session.frame()
    session.step(None)
    session.step((1.0, 1.0))
    assert session.frame() == before
    session.pause()
    session.step(None)
    assert session.driver == "policy"


def test_points_outside_of_the_scene_count_at_its_edge():
    session = make_session()
    session.step((-1e6, 1e6))
    np.testing.assert_array_equal(session.target, (0, 100))


def test_runs_that_a_person_helped_in_do_not_count_as_the_policys():
    session = make_session()
    demonstrate(session)
    until_next(session)
    until_next(session)  # the policy alone
    board = session.board.to_json()
    assert (board["runs"], board["helped"], board["alone"]["n"], board["since_edit"]["n"]) == (2, 1, 1, 1)
    low, high = board["alone"]["ci95"]
    assert 0 <= low <= board["alone"]["successes"] <= high <= 1 and low < high


def _plans(policy):
    return [policy.plan(Table().reset(seed), seed=seed).actions for seed in range(100, 105)]


def _taught(n=4):
    session = make_session()
    for _ in range(n):
        demonstrate(session)
        until_next(session)
    return session


def test_plans_after_a_deletion_are_as_if_it_had_never_been_there():
    session = _taught()
    others = [take.episode for take in session.collection.takes if take.number != 1]
    session.delete(1)
    fresh = ClosedFormPolicy(Demos(others, OBSERVATIONS, ACTIONS, Table.rate))
    np.testing.assert_allclose(_plans(session.collection.policy), _plans(fresh), atol=1e-9)


def test_undo_brings_back_what_was_deleted_and_removes_what_was_added():
    session = _taught(2)
    session.delete(0)
    session.undo()
    assert [take.number for take in session.collection.held] == [0, 1]
    session.undo()
    session.undo()
    assert session.collection.policy is None and not session.collection.held
    session.undo()
    assert session.notices[-1] == "nothing to undo"
    session.step(None)
    assert session.driver == "nobody"


def test_deleting_everything_and_starting_again():
    session = _taught(1)
    session.delete(0)
    with pytest.raises(DataError, match="not deleted"):
        session.delete(0)
    demonstrate(session)
    assert session.collection.policy is not None and len(session.collection.policy.episodes) == 1


def test_parameters_take_effect_and_can_be_undone():
    session = _taught(2)
    session.set_parameters({"bandwidth": 0.5, "n_execute": 2})
    session.step(None)
    policy = session.collection.policy
    assert policy is not None and (policy.config.bandwidth, policy.config.n_execute) == (0.5, 2)
    assert session.insight is not None and session.insight["n_execute"] == 2
    with pytest.raises(ClosedFormError, match="bandwidth"):
        session.set_parameters({"bandwidth": float("nan")})
    session.undo()
    assert session.collection.config.bandwidth != 0.5


def test_a_replayed_log_gives_the_same_plans():
    session = _taught(3)
    session.set_parameters({"tau": 0.02})
    session.delete(1)
    session.undo()
    session.delete(0)
    demonstrate(session)
    log = session.collection.log.text()
    again = Collection(template(), env="table")
    again.replay(log)
    assert again.config == session.collection.config
    assert [take.number for take in again.held] == [take.number for take in session.collection.held]
    np.testing.assert_array_equal(_plans(again.policy), _plans(session.collection.policy))


def test_a_log_is_replayed_on_the_demonstrations_that_its_session_began_with():
    demos = _taught(3).collection.demos()
    session = make_session(ClosedFormPolicy(demos))
    demonstrate(session, 5)
    session.step(None)
    session.delete(0)
    begun = ClosedFormPolicy(demos)
    again = Collection(begun, begun)
    again.replay(session.collection.log.text())
    assert len(again.held) == 3
    np.testing.assert_array_equal(_plans(again.policy), _plans(session.collection.policy))


def test_a_log_is_refused_on_other_demonstrations_and_garbage():
    session = _taught(2)
    log = session.collection.log.text()
    begun = ClosedFormPolicy(session.collection.demos())
    with pytest.raises(LoadError, match="began with"):
        Collection(template(), begun, env="table").replay(log)
    for line in ("", "{}", "[1]", log.splitlines()[1], log + '{"edit": "delete", "take": 99}', log + '{"edit": "add"}'):
        with pytest.raises(ClosedFormError):
            Collection(template(), env="table").replay(line + "\n")


def test_a_session_begins_with_a_policy():
    demos = _taught(3).collection.demos()
    session = make_session(ClosedFormPolicy(demos))
    assert [take.kind for take in session.collection.takes] == ["recorded"] * 3
    session.step(None)
    assert session.driver == "policy" and session.insight is not None and session.insight["level"] is not None


def test_show_me_goes_to_the_farthest_of_the_next_starts():
    session = _taught(2)
    policy, first = session.collection.policy, session.seed + 1
    session.show_me()
    assert policy is not None
    distances = {seed: policy.plan(Table().reset(seed), seed=0).distance for seed in range(first, first + 48)}
    assert session.seed == max(distances, key=lambda seed: distances[seed])


def test_did_that_help_compares_the_same_starts_without_and_with_the_last_episode():
    session = _taught(3)
    session.compare()
    paired = session.answers.paired
    assert paired is not None and (paired["n"], paired["take"]) == (10, 2)
    assert paired["with_it"] - paired["without"] == paired["better"] - paired["worse"]
    alone = _taught(1)
    alone.compare()
    assert alone.answers.paired is None and "compare" in alone.notices[-1]


def test_the_board_tells_runs_before_the_last_change_from_those_since():
    session = make_session()
    demonstrate(session)
    until_next(session)
    until_next(session)
    session.delete(0)
    board = session.board.to_json()
    assert (board["before_edit"]["n"], board["since_edit"]["n"]) == (1, 0)


def test_what_is_worth_watching_is_what_the_health_checks_say():
    session = make_session()
    session.examine()
    assert session.answers.findings == {"takes": {}, "current": True}
    for _ in range(2):
        demonstrate(session)
        until_next(session)
    session.delete(0)
    session.collection.add(session.collection.held[0].episode, "demonstration")
    session.examine()
    findings = session.answers.findings
    assert findings is not None and list(findings["takes"]) == [2]
    assert any("duplicate" in said for said in findings["takes"][2])


def test_the_map_is_familiar_where_the_hand_was_demonstrated():
    session = _taught(4)
    session.show_map(True)
    assert session.answers.map is not None
    shares = np.array(session.answers.map["shares"]).reshape(session.answers.map["cells"], -1)
    hand = (session.observation[:2] / 100 * len(shares)).astype(int)
    assert shares[hand[1], hand[0]] <= np.median(shares)
    session.show_map(False)
    assert session.answers.map is None


def test_environments_that_nothing_is_known_of_are_refused():
    class Plain(Bare):
        observation_layout = Layout.plain(5)

    with pytest.raises(ConfigError, match=r"something to show and to move.*drawing"):
        StudioSession(Plain(), Collection(template()))


@pytest.mark.parametrize("seed", [-1, 2**32, 1.5, True, "1"])
def test_invalid_seeds_are_refused(seed):
    session = make_session()
    with pytest.raises(ConfigError, match="seed"):
        session.start(seed)
    session.step(None)


def test_after_the_last_seed_comes_the_first():
    session = make_session(seed=2**32 - 1)
    demonstrate(session)
    until_next(session)
    assert session.seed == 0
    session.start(2**32 - 1)
    session.show_me()
    session.compare()
    session.start(2**32 - 1)
    session.end()
    assert session.seed == 0


def test_memory_grows_only_by_what_is_remembered():
    """Of a stretch that is taken back its numbers stay, in the log and to be restored: no models, no plans."""
    session, before, n_steps = make_session(background=lambda job, then: None), 0, 0
    tracemalloc.start()
    try:
        for i in range(60):
            if i == 20:  # everything is warm
                gc.collect()
                before, n_steps = tracemalloc.get_traced_memory()[0], 0
            demonstrate(session, 10)
            n_steps += 10
            session.step(None)
            session.undo()
            session.end()
            session.notices.clear()
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(session.collection.takes) == 60 and not session.collection.held
    assert grown / n_steps < 1000  # bytes


class Bare:
    """Says neither how it looks nor renders: its layout says where bodies are."""

    observation_layout = Layout.of(("hand", "position", 2), ("puck", "position", 2), ("puck", "angle", 1))
    action_layout, max_steps, rate = Table.action_layout, Table.max_steps, Table.rate

    def __init__(self):
        self._table = Table()

    def reset(self, seed):
        return np.append(self._table.reset(seed), 0.5)

    def step(self, action):
        result = self._table.step(action)
        return StepResult(np.append(result.observation, 0.5), result.score, result.success, result.done)


def test_a_scene_without_a_drawing_is_drawn_from_its_layout():
    still = Episode(np.zeros((4, 5)), np.zeros((4, 2)))
    layouts = Bare.observation_layout, Bare.action_layout
    session = StudioSession(
        Bare(), Collection(ClosedFormPolicy(Demos([still], *layouts, Bare.rate)), rate=Bare.rate, env="bare")
    )
    assert session.placement is not None
    drawing, pose = session.placement.drawing, session.frame()["poses"]["puck"]
    left, right, bottom, top = drawing.extent
    assert drawing.bodies["hand"].radius > 0 and drawing.bodies["puck"].polygons and pose[2] == 0.5
    assert left < pose[0] < right and bottom < pose[1] < top
    small = Placement(Drawing.of_layout(Bare.observation_layout, np.eye(5)), *layouts)  # of about a meter
    episode = Episode(np.linspace(0, 1, 100)[:, None] * np.ones(5), np.zeros((100, 2)))
    path = np.array(Take(0, "demonstration", episode).summary(small)["path"])
    assert len(np.unique(path[:, 0])) == len(path)  # and no staircase
    demonstrate(session, 30)
    until_next(session)
    assert len(session.collection.takes) == 1
