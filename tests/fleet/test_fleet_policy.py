"""A policy that follows a fleet plans as one built from the same episodes, whatever happens to the store."""

import errno
import pickle
import threading

import numpy as np
import pytest

from closedform import ClosedFormPolicy, Demos
from closedform.errors import ConfigError, DataError, LoadError
from closedform.fleet import FleetPolicy, FleetTable
from closedform.fleet import fleet_policy as module
from closedform.fleet.replica import Replica
from closedform.policies.agent import act_together
from closedform.serve import Service
from closedform.store.recorded_steps import RecordedSteps
from tests.conftest import planar_demos, random_demos
from tests.fleet.spoiled import spoil
from tests.judge.test_symmetry_search import pushes

pytest.importorskip("lancedb", reason="LanceDB is not installed: make test-fleet")

PARAMETERS = {"n_action_steps": 4, "n_neighbors": 50, "n_diffusion_steps": 10, "choose_shrinkage": False}
EPISODES = random_demos(np.random.default_rng(0), 12, 40, 3, 2)


@pytest.fixture
def table(tmp_path):
    table = FleetTable.create(tmp_path / "fleet")
    table.push(EPISODES[:4], task="walk")
    return table


@pytest.fixture
def follow(tmp_path):
    """Opens policies that look at the fleet only when they are told to."""
    opened = []

    def open_policy(cache="cache", **options):
        settings = {"period": None, "clock": lambda: 0.0, "where": {"task": "walk"}, **PARAMETERS, **options}
        opened.append(FleetPolicy(tmp_path / "fleet", cache=tmp_path / cache, **settings))
        return opened[-1]

    yield open_policy
    for policy in opened:
        policy.close()


def check_plans(policy, episodes, **parameters):
    """Plans are those of a policy built from these episodes."""
    other = ClosedFormPolicy(Demos(episodes), **{**PARAMETERS, **parameters})
    assert len(policy.episodes) == len(episodes)
    for observation in EPISODES[5].observations[::13]:
        plan, wanted = policy.plan(observation, seed=0), other.plan(observation, seed=0)
        np.testing.assert_array_equal(plan.actions, wanted.actions)
        np.testing.assert_array_equal(plan.episodes, np.array(policy.episode_ids)[wanted.episodes])
    return policy.plan(EPISODES[5].observations[0], seed=0).replica


def test_it_follows_what_is_pushed_and_removed(table, follow):
    policy = follow()
    assert policy.refresh() and check_plans(policy, EPISODES[:4]) == (4, True, "", "")
    names = table.push(EPISODES[4:6], task="walk").stored
    table.push(EPISODES[6:7], task="swim")
    table.push(EPISODES[0:2], task="walk")  # which are there already
    assert policy.refresh() and check_plans(policy, EPISODES[:6]).rows == 7
    table.remove(names[:1])
    assert policy.refresh() and check_plans(policy, [*EPISODES[:4], EPISODES[5]]).rows == 8
    assert policy.episode_ids == [0, 1, 2, 3, 5]
    table.push(EPISODES[4:5], task="walk")
    assert policy.refresh() and policy.episode_ids == [0, 1, 2, 3, 5, 8]
    other = follow("other")
    assert other.episode_ids == policy.episode_ids
    check_plans(other, [*EPISODES[:4], EPISODES[5], EPISODES[4]])


def test_it_goes_on_while_the_store_is_away(tmp_path, table, follow):
    policy = follow()
    table.push(EPISODES[4:5], task="walk")
    (tmp_path / "fleet").rename(tmp_path / "away")
    assert not policy.refresh()
    state = check_plans(policy, EPISODES[:4])
    assert not state.connected and "expected a fleet" in state.problem and state.rows == 4
    policy.close()
    again = follow()  # opens what the replica has
    assert not again.refresh() and not check_plans(again, EPISODES[:4]).connected
    (tmp_path / "away").rename(tmp_path / "fleet")
    assert again.refresh() and check_plans(again, EPISODES[:5]) == (5, True, "", "")


