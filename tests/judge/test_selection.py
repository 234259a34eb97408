"""Selection: numbers that hide what matters are left out, and those that are needed are kept."""

import numpy as np
import pytest

from closedform import ClosedFormPolicy, Demos, Layout, load_policy
from closedform.geometry.layout import Entry
from closedform.weights.metric import LEFT_OUT
from tests.conftest import PLANAR_ACTIONS, PLANAR_OBSERVATIONS

N_USELESS = 20


def useless(length, rng):
    """Numbers that have nothing to do with a task: noise, random walks and slow waves. -> (length, N_USELESS)."""
    noise = rng.normal(size=(length, 8))
    walks = np.cumsum(0.1 * rng.normal(size=(length, 6)), axis=0) + rng.normal(size=6)
    waves = np.sin(2 * np.pi * (np.arange(length)[:, None] / rng.uniform(20, 60, 6) + rng.uniform(0, 1, 6)))
    return np.concatenate([noise, walks, waves], axis=1)


def widened(demos, entries):
    """Demonstrations with useless numbers in each observation."""
    rng = np.random.default_rng(0)
    episodes = [(np.hstack([e.observations, useless(len(e), rng)]), e.actions) for e in demos]
    return Demos(episodes, Layout((*demos.observation_layout.entries, *entries)), demos.action_layout)


ENTRIES = {"one by one": (Entry("other"),) * N_USELESS, "as one entry": (Entry("other", N_USELESS),)}


def left_out(policy):
    """The features that count nothing."""
    return np.flatnonzero(policy.model.kernel.relevance == LEFT_OUT)


@pytest.fixture(scope="module")
def demos():
    """A hand that approaches a block in curves that depend on where both are."""
    rng = np.random.default_rng(0)
    episodes = []
    for _ in range(25):
        hand, block, path = rng.uniform(-1, 1, 2), rng.uniform(-1, 1, 3), []
        for _ in range(30):
            target = hand + 0.15 * (block[:2] - hand) + 0.1 * np.sin(3 * hand + 2 * block[:2] + block[2])
            path.append((np.concatenate([hand, block]), target))
            hand = target + 0.005 * rng.normal(size=2)
        episodes.append(tuple(np.array(part) for part in zip(*path, strict=True)))
    return Demos(episodes, PLANAR_OBSERVATIONS, PLANAR_ACTIONS)


@pytest.mark.parametrize("entries", ENTRIES)
def test_useless_numbers_are_left_out_and_what_is_known_is_kept(demos, entries):
    plain = ClosedFormPolicy(demos)
    kernel = ClosedFormPolicy(widened(demos, ENTRIES[entries])).model.kernel
    assert np.all(kernel.relevance[:-N_USELESS] > LEFT_OUT)
    assert np.sum(kernel.relevance == LEFT_OUT) >= 0.9 * N_USELESS
    assert kernel.n_counted <= plain.model.kernel.n_counted + 0.1 * N_USELESS
    assert kernel.h >= 0.8 * plain.model.kernel.h


def test_predictions_are_nearly_those_without_useless_numbers(demos):
    def error(demos, **parameters):
        policy = ClosedFormPolicy(demos[:20], n_diffusion_steps=10, n_perturbations=4, **parameters)
        errors = [
            np.abs(
                policy.plan(episode.observations[step], seed=0).actions[:8] - episode.actions[step : step + 8]
            ).mean()
            for episode in demos[20:]
            for step in range(0, 22, 2)
        ]
        return np.mean(errors)

    wide = widened(demos, ENTRIES["one by one"])
    assert error(wide) < 1.1 * error(demos)
    assert error(wide) < 0.9 * error(wide, selection=False)


def test_the_one_number_that_decides_is_kept():
    """Where a hand turns off depends on a number without a known meaning, among many that mean nothing."""
    rng = np.random.default_rng(1)
    episodes = []
    for _ in range(30):
        decides = rng.uniform(-1, 1)
        path = np.stack([np.linspace(0, 1, 31), decides * np.linspace(0, 1, 31) ** 2], axis=1)
        path += 0.01 * rng.normal(size=path.shape)
        told = np.column_stack([useless(30, rng), np.full(30, decides)])
        episodes.append((np.hstack([path[:-1], told]), path[1:]))
    layout = Layout((Entry("position", 2, "hand"), Entry("other", N_USELESS + 1)))
    policy = ClosedFormPolicy(Demos(episodes, layout, PLANAR_ACTIONS))
    kept = np.setdiff1d(np.arange(N_USELESS + 3), left_out(policy))
    assert {0, 1, N_USELESS + 2} <= set(kept)
    assert len(kept) < 8


@pytest.mark.parametrize(
    "parameters", [{"selection": False}, {"preset": "paper", "n_neighbors": 20}, {"features": "scaled"}]
)
def test_it_can_be_turned_off_and_the_paper_has_none(demos, parameters):
    wide = widened(demos, ENTRIES["one by one"])
    assert not len(left_out(ClosedFormPolicy(wide, **parameters)))


def test_nothing_is_left_out_of_few_episodes_or_of_numbers_that_all_have_no_meaning(demos):
    wide = widened(demos, ENTRIES["one by one"])
    assert not len(left_out(ClosedFormPolicy(wide[:7])))
    plain = wide.with_layouts(Layout.plain(wide.observation_layout.width), Layout.plain(wide.action_layout.width))
    assert not len(left_out(ClosedFormPolicy(plain)))
    assert not len(left_out(ClosedFormPolicy(demos)))


@pytest.mark.parametrize("index", ["exact", "faiss"])
def test_saved_policies_leave_out_the_same(demos, tmp_path, index):
    if index == "faiss":
        pytest.importorskip("faiss")
    wide = widened(demos, ENTRIES["one by one"])
    policy = ClosedFormPolicy(wide, index=index, n_neighbors=100)
    assert len(left_out(policy))
    policy.save(tmp_path / "policy")
    again = load_policy(tmp_path / "policy")
    assert np.array_equal(left_out(again), left_out(policy))
    query = wide[2].observations[5]
    np.testing.assert_array_equal(again.plan(query, seed=0).actions, policy.plan(query, seed=0).actions)


def test_the_selection_follows_the_episodes_exactly(demos):
    wide = widened(demos, ENTRIES["one by one"])
    grown, whole = ClosedFormPolicy(wide[:20]), ClosedFormPolicy(wide)
    for episode in wide[20:]:
        grown.add(episode)
    assert np.array_equal(grown.model.kernel.relevance, whole.model.kernel.relevance)
    query = wide[3].observations[4]
    np.testing.assert_array_equal(grown.plan(query, seed=0).actions, whole.plan(query, seed=0).actions)


def test_all_planners_agree(demos):
    torch = pytest.importorskip("torch")
    wide = widened(demos, ENTRIES["one by one"])
    policy = ClosedFormPolicy(wide, n_diffusion_steps=20, tau=0.0, n_neighbors=100)
    planner = policy.batch_planner("cpu")
    queries = np.stack([wide[i].observations[6] for i in range(5)])
    with torch.no_grad():
        near = planner.neighbors(planner.queries(policy.windows(queries)), everything=True)
    for found, query in zip(near.distances.numpy(), queries, strict=True):
        assert found == pytest.approx(policy.plan(query, seed=0).distance, abs=2e-3)
