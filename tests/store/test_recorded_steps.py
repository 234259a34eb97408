"""A large store reads like a small one, finds what it is asked to find, and opens from a file without reading it."""

import itertools
import json
import pickle
import shutil
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from closedform import (
    ClosedFormError,
    ClosedFormPolicy,
    ClosedFormWarning,
    Demos,
    Layout,
    NearestNeighborPolicy,
    load_policy,
)
from closedform.analysis.explain import explain
from closedform.analysis.familiarity import measure_familiarity
from closedform.analysis.leave_one_out import leave_one_out
from closedform.demos.chosen_layouts import choose_layouts
from closedform.errors import ConfigError
from closedform.policies.saving import verify
from closedform.store import build
from closedform.store.faiss_index import FaissIndex
from closedform.store.in_memory import InMemory
from closedform.store.recorded_steps import RecordedSteps, rows_record
from closedform.weights.terms.goal import Goal
from tests.conftest import planar_demos, random_demos, slow_on_the_reference
from tests.evaluation.toy import displaced_demos, reach_demos
from tests.transfer.test_frame import SPATIAL, SPATIAL_ACTION, observations_of
from tests.transfer.test_hand import demos_of
from tests.weights.test_goal import marked_pushes

pytest.importorskip("faiss", reason="faiss is not installed: pip install 'closedform[ann]'")


def both_models(demos, **parameters):
    small, large = (ClosedFormPolicy(demos, index=index, **parameters).model for index in ("exact", "faiss"))
    assert isinstance(small.storage, InMemory) and isinstance(large.storage, RecordedSteps)
    return small, large


def assert_same_rows(small, large, rows):
    for name in ("starts", "row_episodes", "row_steps", "poses", "held"):
        wanted = getattr(small.store, name)[rows]
        np.testing.assert_array_equal(getattr(large.store, name)[rows], wanted, err_msg=name)
    np.testing.assert_allclose(large.index.rows()[rows], small.index.rows()[rows], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(large.transfer.scaling.offset, small.transfer.scaling.offset)
    np.testing.assert_allclose(large.transfer.scaling.scale, small.transfer.scaling.scale)
    np.testing.assert_allclose(large.transfer.turns, small.transfer.turns, atol=1e-12)
    for goal, wanted_goal in zip(large.kernel.compiled, small.kernel.compiled, strict=True):
        for mine, other in zip(goal, wanted_goal, strict=True):
            np.testing.assert_allclose(mine, other)
    wanted = small.transfer.chunks(small.store, rows, small.transfer.world)
    np.testing.assert_allclose(large.transfer.chunks(large.store, rows, large.transfer.world), wanted, atol=1e-12)
    near, all_rows = rows_record(large, large.storage.windows, rows), small.rows_record
    np.testing.assert_allclose(near.columns, all_rows.columns[:, rows], atol=1e-12)
    for i, row in enumerate(rows):
        mine, other = near.starts[i], all_rows.starts[row]
        n = small.spec.windows.n_action_steps
        np.testing.assert_allclose(near.actions[mine : mine + n], all_rows.actions[other : other + n])


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**31),
    lengths=st.lists(st.integers(0, 30), min_size=2, max_size=6),
    n_obs_steps=st.integers(1, 3),
    n_action_steps=st.integers(1, 6),
    padding=st.booleans(),
    single=st.booleans(),
)
def test_every_row_is_what_a_small_store_has(seed, lengths, n_obs_steps, n_action_steps, padding, single):
    rng = np.random.default_rng(seed)
    layout = Layout.of((None, "other", 2), ("hand", "vector", 2))
    dtype = np.float32 if single else np.float64
    episodes = [(rng.normal(size=(n, 3)).astype(dtype), rng.normal(size=(n, 4)).astype(dtype)) for n in [40, *lengths]]
    demos = Demos(episodes, Layout.of(("hand", "position", 2), (None, "other", 1)), layout)
    small, large = both_models(demos, n_obs_steps=n_obs_steps, n_action_steps=n_action_steps, padding=padding)
    assert len(small) == len(large)
    assert_same_rows(small, large, np.arange(len(small)))


def demos_with(kind):
    """Demonstrations with bodies in the plane or in space, or of which one is carried."""
    rng = np.random.default_rng(0)
    if kind == "planar":
        return planar_demos(rng)
    if kind == "held":
        return demos_of(6)
    if kind == "marked":
        return marked_pushes(rng, n_episodes=8)
    pairs = [(observations_of(SPATIAL, rng, 20), observations_of(SPATIAL_ACTION, rng, 20)) for _ in range(4)]
    return Demos(pairs, SPATIAL, SPATIAL_ACTION)


