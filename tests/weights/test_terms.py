"""A new term is one new file: it counts in every policy and planner, which know nothing of it."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from array_api_compat import array_namespace

from closedform import (
    ClosedFormError,
    ClosedFormPolicy,
    Demos,
    KernelRegressionPolicy,
    NearestNeighborPolicy,
    Term,
    load_policy,
)
from closedform.weights.penalty import Penalty
from tests.conftest import planar_demos

NO_PENALTY = Penalty.none()


@dataclass(frozen=True)
class SameTask(Term):
    """Demonstrations of other tasks count as further away.

    Attributes:
        task: the one that is wanted.
        labels: the task of each episode, by its id.
        weight: what is added to the squared distance of the others.
        tasks: (E,), of the episodes in their order.
    """

    task: int
    labels: tuple[int, ...]
    weight: float
    tasks: Any = None

    def fit(self, store, kernel):
        return replace(self, tasks=np.array([self.labels[number] for number in store.episode_ids]))

    def __call__(self, candidates):
        xp = array_namespace(candidates.features)
        others = self.tasks[candidates.episodes] != self.task
        return self.weight * xp.astype(others, candidates.features.dtype)


POLICIES = [ClosedFormPolicy, NearestNeighborPolicy, KernelRegressionPolicy]


def demos_of_two_tasks():
    """Each episode twice, the second time with other actions: only the label tells them apart."""
    plain = planar_demos(np.random.default_rng(0), n_episodes=4)
    pairs = [(e.observations, e.actions + shift) for e in plain for shift in (0.0, 5.0)]
    return Demos(pairs, plain.observation_layout, plain.action_layout)


def same_task(task, weight=1e3, n=20):
    return SameTask(task, tuple(number % 2 for number in range(n)), weight)


@pytest.mark.parametrize("index", ["exact", "faiss"])
@pytest.mark.parametrize("policy_class", POLICIES)
@pytest.mark.parametrize("task", [0, 1])
def test_plans_are_made_of_the_wanted_task(both_ways, policy_class, task, index):
    if index == "faiss":
        pytest.importorskip("faiss", reason="faiss is not installed: pip install 'closedform[ann]'")
    demos = demos_of_two_tasks()
    policy = policy_class(demos, terms=[same_task(task)], n_action_steps=4, index=index)
    for observation in demos[3].observations[::10] + 0.01:
        plan = policy.plan(observation, seed=0)
        assert set(plan.episodes % 2) == {task}
    number = policy.add((demos[task].observations, demos[task].actions))
    assert number % 2 == 0  # so it is of the other task where task is 1
    agent = policy.agent(seed=0)
    assert set(agent.plan(demos[0].observations[5]).episodes % 2) == {task}
    policy.remove(0)
    assert set(policy.plan(demos[0].observations[5], seed=0).episodes % 2) == {task}


def test_a_term_that_adds_nothing_changes_no_plan(both_ways):
    demos = demos_of_two_tasks()
    plain, with_term = (ClosedFormPolicy(demos, terms=terms) for terms in ((), (same_task(0, weight=0.0),)))
    observations = demos[2].observations[:6] + 0.01
    np.testing.assert_allclose(
        with_term.sample(observations, 2, seed=0), plain.sample(observations, 2, seed=0), atol=1e-9
    )


def test_reference_kernel_and_torch_agree(monkeypatch):
    pytest.importorskip("torch", reason="torch is not installed: pip install 'closedform[neural]'")
    from closedform.policies.backends.batch_planner import Numbers

    demos = demos_of_two_tasks()
    policy = ClosedFormPolicy(demos, terms=[same_task(1, weight=1.0)], bandwidth=0.6, n_action_steps=4)
    windows = policy.windows(demos[0].observations[:5] + 0.01)
    made = []
    for disable in ("0", "1"):
        monkeypatch.setenv("CLOSEDFORM_DISABLE_KERNELS", disable)
        made.append(policy.planner.batch(windows, 1, np.random.default_rng(1), explain=True))
    np.testing.assert_allclose(made[0].chunks, made[1].chunks, atol=1e-4)
    planner = policy.batch_planner("cpu")
    numbers = Numbers.like_the_reference(planner, len(windows), np.random.default_rng(1))
    _, chunks = planner.plan(planner.queries(windows), numbers)
    np.testing.assert_allclose(chunks.numpy(), made[1].chunks, atol=1e-3)
    without = ClosedFormPolicy(demos, bandwidth=0.6, n_action_steps=4)
    other = without.planner.batch(windows, 1, np.random.default_rng(1), explain=True)
    assert np.abs(other.chunks - made[1].chunks).max() > 0.01  # so that agreeing means something


def test_a_saved_policy_asks_for_its_terms(tmp_path):
    demos = demos_of_two_tasks()
    policy = ClosedFormPolicy(demos, terms=[same_task(1)], n_action_steps=4)
    policy.save(tmp_path / "saved")
    with pytest.raises(ClosedFormError, match="saved with the terms SameTask, found no terms"):
        load_policy(tmp_path / "saved")
    loaded = load_policy(tmp_path / "saved", terms=[same_task(1)])
    observation = demos[0].observations[3]
    np.testing.assert_array_equal(loaded.plan(observation, seed=0).actions, policy.plan(observation, seed=0).actions)
    ClosedFormPolicy(demos, n_action_steps=4).save(tmp_path / "plain")
    with pytest.raises(ClosedFormError, match="saved with no terms, found the terms SameTask"):
        load_policy(tmp_path / "plain", terms=[same_task(1)])


def test_what_is_no_term_is_refused():
    with pytest.raises(ClosedFormError, match=r"expected objects of closedform.Term, found a int"):
        ClosedFormPolicy(demos_of_two_tasks(), terms=[3])  # pyright: ignore[reportArgumentType]
