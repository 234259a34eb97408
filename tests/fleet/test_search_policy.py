"""A policy without a replica plans as one with all demonstrations, as far as search in the store finds them."""

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from closedform import Demos
from closedform.cli import main
from closedform.errors import ConfigError, LoadError
from closedform.fleet import FleetPolicy, FleetTable, SearchPolicy, publish
from closedform.fleet.engine_index import EngineIndex
from closedform.fleet.engine_steps import LEFT_OUT, EngineSteps
from closedform.weights.penalty import Penalty
from tests.conftest import planar_demos, random_demos
from tests.store.test_recorded_steps import exactly

pytest.importorskip("lancedb", reason="LanceDB is not installed: make test-fleet")
pytest.importorskip("faiss", reason="faiss is not installed: make test-fleet")

PARAMETERS = {"n_action_steps": 4, "n_neighbors": 60, "n_diffusion_steps": 10, "index": "faiss", "bandwidth": 0.3}
EPISODES = random_demos(np.random.default_rng(0), 30, 40, 3, 2)
QUERIES = random_demos(np.random.default_rng(1), 1, 40, 3, 2)[0].observations[::9]


@pytest.fixture
def table(tmp_path):
    table = FleetTable.create(tmp_path / "fleet")
    table.push(EPISODES, task="walk")
    return table


@pytest.fixture
def replica(tmp_path, table):
    where = {"task": "walk"}
    with FleetPolicy(table.uri, cache=tmp_path / "cache", where=where, period=None, **PARAMETERS) as policy:
        yield policy


def everywhere(policy):
    """The policy, with a search in all lists."""
    storage = policy.model.storage
    recall = replace(storage.index.recall, n_probes=storage.index.recall.n_lists)
    storage = replace(storage, index=replace(storage.index, recall=recall))
    policy._use(replace(policy.model, storage=storage))
    return policy


def plan_alike(policy, replica):
    """Searching in all lists, it plans as exact search does, up to single precision and what is left out."""
    policy, other = everywhere(policy), exactly(pickle.loads(pickle.dumps(replica)))
    for query in QUERIES:
        plan, wanted = policy.plan(query, seed=0), other.plan(query, seed=0)
        np.testing.assert_allclose(plan.actions, wanted.actions, atol=0.01 * np.abs(wanted.actions).max())
        assert (plan.episodes[0], plan.steps[0]) == (wanted.episodes[0], wanted.steps[0])


def test_it_plans_as_the_replica_and_fetches_only_what_carries_weight(table, replica):
    recall = publish(replica)
    assert recall.weighty >= replica.config.recall and recall.n_queries == 50
    policy = SearchPolicy(table.uri)
    assert policy.index_recall == recall and policy.episode_ids == replica.episode_ids
    assert policy.n_fetched == 0  # opening it fetches no episode
    plan_alike(policy, replica)
    assert 0 < policy.n_fetched < len(EPISODES)
    fetched = policy.n_fetched
    plan_alike(policy, replica)
    assert policy.n_fetched == fetched  # they are still in memory


def test_with_all_lists_it_finds_what_exact_search_finds(table, replica):
    publish(replica)
    model = everywhere(SearchPolicy(table.uri)).model
    assert isinstance(model.index, EngineIndex)
    features = replica.model.index.rows()[:]
    for query in model.kernel.features(QUERIES[:, None]):
        rows, found = model.index.search(query, 60)
        np.testing.assert_array_equal(rows, np.sort(np.argsort(np.square(features - query).sum(1))[:60]))
        np.testing.assert_allclose(found, features[rows], rtol=1e-6, atol=1e-6)


def test_what_is_left_out_has_little_weight(table, replica):
    publish(replica)
    model, k = SearchPolicy(table.uri).model, PARAMETERS["n_neighbors"]
    some = Penalty.none()
    for query in model.kernel.features(QUERIES[:, None]):
        found = model.found(query, k, some)
        rows = model.nearest(query, k)
        weights = model.kernel.weights(query, model.features_at(rows))
        kept = np.isin(rows, found.rows)
        assert 0 < kept.sum() < len(rows)
        assert weights[~kept].sum() <= 1.01 * LEFT_OUT * weights.sum()