@pytest.mark.parametrize("kind", ["planar", "spatial", "held", "marked"])
def test_bodies_and_hands_are_the_same(both_ways, kind):
    demos = demos_with(kind)
    small, large = both_models(demos, n_action_steps=4)
    assert_same_rows(small, large, np.arange(len(small)))
    assert kind != "held" or (np.asarray(large.store.held[:]) >= 0).any()
    assert kind != "marked" or np.all([term.ratios for term in large.kernel.terms if isinstance(term, Goal)])


@pytest.mark.parametrize("preset", ["paper", "default"])
def test_plans_equal_exact_ones_where_everything_is_found(both_ways, preset):
    demos = planar_demos(np.random.default_rng(1), n_episodes=10)
    exact, large = (ClosedFormPolicy(demos, preset, index=index, n_neighbors=100) for index in ("exact", "faiss"))
    storage = large.model.storage
    assert isinstance(storage, RecordedSteps)
    large._use(replace(large.model, storage=replace(storage, index=finding_everything(storage.index))))
    for observation in np.concatenate([episode.observations[::9] for episode in demos]) + 0.01:
        plan, other = exact.plan(observation, seed=0), large.plan(observation, seed=0)
        np.testing.assert_allclose(plan.actions, other.actions, atol=1e-9)
        np.testing.assert_array_equal(plan.episodes[:3], other.episodes[:3])
    np.testing.assert_allclose(
        exact.sample(demos[0].observations[:5], 2, seed=1),
        large.sample(demos[0].observations[:5], 2, seed=1),
        atol=1e-9,
    )


def finding_everything(index):
    """The index with the features compared as they are, in all lists."""

    class Exactly(type(index)):
        def query(self, query, k):
            squared = ((self.rows()[:] - query) ** 2).sum(1)
            for first, end in self._hidden:
                squared[first:end] = np.inf
            return np.sort(np.argsort(squared, kind="stable")[: min(k, np.isfinite(squared).sum())])

    exactly = object.__new__(Exactly)
    exactly.__dict__.update(index.__dict__)
    return exactly


@slow_on_the_reference
def test_the_recall_asked_for_is_reached_on_queries_of_other_episodes():
    demos = random_demos(np.random.default_rng(2), 60, 200, 4, 2)
    n_probes = []
    for target in (0.8, 0.99):
        policy = ClosedFormPolicy(demos[:50], index="faiss", recall=target, n_neighbors=200, drop_redundant=False)
        recall = policy.index_recall
        assert recall is not None and isinstance(policy.model.storage, RecordedSteps)
        assert recall.target == target and recall.weighty >= target and 0.8 <= recall.all <= 1
        n_probes.append(recall.n_probes)
        assert recall.n_probes <= recall.n_lists
        exact = ClosedFormPolicy(demos[:50], index="exact", n_neighbors=200, drop_redundant=False)
        shares = []
        for observation in np.concatenate([episode.observations[::20] for episode in demos[50:]]):
            query = policy.model.kernel.features(observation[None, None])[0]
            wanted = exact.model.index.query(query, 200)
            wanted = wanted[policy.model.kernel.weights(query, policy.model.features_at(wanted)) > 1e-3]
            shares.append(np.isin(wanted, policy.model.index.query(query, 200)).mean())
        assert np.mean(shares) >= target - 0.1
    assert 1 <= n_probes[0] < n_probes[1]


def test_saved_and_opened_it_plans_the_same_bits_and_reads_no_steps(tmp_path):
    demos = random_demos(np.random.default_rng(3), 8, 60, 3, 2)
    policy = ClosedFormPolicy(demos, index="faiss", n_action_steps=4, n_neighbors=100)
    added = policy.add(demos[0])
    policy.save(tmp_path / "saved")
    opened = load_policy(tmp_path / "saved")
    assert isinstance(opened, ClosedFormPolicy) and isinstance(opened.model.storage, RecordedSteps)
    assert opened.episode_ids == [*range(8), added]
    assert opened.index_recall == policy.index_recall
    for array in (opened.episodes[2].observations, opened.model.storage.windows.actions.parts[0]):
        assert not array.flags.writeable and any(isinstance(base, np.memmap) for base in bases(array))
    again = pickle.loads(pickle.dumps(opened))
    for observation in demos[3].observations[::7]:
        plans = [each.plan(observation, seed=0) for each in (policy, opened, again)]
        for plan in plans[1:]:
            np.testing.assert_array_equal(plan.actions, plans[0].actions)
            np.testing.assert_array_equal(plan.episodes, plans[0].episodes)
    assert len(pickle.dumps(opened)) < 20_000  # the file is opened again, not copied
    opened.remove(added)
    opened.save(tmp_path / "again")
    assert len(ClosedFormPolicy.load(tmp_path / "again").episode_ids) == 8


