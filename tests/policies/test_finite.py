"""Observations, features and demonstrations that cannot be computed with are refused in one line, never planned for."""

from typing import Any

import numpy as np
import pytest
import torch

from closedform import ClosedFormError, ClosedFormPolicy, Demos, Layout
from closedform.analysis.explain import explain
from closedform.analysis.familiarity import measure_familiarity
from closedform.errors import DataError
from tests.worlds import POLICIES

POSE = Layout.of(("hand", "position", 3), ("hand", "axis_angle"))
ENDLESS = np.array([0.1, 0.2, 0.3, 0.0, 2e154, 0.0])  # finite, but its length is not
REFUSED = "observation 0: expected finite features, found nan at feature 3"


def pose_demos(n_episodes=4, n_steps=30):
    rng = np.random.default_rng(0)
    return Demos(
        [(rng.normal(size=(n_steps, 6)), rng.normal(size=(n_steps, 6))) for _ in range(n_episodes)], POSE, POSE
    )


@pytest.mark.parametrize("policy_class", POLICIES)
@pytest.mark.parametrize("n_neighbors", [None, 20])
def test_a_finite_observation_with_features_that_are_not_is_refused(both_ways, policy_class, n_neighbors):
    fewer: dict[str, Any] = {"n_diffusion_steps": 5} if policy_class is ClosedFormPolicy else {}
    policy = policy_class(pose_demos(), n_action_steps=4, n_neighbors=n_neighbors, **fewer)
    asked = [
        lambda: policy.plan(ENDLESS, seed=0),
        lambda: policy.agent(seed=0).act(ENDLESS),
        lambda: policy.sample(ENDLESS[None], 2, seed=0),
        lambda: explain(policy, ENDLESS, measure_familiarity(policy)),
    ]
    if policy_class is ClosedFormPolicy:
        asked += [lambda: policy.denoiser(ENDLESS), lambda: policy.batch_planner("cpu").sample(ENDLESS[None])]
    for ask in asked:
        with pytest.raises(DataError, match=REFUSED):
            ask()


@pytest.mark.parametrize("size", [1e155, 1e200, 1.7e308])
@pytest.mark.parametrize("kind", ["position", "vector", "angle", "quaternion", "rotation6d", "axis_angle", "other"])
def test_no_entry_is_large_enough_to_do_harm(both_ways, kind, size):
    layout = Layout.of((None if kind == "other" else "hand", kind), (None, "other"))
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3, 200, layout.width))
    if kind in ("quaternion", "rotation6d"):
        rows[..., :-1] = np.eye(layout.width - 1)[0] if kind == "quaternion" else [1, 0, 0, 0, 1, 0]
    policy = ClosedFormPolicy(
        Demos([(r, rng.normal(size=(200, 2))) for r in rows], layout, Layout.plain(2)), n_neighbors=100
    )
    for number in range(layout.width - 1):
        observation = rows[0, 0].copy()
        observation[number] = size
        try:
            assert np.isfinite(policy.plan(observation, seed=0).actions).all()
            assert kind == "angle"  # the only one of which something is left
        except ClosedFormError as error:
            assert any(words in str(error) for words in ("cannot be compared", "finite features", "unit length"))


def test_feature_maps_that_fail_now_and_then_are_refused(both_ways):
    rng = np.random.default_rng(0)
    demos = [(rng.uniform(size=(100, 2)), rng.normal(size=(100, 2))) for _ in range(3)]

    class Log(torch.nn.Module):
        def forward(self, x):
            return torch.log(x)

    for feature_map in (np.log, Log(), lambda windows: 1 / np.maximum(windows, 0)):
        policy = ClosedFormPolicy(demos, feature_map=feature_map, n_neighbors=50)
        with np.errstate(all="ignore"), pytest.raises(DataError, match="not finite"):
            policy.plan([-1.0, 0.0])
        assert np.isfinite(policy.plan([0.5, 0.5]).actions).all()


@pytest.mark.parametrize("policy_class", POLICIES)
def test_demonstrations_with_features_that_are_not_finite_are_refused(policy_class):
    demos = pose_demos()
    bad = np.tile(ENDLESS, (10, 1))
    with pytest.raises(DataError, match="window 0: expected finite features"):
        policy_class(Demos([(bad, bad)], POSE, POSE))
    policy = policy_class(demos)
    before = policy.plan(demos[0].observations[0], seed=0)
    with pytest.raises(DataError, match=r"episode 4: observations: found .* correct it, or leave the episode out"):
        policy.add((bad, demos[0].actions[:10]))
    with pytest.raises(DataError, match="episode 4: actions: found"):
        policy.add((demos[0].observations[:10], bad))
    with pytest.raises(DataError, match="episode 4: actions: found"):
        policy.add((demos[0].observations[:2], 1.7e308 * np.eye(6)[:2] * [[1], [-1]] @ np.ones((6, 6))))
    np.testing.assert_array_equal(policy.plan(demos[0].observations[0], seed=0).actions, before.actions)


def test_features_whose_squares_are_not_finite_are_refused(both_ways):
    rng = np.random.default_rng(0)
    demos = [(1e200 * rng.normal(size=(30, 2)), rng.normal(size=(30, 2))) for _ in range(3)]
    for metric in ("euclidean", "global_mahalanobis", "local_mahalanobis"):
        policy = ClosedFormPolicy(demos, features="identity", metric=metric)
        with pytest.raises(DataError, match="cannot be compared with the demonstrations"):
            policy.plan(np.zeros(2))
