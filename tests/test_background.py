"""The next model is built in the background, and nothing is left for the next plan to compute."""

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from closedform import ClosedFormPolicy, Layout
from closedform.background import in_background
from closedform.demos.demos import Demos
from tests.conftest import planar_demos


def niceness():
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def test_work_hands_over_the_interpreter_often_until_the_last_of_it_is_done():
    usual, both, released = sys.getswitchinterval(), threading.Barrier(2, timeout=60), threading.Event()

    def work(wait):
        both.wait()
        found = sys.getswitchinterval()
        if wait:
            assert released.wait(60)
        return found, sys.getswitchinterval()

    with ThreadPoolExecutor(2) as pool:
        first, last = (pool.submit(in_background, lambda wait=wait: work(wait)) for wait in (False, True))
        assert max(first.result()) < usual / 10
        released.set()
        assert max(last.result()) < usual / 10
    assert sys.getswitchinterval() == usual


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priorities of their own here")
def test_work_has_a_low_priority_and_the_caller_keeps_its_own():
    before = niceness()
    assert in_background(niceness) == min(before + 10, 19)
    assert niceness() == before


def test_a_result_and_an_error_reach_the_caller():
    assert in_background(lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        in_background(lambda: 1 // 0)


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