def bases(array):
    while array is not None:
        yield array
        array = getattr(array, "base", None)


def test_a_policy_of_either_kind_survives_pickling():
    demos = random_demos(np.random.default_rng(4), 5, 40, 3, 2)
    policy = NearestNeighborPolicy(demos, index="faiss", n_action_steps=4)
    copy = pickle.loads(pickle.dumps(policy))
    np.testing.assert_array_equal(copy.plan(np.zeros(3)).actions, policy.plan(np.zeros(3)).actions)


def test_an_episode_left_out_is_not_found_and_everything_else_is():
    demos = random_demos(np.random.default_rng(5), 6, 40, 3, 2)
    small, large = both_models(demos, n_action_steps=4)
    rest = large.leave_out(2)
    rows = rest.index.query(large.index.rows()[np.array([85])][0], len(large))
    assert not np.isin(np.arange(80, 120), rows).any()
    assert len(rows) == len(small) - 40


def bounded_demos(seed, n_episodes=12, n_steps=60):
    """Walks within walls that every episode touches, so that no episode alone reaches an extreme."""
    rng = np.random.default_rng(seed)
    episodes = []
    for _ in range(n_episodes):
        observations = np.clip(np.cumsum(rng.normal(scale=0.5, size=(n_steps, 3)), axis=0), -1, 1)
        observations[rng.permutation(n_steps)[:2]] = [[-1, -1, -1], [1, 1, 1]]
        episodes.append((observations, np.clip(3 * np.sin(observations @ np.ones((3, 2))), -1, 1)))
        episodes[-1][1][:2] = [[-1, -1], [1, 1]]
    return Demos(episodes)


def exactly(policy):
    """The policy with features compared as they are, in all lists."""
    storage = policy.model.storage
    index = finding_everything(storage.index)
    policy._use(replace(policy.model, storage=replace(storage, index=index)))
    return policy


def index_of(policy) -> FaissIndex:
    assert isinstance(policy.model.index, FaissIndex)
    return policy.model.index


@pytest.mark.parametrize("preset", ["paper", "default"])
def test_without_a_removed_episode_plans_are_those_of_the_others(both_ways, preset):
    demos = bounded_demos(20)
    options = {"n_neighbors": 100, "n_action_steps": 4, "relevance": False}
    options |= {"choose_shrinkage": False, "selection": False}
    policy = ClosedFormPolicy(demos, preset, index="faiss", **options)
    for gone in (3, 11, 7):
        policy.remove(gone)
    hidden = index_of(policy).n_hidden
    assert hidden == len(policy.model) // 4 and policy.n_windows == len(policy.model) - hidden
    assert policy.episode_ids == [0, 1, 2, 4, 5, 6, 8, 9, 10] and len(policy.episodes) == 9
    rest = ClosedFormPolicy([demos[i] for i in policy.episode_ids], preset, index="exact", **options)
    for observation in demos[3].observations[::9] + 0.01:
        plan, other = exactly(policy).plan(observation, seed=0), rest.plan(observation, seed=0)
        np.testing.assert_allclose(plan.actions, other.actions, atol=1e-9)
        np.testing.assert_array_equal(plan.episodes, np.array(policy.episode_ids)[other.episodes])


