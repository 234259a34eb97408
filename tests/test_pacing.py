"""Episodes are added in small pieces, and nothing is left for the next plan to compute."""

import threading

import numpy as np
import pytest

from closedform import ClosedFormPolicy, Layout
from closedform import pacing as pace
from closedform.demos.demos import Demos
from closedform.pacing import breathe, gathered, gently, paced
from closedform.store.index import ExactIndex
from tests.conftest import planar_demos


class Clock:
    """Stands in for `time`: goes on by a hundredth of a millisecond whenever it is read, and counts the pauses."""

    def __init__(self):
        self.now, self.pauses, self.longest, self._rested = 0.0, 0, 0.0, 0.0

    def perf_counter(self):
        self.now += 1e-5
        return self.now

    def sleep(self, seconds):
        self.pauses += 1
        self.longest = max(self.longest, self.now - self._rested)
        self.now += seconds
        self._rested = self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(pace, "time", clock)
    plan_in_another_thread()
    return clock


def plan_in_another_thread():
    thread = threading.Thread(target=pace.plan_begins)
    thread.start()
    thread.join()


def test_nobody_waits_where_nobody_else_plans(clock):
    with gently():
        pace.plan_begins()  # this thread
        for _ in range(100):
            breathe()
        assert clock.pauses == 0
        plan_in_another_thread()
        for _ in range(100):
            breathe()
        assert clock.pauses > 0
        clock.now += 3.0  # for which it did not plan
        before = clock.pauses
        for _ in range(100):
            breathe()
        assert clock.pauses == before


def test_pauses_come_when_it_is_time_to_and_only_where_asked(clock):
    for _ in range(100):
        breathe()
    assert clock.pauses == 0
    with gently():
        for _ in range(100):
            breathe()
        assert 5 <= clock.pauses <= 15 and clock.longest < 2.5 * pace.SLICE
        with gently():
            pass
        before = clock.pauses
        assert list(paced(range(100))) == list(range(100)) and clock.pauses > before
        other = threading.Thread(target=lambda: [breathe() for _ in range(100)])
        before = clock.pauses
        other.start()
        other.join()
        assert clock.pauses == before
    before = clock.pauses
    for _ in range(100):
        breathe()
    assert clock.pauses == before


@pytest.mark.parametrize("n", [0, 1, 4_999, 5_000, 5_001, 23_456])
def test_gathering_in_blocks_changes_nothing(clock, n):
    rng = np.random.default_rng(0)
    array, rows = rng.normal(size=(30_000, 2)), rng.integers(30_000, size=n)
    with gently():
        np.testing.assert_array_equal(gathered(array, rows), array[rows])
    keep = rng.random(30_000) < 0.5
    index = ExactIndex(array)
    with gently():
        left = index.remove(keep)
    np.testing.assert_array_equal(left.rows(), array[keep])
    np.testing.assert_array_equal(left.add(array[:3]).rows(), np.concatenate([array[keep], array[:3]]))


@pytest.mark.parametrize("change", ["add", "rescale", "remove"])
def test_changes_pause_between_their_parts(clock, change):
    """The clock goes on only where it is read, so that what is counted are the places where others may run."""
    demos = planar_demos(np.random.default_rng(0), 12, 40)
    policy = ClosedFormPolicy(demos)
    assert clock.pauses == 0
    if change == "remove":
        policy.remove(3)
    else:
        scale = 100 if change == "rescale" else 1
        policy.add((scale * demos[0].observations, scale * demos[0].actions))
    assert clock.pauses >= 2


@pytest.mark.parametrize("metric", ["local_mahalanobis", "global_mahalanobis"])
@pytest.mark.parametrize("index", ["exact", "faiss"])
def test_a_plan_computes_nothing_that_the_change_before_it_could_have(metric, index):
    rng = np.random.default_rng(0)
    plain = planar_demos(rng)
    actions = Layout.of(("hand", "position", 2), (None, "binary"))
    episodes = [(e.observations, np.column_stack([e.actions, np.arange(len(e)) % 2])) for e in plain]
    demos = Demos(episodes, plain.observation_layout, actions)
    policy = ClosedFormPolicy(demos, metric=metric, index=index, n_neighbors=50)
    for change in (lambda: policy.add(demos[0]), lambda: policy.remove(1)):
        change()
        kept = lambda: [set(vars(part)) for part in (policy.model, policy.model.kernel, policy.model.transfer)]  # noqa: E731
        before = kept()
        assert "rows_record" in before[0] and "record" in before[1] and "record" in before[2]
        agent = policy.agent(seed=0)
        agent.plan(demos[0].observations[0])
        policy.sample(demos[0].observations[:2], seed=0)
        assert kept() == before