def test_plans_made_together_say_that_the_store_is_away(tmp_path, table, follow):
    """As an evaluation and the server make them."""
    policy, seen = follow(), EPISODES[5].observations[0]
    service = Service(policy)
    for connected in (True, False):
        if not connected:
            (tmp_path / "fleet").rename(tmp_path / "away")
        assert policy.refresh() == connected
        agents = [policy.agent(seed=seed) for seed in range(3)]
        act_together(agents, [seen] * 3)
        assert [agent.last_plan.replica.connected for agent in agents] == [connected] * 3
        asked = [({"observation": seen}, service.open()) for _ in range(3)]
        replies = [reply for part in service.answer_together(asked) for _, reply in part]
        state = policy.replica_state._asdict()
        assert [reply["replica"] for reply in replies if isinstance(reply, dict)] == [state] * 3


def test_a_store_that_does_not_answer_is_away(table, follow):
    now = [100.0]
    policy = follow(clock=lambda: now[0])
    policy.refresh()
    now[0] += 0.9 * module.AWAY
    assert policy.plan(EPISODES[0].observations[0], seed=0).replica.connected
    now[0] += 0.2 * module.AWAY
    assert not policy.plan(EPISODES[0].observations[0], seed=0).replica.connected


def test_plans_do_not_wait_for_a_slow_store(table, follow, monkeypatch):
    now, asked, answer, taken = [0.0], threading.Event(), threading.Event(), threading.Event()
    look, take = FleetTable.refresh, FleetPolicy._take

    def slow(self):
        if threading.current_thread().name == "closedform-fleet":
            asked.set()
            answer.wait()
        return look(self)

    monkeypatch.setattr(FleetTable, "refresh", slow)
    monkeypatch.setattr(FleetPolicy, "_take", lambda self, table: (take(self, table), taken.set()))
    policy = follow(period=0.01, clock=lambda: now[0])
    try:
        asked.wait()  # the thread that follows hangs in the store from here on
        table.push(EPISODES[4:5], task="walk")
        now[0] = module.AWAY + 1
        assert not check_plans(policy, EPISODES[:4]).connected and not taken.is_set()
    finally:
        answer.set()
    taken.wait()
    check_plans(policy, EPISODES[:5])


def test_whatever_the_engine_raises_plans_go_on(table, follow, monkeypatch):
    policy = follow()
    policy.refresh()
    table.push(EPISODES[4:5], task="walk")

    def broken(*_):
        raise ZeroDivisionError("in the engine")

    monkeypatch.setattr(FleetTable, "refresh", broken)
    assert not policy.refresh() and check_plans(policy, EPISODES[:4]) == (4, False, "in the engine", "")
    monkeypatch.undo()
    assert policy.refresh() and check_plans(policy, EPISODES[:5]).connected


def test_a_thread_follows(table, follow, monkeypatch):
    taken, take = threading.Event(), FleetPolicy._take
    monkeypatch.setattr(FleetPolicy, "_take", lambda self, table: (take(self, table), taken.set()))
    policy = follow(period=0.01)
    taken.wait()
    taken.clear()
    table.push(EPISODES[4:5], task="walk")
    taken.wait()
    check_plans(policy, EPISODES[:5])


def test_episodes_that_cannot_be_planned_from_are_left_out_and_the_others_are_not(table, follow, monkeypatch):
    policy = follow()
    table.push(planar_demos(np.random.default_rng(1), n_episodes=1), task="walk")
    table.push(EPISODES[4:5], task="walk")
    assert policy.refresh()
    assert "same layouts and rate" in check_plans(policy, EPISODES[:5]).problem
    read = FleetTable._numbers

    def damaging(self, rows):
        for number, (row, numbers) in enumerate(read(self, rows)):
            yield row, {**numbers, **({"actions": numbers["actions"][::-1]} if not number else {})}

    monkeypatch.setattr(FleetTable, "_numbers", damaging)
    table.push(EPISODES[5:7], task="walk")
    assert policy.refresh()
    assert "checksum mismatch" in check_plans(policy, [*EPISODES[:5], EPISODES[6]]).problem


def faulty(episode):
    observations = episode.observations.copy()
    observations[7, 1] = 1e9
    return observations, episode.actions


def test_a_faulty_number_is_not_pushed(table):
    named = r"episode 0: observations: found 1e\+09 at step 7, entry 1"
    for others in ([], EPISODES[6:9]):
        with pytest.raises(DataError, match=named):
            table.push(Demos([faulty(EPISODES[5]), *others]), task="walk")
    assert table.n_rows() == 4