def test_a_removed_episode_stays_removed(tmp_path):
    demos = bounded_demos(21)
    policy = ClosedFormPolicy(demos, index="faiss", n_action_steps=4, n_neighbors=700)
    indexed = index_of(policy)._faiss
    added = [policy.add(demos[0]), policy.add(demos[1])]
    for gone in (2, added[0], 9):
        policy.remove(gone)
    assert index_of(policy)._faiss is indexed  # nothing was indexed again
    policy.save(tmp_path / "saved")
    assert verify(tmp_path / "saved") == "all checksums match"
    opened = ClosedFormPolicy.load(tmp_path / "saved")
    again = pickle.loads(pickle.dumps(policy))
    some = demos[2].observations[::11]
    wanted = [policy.plan(observation, seed=0).actions for observation in some]
    for each in (policy, opened, again):
        assert each.episode_ids == [0, 1, 3, 4, 5, 6, 7, 8, 10, 11, added[1]] and each.n_windows == 660
        rows = each.model.index.query(each.model.index.rows()[130], 700)
        assert len(rows) == 660 and not np.isin([120, 179, 540, 599, 720, 779], rows).any()
        with pytest.raises(ClosedFormError, match="unknown episode 2"):
            each.remove(2)
        for observation, actions in zip(some, wanted, strict=True):
            plan = each.plan(observation, seed=0)
            assert not np.isin(plan.episodes, [2, 9, added[0]]).any()
            np.testing.assert_array_equal(plan.actions, actions)
        assert each.add(demos[2]) == added[1] + 1 and each.n_windows == 720
        assert next(leave_one_out(each, n_windows=6)).distances.max() > 0


def test_the_others_are_indexed_again_if_an_extreme_is_removed():
    demos = bounded_demos(22)
    wild = Demos([*demos, (5 * demos[0].observations, demos[0].actions)])
    policy = ClosedFormPolicy(wild, index="faiss", n_action_steps=4)
    policy.remove(12)
    rest = ClosedFormPolicy(demos, index="faiss", n_action_steps=4)
    assert index_of(policy).n_hidden == 0 and policy.model.store.removed is None
    np.testing.assert_array_equal(policy.model.kernel.scale, rest.model.kernel.scale)


def test_an_extreme_that_was_added_later_is_removed_without_indexing_again():
    demos = bounded_demos(22)
    policy = ClosedFormPolicy(demos, index="faiss", n_action_steps=4)
    before, indexed = policy.model, index_of(policy)._faiss
    wild = policy.add((5 * demos[0].observations, 5 * demos[0].actions))
    assert not np.array_equal(policy.model.transfer.scaling.scale, before.transfer.scaling.scale)
    policy.remove(wild)
    assert index_of(policy)._faiss is indexed and policy.episode_ids == list(range(12))
    after = policy.model
    assert isinstance(before.storage, RecordedSteps) and isinstance(after.storage, RecordedSteps)
    np.testing.assert_array_equal(after.storage.summary.extremes(), before.storage.summary.extremes())
    np.testing.assert_array_equal(after.transfer.scaling.scale, before.transfer.scaling.scale)
    np.testing.assert_array_equal(after.kernel.scale, before.kernel.scale)


@pytest.mark.parametrize("removed", [[99], [-1], "2", [1.5], list(range(12)), [3, 3]])
def test_odd_lists_of_removed_episodes_are_refused(tmp_path, removed):
    policy = ClosedFormPolicy(bounded_demos(23), index="faiss", n_action_steps=4)
    policy.remove(3)
    policy.save(tmp_path / "saved")
    path = tmp_path / "saved" / "config.json"
    config = json.loads(path.read_text())
    assert config["index"]["removed"] == [3]
    config["index"]["removed"] = removed
    del config["config_crc32"]
    path.write_text(json.dumps(config))
    with pytest.raises(ClosedFormError, match="expected"):
        load_policy(tmp_path / "saved")


def test_a_third_value_of_a_switch_is_refused_when_it_is_added():
    layout = Layout.of((None, "other", 1), (None, "binary"))
    actions = np.stack([np.arange(20.0), np.arange(20) % 2], 1)
    demos = Demos([(np.random.default_rng(6).normal(size=(20, 2)), actions)] * 2, None, layout)
    policy = ClosedFormPolicy(demos, index="faiss", n_action_steps=2)
    wrong = actions + np.array([0, 5])
    with pytest.raises(ClosedFormError, match="expected two values"):
        policy.add((np.zeros((20, 2)), wrong))
    assert policy.add((np.zeros((20, 2)), actions)) == 2


