"""A plan is a mixture of demonstrated chunks: it is finite and nowhere beyond their range, whatever the parameters."""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from closedform import ClosedFormError, ClosedFormPolicy, ClosedFormWarning, NearestNeighborPolicy
from closedform.diffusion.mixture import is_mixture
from closedform.diffusion.sampler import SAMPLERS
from closedform.errors import DataError
from tests.conftest import planar_demos
from tests.worlds import CHAINS, POLICIES, random_observations, random_parameters, random_world

WEIGHTS = 1e-4  # by which a plan's weights may miss one, and a mixture the range: the kernel's are in single precision


def made_both_ways(policy, windows, seed):
    """What the kernels and the reference make, or None for both where an observation is refused."""
    made = []
    for disable in ("0", "1"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CLOSEDFORM_DISABLE_KERNELS", disable)
            rng = np.random.default_rng(seed)
            try:
                made.append(policy.planner.batch(windows, 2, rng, explain=True))
            except ClosedFormError as error:
                assert "cannot be compared with the demonstrations" in str(error)
                made.append(None)
    assert (made[0] is None) == (made[1] is None)
    return made


def assert_mixtures(model, made):
    for chunks, choice, rows in zip(made.chunks, made.choices, made.rows, strict=True):
        used = model.normalized_chunks(rows[rows >= 0], choice)
        low, high = used.min(0), used.max(0)
        assert np.isfinite(chunks).all()
        assert (chunks >= low - WEIGHTS * (1 + high - low)).all() and (
            chunks <= high + WEIGHTS * (1 + high - low)
        ).all()
    np.testing.assert_allclose(made.weights.sum(-1), 1, atol=WEIGHTS)


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32))
def test_every_plan_of_every_policy_lies_within_the_range_of_demonstrated_chunks(seed):
    rng = np.random.default_rng(seed)
    policy_class = POLICIES[int(rng.choice(3, p=[0.6, 0.2, 0.2]))]
    demos, parameters = random_world(rng), random_parameters(rng, policy_class)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClosedFormWarning)
        policy = policy_class(demos, **parameters)
    observations = random_observations(rng, demos, 3)
    windows = policy.windows(observations)
    compiled, reference = made_both_ways(policy, windows, seed)
    if compiled is None or reference is None:
        return
    for made in (compiled, reference):
        assert_mixtures(policy.model, made)
        assert np.isfinite(policy.planner.to_robot(made.actions, windows)).all()
    np.testing.assert_array_equal(compiled.choices, reference.choices)
    np.testing.assert_allclose(compiled.chunks, reference.chunks, atol=1e-2)  # ddpm amplifies what is pruned


@pytest.mark.parametrize(("process", "sampler"), CHAINS)
@pytest.mark.parametrize("n_steps", [1, 2, 7, 100])
def test_the_last_step_of_every_sampler_returns_the_denoised_chunk(process, sampler, n_steps):
    policy = ClosedFormPolicy(
        planar_demos(np.random.default_rng(0)), process=process, sampler=sampler, n_diffusion_steps=n_steps
    )
    last = SAMPLERS[sampler].steps(policy.config.make_process(), n_steps)[-1]
    assert (last.keep, last.jump, last.spread) == (0.0, 1.0, 0.0)


@pytest.mark.parametrize("policy_class", POLICIES)
def test_a_plan_that_is_none_is_refused(both_ways, policy_class):
    """Where arithmetic fails, nobody executes what comes out."""
    demos = planar_demos(np.random.default_rng(0))
    policy = policy_class(demos, n_action_steps=4)
    transfer = policy.model.transfer
    broken = replace(transfer, scaling=transfer.scaling._replace(scale=transfer.scaling.scale * np.inf))
    policy._use(replace(policy.model, transfer=broken))
    with pytest.raises(DataError, match="the plan for observation 0 is not a mixture of demonstrated chunks"):
        policy.plan(demos[0].observations[0], seed=0)


def test_what_is_a_mixture_and_what_is_not():
    chunks = np.array([[0.0, 1.0, 5.0], [2.0, 1.0, -5.0]])
    inside = [[1.0, 1.0, 0.0], [0.0, 1.0, 5.0], [2.0, 1.0 + 1e-9, -5.0]]
    outside = [[2.1, 1.0, 0.0], [1.0, 1.1, 0.0], [1.0, 1.0, 2e7], [np.nan, 1.0, 0.0], [1.0, 1.0, -np.inf]]
    assert is_mixture(np.array(inside), chunks).all()
    assert not is_mixture(np.array(outside), chunks).any()


def test_weights_that_cannot_be_told_are_refused(both_ways):
    """Distances are finite here, but the goal's term is not: every weight is not a number."""
    demos = planar_demos(np.random.default_rng(0), 6, 40)
    policy = ClosedFormPolicy(
        demos, bandwidth=8e-5, regularization=1e12, relevance=False, relation_weight=0.0, goals="shared"
    )
    for far in (1e154, 1e155):
        with pytest.raises(DataError, match="observation 0 cannot be compared with the demonstrations"):
            policy.plan([0, 0, far, 0, 0], seed=0)
    assert np.isfinite(policy.plan([0, 0, 1e150, 0, 0], seed=0).actions).all()


@pytest.mark.parametrize("policy_class", POLICIES)
@pytest.mark.parametrize("scale", [1e150, 1e153, 1e154, 1e155, 1e200, 1e300])
def test_no_scale_of_observations_gets_through_both_checks(both_ways, policy_class, scale):
    demos = planar_demos(np.random.default_rng(1))
    bandwidth: dict[str, Any] = {} if policy_class is NearestNeighborPolicy else {"bandwidth": 1e-6}
    for regularization in (1e-12, 1e3, 1e12):
        policy = policy_class(demos, n_action_steps=4, regularization=regularization, **bandwidth)
        try:
            plan = policy.plan(scale * np.array([1.0, -0.3, 0.7, 0.2, 0.1]), seed=0)
        except ClosedFormError as error:
            assert "cannot be compared" in str(error)
        else:
            assert np.isfinite(plan.actions).all() and np.isfinite(plan.weights).all()