def test_a_replica_leaves_a_faulty_number_out(table, follow, monkeypatch):
    policy = follow()
    with monkeypatch.context() as patch:
        patch.setattr(FleetTable, "_refuse_faults", lambda *_: None)  # as an older version did
        table.push(Demos([faulty(EPISODES[5])]), task="walk")
    table.push(EPISODES[6:7], task="walk")
    assert policy.refresh()
    held = [*EPISODES[:4], EPISODES[6]]
    for replica in (policy, follow("another"), follow("a third", n_neighbors=30)):
        state = check_plans(replica, held, **({"n_neighbors": 30} if replica.config.n_neighbors == 30 else {}))
        assert "left out: episode 4: observations: found 1e+09 at step 7, entry 1" in state.problem
    policy.close()
    check_plans(follow(), held)


def test_a_full_disk_stops_nothing(tmp_path, table, follow, monkeypatch):
    policy = follow()
    table.push(EPISODES[4:5], task="walk")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("closedform.fleet.replica.save_file", full)
    assert not policy.refresh() and "No space left" in check_plans(policy, EPISODES[:4]).problem
    names = tmp_path / "cache" / "names"
    size = names.stat().st_size
    assert not policy.refresh() and names.stat().st_size == size  # looking again writes no more
    monkeypatch.undo()
    assert policy.refresh() and check_plans(policy, EPISODES[:5]).problem == ""


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_crash_while_files_are_merged_loses_nothing(table, follow, monkeypatch, moment):
    policy = follow()
    monkeypatch.setattr(module, "_MOST_PARTS", 0)

    class Killed(BaseException):
        pass

    def killed(*_):
        raise Killed

    place = (module, "save_policy") if moment == "before" else (Replica, "forget")
    monkeypatch.setattr(*place, killed)
    names = table.push(EPISODES[4:6], task="walk").stored
    table.remove(names[:1])
    with pytest.raises(Killed):
        policy.refresh()
    policy.close()
    monkeypatch.undo()
    again = follow()
    check_plans(again, [*EPISODES[:4], EPISODES[5]])
    assert again.refresh() and again.episode_ids == [0, 1, 2, 3, 5]


def test_a_large_replica_is_memory_mapped_and_grows_without_indexing_again(table, follow):
    table.push(EPISODES[4:8], task="walk")
    policy = follow(index="faiss")
    storage = policy.model.storage
    assert isinstance(storage, RecordedSteps) and storage.opened is not None
    indexed = storage.index._faiss
    names = table.push(EPISODES[8:11], task="walk").stored
    assert policy.refresh() and len(policy.episodes) == 11
    table.remove(names[1:2])
    assert policy.refresh() and policy.model.index._faiss is indexed
    plans = [policy.plan(o, seed=0).actions for o in EPISODES[9].observations[::13]]
    policy.close()
    again = follow(index="faiss")
    assert again.model.index.n_indexed == policy.model.index.n_indexed and again.episode_ids == policy.episode_ids
    for observation, actions in zip(EPISODES[9].observations[::13], plans, strict=True):
        np.testing.assert_array_equal(again.plan(observation, seed=0).actions, actions)


def test_other_parameters_are_built_from_the_replica_alone(tmp_path, table, follow):
    follow().close()
    (tmp_path / "fleet").rename(tmp_path / "away")
    check_plans(follow(bandwidth=0.5), EPISODES[:4], bandwidth=0.5)


def test_what_it_holds_is_saved_and_pickled_as_a_plain_policy(tmp_path, table, follow):
    policy = follow()
    policy.save(tmp_path / "saved")
    for copy in (ClosedFormPolicy.load(tmp_path / "saved"), pickle.loads(pickle.dumps(policy))):
        assert type(copy) is ClosedFormPolicy and copy.plan(np.zeros(3), seed=0).replica is None
        np.testing.assert_array_equal(copy.plan(np.zeros(3), seed=0).actions, policy.plan(np.zeros(3), seed=0).actions)
    for change in (lambda: policy.add(EPISODES[5]), lambda: policy.remove(0)):
        with pytest.raises(ConfigError, match="a fleet's policy holds what the fleet has"):
            change()