def test_an_index_that_a_hub_left_out_is_built_again(tmp_path):
    """LeRobot uploads safetensors and JSON alone."""
    demos = random_demos(np.random.default_rng(7), 6, 40, 3, 2)
    policy = ClosedFormPolicy(demos, index="faiss", n_action_steps=4)
    for removed in ([], [2]):
        for number in removed:
            policy.remove(number)
        policy.save(tmp_path / "saved")
        (tmp_path / "saved" / "index.faiss").unlink()
        with pytest.warns(ClosedFormWarning, match=r"index\.faiss is missing, .* built again"):
            again = ClosedFormPolicy.load(tmp_path / "saved")
        assert again.episode_ids == policy.episode_ids and again.index_recall is not None
        for observation in demos[1].observations[::9]:
            plan, expected = again.plan(observation, seed=0), policy.plan(observation, seed=0)
            np.testing.assert_allclose(plan.actions, expected.actions, atol=1e-9)
            np.testing.assert_array_equal(plan.episodes, expected.episodes)
        again.save(tmp_path / "whole")
        assert ClosedFormPolicy.load(tmp_path / "whole").add(demos[2]) == 6


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        *itertools.product(["summary.safetensors", "policy.safetensors"], ["gone", "cut", "other"]),
        *itertools.product(["index.faiss"], ["cut", "other"]),
    ],
)
def test_damaged_files_are_refused_in_one_line(tmp_path, name, damage):
    demos = random_demos(np.random.default_rng(7), 4, 40, 3, 2)
    ClosedFormPolicy(demos, index="faiss", n_action_steps=4).save(tmp_path / "saved")
    ClosedFormPolicy(demos[:2], index="faiss", n_action_steps=4).save(tmp_path / "other")
    path = tmp_path / "saved" / name
    if damage == "gone":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 3])
    else:
        shutil.copy(tmp_path / "other" / name, path)
    with pytest.raises(ClosedFormError) as error:
        load_policy(tmp_path / "saved")
    assert name in str(error.value) or "expected" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_query_finds_k_rows_also_where_lists_are_empty(both_ways):
    """Three observations that repeat fill three lists of many."""
    places = np.eye(3)
    rng = np.random.default_rng(11)
    pairs = [(places[rng.integers(3, size=300)], rng.normal(size=(300, 2))) for _ in range(8)]
    demos = Demos(pairs, Layout.plain(3), Layout.plain(2))
    for policy_class in (ClosedFormPolicy, NearestNeighborPolicy):
        policy = policy_class(demos, index="faiss", n_action_steps=4, n_neighbors=500)
        for observation in (np.full(3, 0.5), np.full(3, 10.0), places[0]):
            assert np.isfinite(policy.plan(observation, seed=0).actions).all()
            query = policy.model.kernel.features(observation[None, None])[0]
            assert len(policy.model.index.query(query, 500)) == 500
    with pytest.raises(ClosedFormError, match="cannot be compared with the demonstrations"):
        policy.plan(np.full(3, 1e30))


def test_a_thousand_episodes_without_a_window_are_passed_over():
    rng = np.random.default_rng(12)
    lengths = [*[3] * 1000, 40, 40]
    demos = Demos([(rng.normal(size=(n, 2)), rng.normal(size=(n, 2))) for n in lengths])
    policy = ClosedFormPolicy(demos, index="faiss", padding=False, n_action_steps=6)
    assert policy.n_windows == 70 and set(policy.plan(np.zeros(2), seed=0).episodes) <= {1000, 1001}


def test_an_added_episode_gets_the_precision_of_the_others(tmp_path):
    rng = np.random.default_rng(13)
    episodes = [(rng.normal(size=(40, 3)).astype(np.float32), rng.normal(size=(40, 2)).astype(np.float32))] * 3
    policy = ClosedFormPolicy(episodes, index="faiss", n_action_steps=4)
    policy.add((333 + rng.normal(size=(40, 3)), rng.normal(size=(40, 2))))
    assert policy.episodes[3].observations.dtype == np.float32
    policy.save(tmp_path / "saved")
    opened = ClosedFormPolicy.load(tmp_path / "saved")
    assert opened.episodes[0].observations.dtype == np.float32
    observation = np.full(3, 333.0)
    np.testing.assert_array_equal(opened.plan(observation, seed=0).actions, policy.plan(observation, seed=0).actions)