def test_frames_are_chosen_by_the_same_neighbors(tmp_path, table):
    table.push(planar_demos(np.random.default_rng(2), n_episodes=12), task="circle")
    options = {"n_neighbors": 100, "n_action_steps": 4, "index": "faiss", "frames": "auto"}
    where = {"task": "circle"}
    with FleetPolicy(table.uri, cache=tmp_path / "other", where=where, period=None, **options) as replica:
        publish(replica, "circle")
        policy, replica = everywhere(SearchPolicy(table.uri, "circle")), exactly(pickle.loads(pickle.dumps(replica)))
        for observation in planar_demos(np.random.default_rng(3), n_episodes=1)[0].observations[::10]:
            plan, wanted = policy.plan(observation, seed=0), replica.plan(observation, seed=0)
            assert plan.frame == wanted.frame
            np.testing.assert_allclose(plan.actions, wanted.actions, atol=0.01 * np.abs(wanted.actions).max())


def test_removed_episodes_are_left_out(table, replica):
    name = table.push(Demos([EPISODES[0]]), task="walk").known[0]
    publish(replica)
    policy = SearchPolicy(table.uri)
    query = EPISODES[0].observations[12]
    assert policy.plan(query, seed=0).episodes[0] == 0
    table.remove([name])
    policy.refresh()
    assert 0 not in policy.plan(query, seed=0).episodes and 0 not in policy.episode_ids
    assert 0 not in SearchPolicy(table.uri).episode_ids
    replica.refresh()
    assert publish(replica).weighty >= replica.config.recall  # of the episodes that are there
    policy = SearchPolicy(table.uri)
    plan_alike(policy, replica)


def test_what_was_published_before_stays_until_the_next_time(table, replica):
    publish(replica)
    old = SearchPolicy(table.uri)
    table.push(random_demos(np.random.default_rng(4), 2, 40, 3, 2), task="walk")
    replica.refresh()
    publish(replica)
    assert len(SearchPolicy(table.uri).episodes) == 32
    assert len(old.episodes) == 30
    for query in QUERIES:
        old.plan(query, seed=0)
    publish(replica)
    publish(replica, "other")
    publish(replica)
    tables = [path.name for path in (table_folder(table)).iterdir() if path.name.startswith("windows-")]
    assert len(tables) == 3  # two of one name, and one of the other
    old = SearchPolicy(table.uri)
    for left in table_folder(table).glob("windows-*"):
        left.rename(left.with_name("away-" + left.name))
    with pytest.raises(LoadError, match="expected a fleet"):
        for query in QUERIES:
            old.plan(query, seed=1)


def table_folder(table):
    return Path(table.uri)


def test_memory_is_bounded(table, replica):
    publish(replica)
    policy = SearchPolicy(table.uri, cache=0)
    plan_alike(policy, replica)
    fetched = policy.n_fetched
    plan_alike(policy, replica)
    assert policy.n_fetched > fetched


def test_another_process_opens_the_same(table, replica):
    publish(replica)
    policy = SearchPolicy(table.uri)
    for query in QUERIES:
        plan, other = policy.plan(query, seed=0), pickle.loads(pickle.dumps(policy)).plan(query, seed=0)
        np.testing.assert_array_equal(plan.actions, other.actions)
    assert isinstance(policy.model.leave_out(3).storage, EngineSteps)
    found = policy.model.leave_out(3).nearest(
        policy.model.kernel.features(EPISODES[3].observations[5][None, None])[0], 60
    )
    assert 3 not in policy.store.row_episodes[found]


def test_what_it_cannot_do_is_one_line(tmp_path, table, replica):
    with pytest.raises(LoadError, match="expected windows to search, found none; write some: closedform fleet index"):
        SearchPolicy(table.uri)
    publish(replica)
    with pytest.raises(LoadError, match="found none"):
        SearchPolicy(table.uri, "other")
    policy = SearchPolicy(table.uri)
    for change in (lambda: policy.add(EPISODES[0]), lambda: policy.remove(0), lambda: policy.save(tmp_path / "saved")):
        with pytest.raises(ConfigError, match="holds what was published"):
            change()
    with (
        FleetPolicy(table.uri, cache=tmp_path / "exact", period=None, index="exact") as exact,
        pytest.raises(ConfigError, match="index='faiss'"),
    ):
        publish(exact)


def test_damage_is_noticed(table, replica, monkeypatch):
    publish(replica)
    monkeypatch.setattr("closedform.fleet.engine_steps.crc32", lambda arrays: "0")
    with pytest.raises(LoadError, match="found a checksum mismatch"):
        SearchPolicy(table.uri)


def test_the_command(tmp_path, table, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    main(["fleet", "index", "fleet", "--cache", "replica", "--task", "walk", "--name", "walk"])
    assert "recall" in capsys.readouterr().out
    assert len(SearchPolicy(table.uri, "walk").episodes) == 30