def test_a_replica_is_of_one_process_and_one_fleet(tmp_path, table, follow):
    follow().refresh()
    with pytest.raises(LoadError, match="each needs its own"):
        follow()
    follow("other").close()
    with pytest.raises(LoadError, match=r"expected the replica of .* \(task swim\), found that of .* \(task walk\)"):
        follow("other", where={"task": "swim"})
    with pytest.raises(DataError, match=r"expected episodes \(task swim\), found none"):
        follow("third", where={"task": "swim"})
    (tmp_path / "fleet").rename(tmp_path / "away")
    FleetTable.create(tmp_path / "fleet").push(EPISODES[6:], task="walk")
    policy = follow("other")
    assert not policy.refresh() and "found another table there" in check_plans(policy, EPISODES[:4]).problem


def mirrored(seed, n):
    """Demonstrations that show a mirror symmetry, which is looked for up to 50 of them."""
    return pushes(seed, n, 24)


@pytest.mark.parametrize("steps", [(40, 60), (40, 60, 45), (8, 14), (20, 24)])
def test_however_it_grew_it_plans_as_one_made_of_what_it_holds(tmp_path, steps, caplog):
    """Over the numbers of episodes for which symmetry is looked for, in both directions."""
    table, everything = FleetTable.create(tmp_path / "fleet"), mirrored(0, max(steps))
    names = list(table.push(everything[: steps[0]]).stored)
    with FleetPolicy(table.uri, cache=tmp_path / "a", period=None, **PARAMETERS) as policy:
        before, seen = policy.found_symmetry, everything[3].observations[5] + 0.01
        plan = policy.plan(seen, seed=0)
        for n in steps[1:]:
            if n > len(names):
                names += table.push(everything[len(names) : n]).stored
            table.remove(names[n:])
            del names[n:]
            assert policy.refresh()
            held = everything[:n]
            made = ClosedFormPolicy(held, **PARAMETERS)
            assert policy.found_symmetry == made.found_symmetry == (10 <= n <= 50)
            plan, wanted = policy.plan(seen, seed=0), made.plan(seen, seed=0)
            np.testing.assert_array_equal(plan.actions, wanted.actions)
            assert plan.replica is not None
            if before != policy.found_symmetry:
                words = "count as well" if policy.found_symmetry else "do not count"
                assert plan.replica.changed == f"with {n} episodes, mirror images of the episodes {words}"
                assert plan.replica.changed in caplog.text
            before = policy.found_symmetry
        with FleetPolicy(table.uri, cache=tmp_path / "b", period=None, **PARAMETERS) as other:
            np.testing.assert_array_equal(other.plan(seen, seed=0).actions, plan.actions)
    with FleetPolicy(table.uri, cache=tmp_path / "a", period=None, **PARAMETERS) as again:  # from the replica alone
        np.testing.assert_array_equal(again.plan(seen, seed=0).actions, plan.actions)


def test_the_order_of_pushes_changes_no_plan(tmp_path):
    demos, plans = mirrored(1, 30), []
    for name, order in (("a", range(30)), ("b", reversed(range(30)))):
        table = FleetTable.create(tmp_path / name)
        for index in order:
            table.push(demos[index : index + 1])
        with FleetPolicy(table.uri, cache=tmp_path / f"{name}-cache", period=None, **PARAMETERS) as policy:
            assert policy.found_symmetry
            plans.append(policy.plan(demos[3].observations[5] + 0.01, seed=0).actions)
    np.testing.assert_allclose(*plans, rtol=1e-9, atol=1e-9)


def test_horizons_follow_the_rate(tmp_path):
    """As for a policy that is made of the same demonstrations."""
    fast = random_demos(np.random.default_rng(3), 4, 600, 3, 2)
    fast = Demos(fast.episodes, rate=100.0)
    table = FleetTable.create(tmp_path / "fleet")
    table.push(fast)
    with FleetPolicy(table.uri, cache=tmp_path / "cache", period=None, choose_shrinkage=False) as policy:
        assert policy.config == ClosedFormPolicy(fast, choose_shrinkage=False).config
        assert policy.config.n_action_steps > 12


def test_a_row_that_no_push_writes_is_left_out_by_name(table, follow):
    policy = follow()
    spoil(table, time=2**62)
    table.push(EPISODES[4:5], task="walk")
    spoil(table, n_steps=-1)
    assert policy.refresh()
    state = check_plans(policy, EPISODES[:5])
    assert state.connected and state.rows == 7 and "left out: row 6, episode" in state.problem
    check_plans(follow("other"), EPISODES[:5])