def test_another_process_does_not_open_a_folder_that_was_replaced(tmp_path):
    demos = random_demos(np.random.default_rng(14), 5, 40, 3, 2)
    ClosedFormPolicy(demos, index="faiss", n_action_steps=4).save(tmp_path / "saved")
    content = pickle.dumps(load_policy(tmp_path / "saved"))
    pickle.loads(content)
    ClosedFormPolicy(demos[1:], index="faiss", n_action_steps=4).save(tmp_path / "saved")
    with pytest.raises(ClosedFormError, match="it was replaced"):
        pickle.loads(content)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"index": {"n_indexed": 160, "recall": {}}}, "config.json: expected the measured recall of the index"),
        ({"parameters": {"n_obs_steps": 2}}, "summary.safetensors: expected scales of 6 features"),
    ],
)
def test_a_changed_configuration_is_refused_in_one_line(tmp_path, change, found):
    demos = random_demos(np.random.default_rng(15), 4, 40, 3, 2)
    ClosedFormPolicy(demos, index="faiss", n_action_steps=4).save(tmp_path / "saved")
    path = tmp_path / "saved" / "config.json"
    config = json.loads(path.read_text())
    for name, values in change.items():
        config[name] = {**config[name], **values}
    del config["config_crc32"]
    path.write_text(json.dumps(config))
    with pytest.raises(ClosedFormError, match=found):
        load_policy(tmp_path / "saved")


def test_explanations_and_edits_work_as_with_exact_search():
    demos = planar_demos(np.random.default_rng(16), n_episodes=8)
    policy = ClosedFormPolicy(demos, index="faiss", n_action_steps=4, n_neighbors=50)
    familiarity = measure_familiarity(policy, 0.05)
    explanation = explain(policy, demos[0].observations[3], familiarity, seed=0)
    assert explanation.to_json()["demonstrations"] and np.isfinite(familiarity.threshold)


def test_changed_numbers_are_found_by_verifying(tmp_path):
    demos = random_demos(np.random.default_rng(8), 4, 40, 3, 2)
    ClosedFormPolicy(demos, index="faiss", n_action_steps=4).save(tmp_path / "saved")
    verify(tmp_path / "saved")
    path = tmp_path / "saved" / "policy.safetensors"
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)
    with pytest.raises(ClosedFormError, match="the files are damaged"):
        verify(tmp_path / "saved")


def test_the_method_does_not_depend_on_size_or_on_what_is_installed(monkeypatch):
    """Above the size where faiss is faster, a line says so, and plans are those of the same method."""
    demos = choose_layouts(displaced_demos(), "infer").demos
    few, observation = ClosedFormPolicy(demos), demos[2].observations[5]
    assert few.targets is not None
    monkeypatch.setattr(build, "_MANY", 100)
    for installed in (True, False):
        if not installed:
            monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.warns(ClosedFormWarning, match="index='faiss' is faster"):
            many = ClosedFormPolicy(demos)
        assert many.index_recall is None and many.targets == few.targets
        plans = [policy.plan(observation, seed=0).actions for policy in (few, many)]
        np.testing.assert_array_equal(plans[0], plans[1])


def test_what_an_index_cannot_do_is_refused():
    demos = choose_layouts(displaced_demos(), "infer").demos
    with pytest.raises(ConfigError, match=r"index: expected exact, since .* displacements .*targets=off"):
        ClosedFormPolicy(demos, index="faiss")
    assert ClosedFormPolicy(demos, index="faiss", targets="off").index_recall is not None
    mirrored = Layout.parse("hand position 2, target position 2 mirror_x")
    with pytest.raises(ConfigError, match="index: expected exact where demonstrations count as their mirror images"):
        ClosedFormPolicy(reach_demos().with_layouts(mirrored), index="faiss")


def test_memory_is_at_most_1_3_times_the_demonstrations(tmp_path):
    rng = np.random.default_rng(10)
    episodes = [
        (rng.normal(size=(250, 14)).astype(np.float32), rng.normal(size=(250, 7)).astype(np.float32)) for _ in range(80)
    ]
    raw = sum(array.nbytes for pair in episodes for array in pair)
    policy = ClosedFormPolicy(episodes, index="faiss")
    policy.save(tmp_path / "saved")
    stored = sum(path.stat().st_size for path in (tmp_path / "saved").iterdir())
    assert stored <= 1.3 * raw
    storage = policy.model.storage
    assert isinstance(storage, RecordedSteps)
    recorded = storage.windows.observations, storage.windows.actions
    held = sum(part.nbytes for each in recorded for part in each.parts)
    assert held == raw  # and episodes are views of it
    assert np.shares_memory(policy.episodes[3].observations, storage.windows.observations.parts[0])
