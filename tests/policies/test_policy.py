"""Policies: what goes in, what comes out, and what a plan says about itself."""

import copy
import threading
import warnings

import numpy as np
import pytest

from closedform import (
    ClosedForm,
    ClosedFormConfig,
    ClosedFormError,
    ClosedFormPolicy,
    ClosedFormWarning,
    Demos,
    Flow,
    KernelRegressionPolicy,
    Layout,
    NearestNeighborPolicy,
    euler,
)
from closedform.policies.choice import make_policy
from tests.conftest import PLANAR_ACTIONS, PLANAR_OBSERVATIONS, planar_demos, random_demos

POLICIES = [ClosedFormPolicy, NearestNeighborPolicy, KernelRegressionPolicy]


@pytest.fixture
def demos():
    return random_demos(np.random.default_rng(0), 5, 40, 3, 2)


def plain_formula(demos, observation, config, seed):
    """Algorithm 1 of the paper, written out once more without any of the library's retrieval."""
    n_obs_steps, n_action_steps = config.n_obs_steps, config.n_action_steps
    windows, chunks = [], []
    for episode in demos:
        for t in range(n_obs_steps - 1, len(episode) - n_action_steps + 1):
            windows.append(episode.observations[t - n_obs_steps + 1 : t + 1].ravel())
            chunks.append(episode.actions[t : t + n_action_steps].ravel())
    windows, chunks = np.array(windows), np.array(chunks)
    low, high = windows.min(0), windows.max(0)
    features = (windows - low) / (high - low) * 2 - 1
    query = (np.tile(observation, n_obs_steps) - low) / (high - low) * 2 - 1
    actions = np.concatenate([episode.actions for episode in demos])
    low, high = np.tile(actions.min(0), n_action_steps), np.tile(actions.max(0), n_action_steps)
    near = np.argsort(np.sum((features - query) ** 2, 1))[: config.n_neighbors]
    covariance = np.cov(features[near].T) + config.regularization * np.eye(len(query))
    difference = features[near] - query
    squared = np.einsum("ia,ab,ib->i", difference, np.linalg.inv(covariance), difference)
    h = config.bandwidth / np.sqrt(len(query))
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((1, chunks.shape[1]))
    perturbations = config.tau * rng.standard_normal((config.n_perturbations, chunks.shape[1]))
    normalized = (chunks[near] - low) / (high - low) * 2 - 1
    denoiser = ClosedForm(Flow(), normalized, -squared / (2 * h * h), perturbations)
    chunk = euler(denoiser, Flow(), noise, n_steps=config.n_diffusion_steps)[0]
    return ((chunk + 1) / 2 * (high - low) + low).reshape(n_action_steps, -1)


@pytest.mark.parametrize("with_layout", [False, True])
def test_in_the_world_frame_it_is_the_papers_algorithm(both_ways, with_layout):
    rng = np.random.default_rng(1)
    demos = random_demos(rng, 6, 50, 5, 2)
    if with_layout:
        demos = Demos(demos, PLANAR_OBSERVATIONS, PLANAR_ACTIONS)
    policy = ClosedFormPolicy(demos, "paper", n_neighbors=60, n_action_steps=2, n_execute=2, bandwidth=4.0, tau=0.5)
    for seed in range(5):
        observation = rng.normal(size=5)
        plan = policy.plan(observation, seed=seed)
        assert plan.frame == "world" and plan.n_effective > 2  # so that all parameters matter
        np.testing.assert_allclose(plan.actions, plain_formula(demos, observation, policy.config, seed), atol=1e-6)


@pytest.mark.parametrize("policy_class", POLICIES)
def test_a_plan_is_the_average_of_the_demonstrations_it_names(both_ways, policy_class):
    demos = planar_demos(np.random.default_rng(2))
    policy = policy_class(demos, frames="world", n_action_steps=5, padding=False)
    plan = policy.plan(demos[2].observations[7] + 0.01, seed=3)
    named = [demos[e].actions[t : t + 5] for e, t in zip(plan.episodes, plan.steps, strict=True)]
    np.testing.assert_allclose(plan.actions, np.einsum("i,itd->td", plan.weights, named), atol=1e-5)
    assert (np.diff(plan.weights) <= 0).all() and abs(plan.weights.sum() - 1) < 1e-12
    assert 1 <= plan.n_effective <= len(plan.weights)
    assert plan.actions.shape == (5, 2)


@pytest.mark.parametrize("policy_class", POLICIES)
def test_distance_to_the_data_grows_away_from_it(both_ways, policy_class):
    demos = planar_demos(np.random.default_rng(3))
    policy = policy_class(demos)
    distances = [policy.plan(demos[0].observations[5] + d, seed=0).distance for d in (0.0, 0.1, 1.0, 10.0)]
    assert distances[0] < 1e-9 and distances == sorted(distances)


@pytest.mark.parametrize("policy_class", POLICIES)
def test_many_samples_and_observations_are_one_call(both_ways, demos, policy_class):
    policy = policy_class(demos, n_action_steps=4, n_diffusion_steps=20) if policy_class is ClosedFormPolicy else (
        policy_class(demos, n_action_steps=4)
    )  # fmt: skip
    observations = np.random.default_rng(4).normal(size=(30, 3))
    chunks = policy.sample(observations, 7, seed=0)
    assert chunks.shape == (30, 7, 4, 2)
    np.testing.assert_array_equal(chunks, policy.sample(observations, 7, seed=0))
    np.testing.assert_allclose(chunks[:1, :1], policy.sample(observations[:1], 7, seed=0)[:, :1])
    np.testing.assert_array_equal(
        policy.sample(observations[:1], seed=5)[0, 0], policy.plan(observations[0], seed=5).actions
    )


def test_the_nearest_neighbor_is_repeated(both_ways, demos):
    policy = NearestNeighborPolicy(demos, n_action_steps=4)
    plan = policy.plan(demos[3].observations[11])
    np.testing.assert_allclose(plan.actions, demos[3].actions[11:15])
    assert (plan.episodes.tolist(), plan.steps.tolist(), plan.n_effective) == ([3], [11], 1.0)


def test_kernel_regression_averages_what_diffusion_separates(both_ways):
    observations = np.zeros((2, 1))
    demos = Demos([(observations, np.full((2, 1), value)) for value in (-1.0, 1.0)])
    average = KernelRegressionPolicy(demos, n_action_steps=1, n_execute=1).plan([0.0])
    assert abs(average.actions[0, 0]) < 1e-9
    policy = ClosedFormPolicy(demos, n_action_steps=1, n_execute=1, tau=0.0)
    chunks = policy.sample(np.zeros((1, 1)), 400, seed=0).ravel()
    np.testing.assert_allclose(np.abs(chunks), 1, atol=1e-6)
    assert 140 < (chunks > 0).sum() < 260  # 200 +- 6 standard deviations


@pytest.mark.parametrize("policy_class", POLICIES)
def test_permuting_demonstrations_changes_nothing(both_ways, demos, policy_class):
    policy, permuted = policy_class(demos), policy_class(demos[::-1])
    for seed in range(5):
        observation = np.random.default_rng(seed).normal(size=3)
        a, b = policy.plan(observation, seed=seed), permuted.plan(observation, seed=seed)
        np.testing.assert_allclose(a.actions, b.actions, atol=1e-6)
        assert a.episodes[0] == len(demos) - 1 - b.episodes[0] and a.steps[0] == b.steps[0]


def test_angles_and_rotations_of_actions_are_averaged_as_such(both_ways):
    layout = Layout.of((None, "angle"), (None, "quaternion"))
    near_pi = [np.pi - 0.1, -np.pi + 0.1]
    quaternions = [[0.0, 0.0, np.sin(0.1), np.cos(0.1)], [0.0, 0.0, np.sin(0.1), -np.cos(0.1)]]
    demos = Demos(
        [(np.zeros((1, 1)), np.array([[angle, *q]])) for angle, q in zip(near_pi, quaternions, strict=True)],
        action_layout=layout,
    )
    action = KernelRegressionPolicy(demos, n_action_steps=1, n_execute=1).plan([0.0]).actions[0]
    assert abs(abs(action[0]) - np.pi) < 1e-9
    np.testing.assert_allclose(action[1:], [0, 0, 0, 1], atol=1e-9)


def test_binary_actions_take_one_of_their_two_values(both_ways):
    layout = Layout.of((None, "binary"), (None, "other"))
    demos = Demos([(np.zeros((3, 1)), np.array([[v, v]] * 3)) for v in (-1.0, -1.0, 0.5)], action_layout=layout)
    actions = KernelRegressionPolicy(demos, n_action_steps=1, n_execute=1).plan([0.0]).actions
    np.testing.assert_allclose(actions, [[-1.0, -0.5]])


def test_binary_actions_with_three_values_are_refused():
    with pytest.raises(ClosedFormError, match=r"two values at entry 0 \(binary\), found also 0\.5"):
        ClosedFormPolicy(Demos([(np.zeros((3, 1)), [[0.0], [0.5], [1.0]])], action_layout=Layout.of((None, "binary"))))


@pytest.mark.parametrize("policy_class", POLICIES)
def test_several_threads_plan_alike(both_ways, policy_class):
    demos = planar_demos(np.random.default_rng(5))
    policy = policy_class(demos)
    observations = np.random.default_rng(6).normal(size=(8, 5))

    def plans():
        return [policy.plan(o, seed=i).actions for i, o in enumerate(observations)]

    alone, results = plans(), {}
    threads = [threading.Thread(target=lambda i=i: results.update({i: plans()})) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    for result in results.values():
        np.testing.assert_array_equal(result, alone)


def test_all_windows_are_used_where_there_are_fewer_than_asked_for(demos):
    with pytest.warns(ClosedFormWarning, match="n_neighbors is 5000, but there are only 200 windows: using all"):
        policy = ClosedFormPolicy(demos, n_neighbors=5000)
    assert policy.plan(np.zeros(3), seed=0).actions.shape == (12, 2)
    policy.add(demos[0])  # says nothing a second time


@pytest.mark.parametrize("choice", ["1nn", "paper", "regression", "vinn"])
def test_what_a_preset_sets_is_not_warned_about(demos, choice):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        policy = make_policy(choice, Demos([(np.zeros((9, 3)), np.zeros((9, 2)))]) if choice == "vinn" else demos)
    assert policy.config.n_neighbors == (16 if choice == "vinn" else 2000)


def test_vinn_averages_the_nearest_actions_with_a_softmax_of_euclidean_distances(demos):
    observation = np.array([0.1, -0.2, 0.3])
    plan = make_policy("vinn", demos).plan(observation)
    low, high = demos.all_observations().min(0), demos.all_observations().max(0)
    distances = np.linalg.norm((demos.all_observations() - observation) * 2 / (high - low), axis=1)
    nearest = np.argsort(distances)[:16]
    weights = np.exp(-distances[nearest]) / np.exp(-distances[nearest]).sum()
    np.testing.assert_allclose(plan.actions, (weights @ demos.all_actions()[nearest])[None], rtol=1e-12)
    assert plan.n_effective > 10  # a rival of its own: 1-NN and kernel regression copy a single demonstration here


def test_printed_plans_and_agents_say_what_they_are_in_plain_numbers(demos):
    policy = ClosedFormPolicy(demos)
    agent = policy.agent(seed=0)
    assert repr(agent) == f"Agent({policy!r}, before its first step)"
    agent.act(np.zeros(3))
    assert "planned actions left" in repr(agent)
    plan = agent.last_plan
    assert plan is not None
    (episode, step, weight), *_ = plan.demonstrations
    assert [type(value) for value in (episode, step, weight)] == [int, int, float]
    assert (episode, step) == (plan.episodes[0], plan.steps[0]) and weight == pytest.approx(plan.weights[0])
    for text in (repr(plan), plan._repr_html_()):
        assert f"episode {episode} step {step}" in text and "np." not in text and "array" not in text
    assert len(repr(plan)) < 300


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"bandwidth": 0.0}, "bandwidth: expected 1e-9 to 1e9, found 0.0"),
        ({"bandwidth": float("nan")}, "bandwidth: expected 1e-9 to 1e9, found nan"),
        ({"tau": -0.1}, "tau: expected 0 to 1e6, found -0.1"),
        ({"n_diffusion_steps": 0}, "n_diffusion_steps: expected at least 1, found 0"),
        ({"n_perturbations": 0}, "n_perturbations: expected at least 1"),
        ({"n_neighbors": 0}, "n_neighbors: expected at least 1"),
        ({"n_obs_steps": 0}, "n_obs_steps: expected at least 1"),
        ({"n_execute": 20}, r"n_execute: expected at most n_action_steps \(12\), found 20"),
        ({"regularization": 0.0}, "regularization: expected 1e-12 to 1e12"),
        ({"loop_memory": -1.0}, "loop_memory: expected 0 to 1e6"),
        ({"pruning_error": 1.0}, "pruning_error: expected 0 or more and below 1"),
        (
            {"metric": "cosine"},
            "metric: expected one of euclidean, global_mahalanobis, local_mahalanobis, found 'cosine'",
        ),
        ({"sampler": "heun"}, "sampler: expected one of euler, ddpm, ddim"),
        ({"process": "ve"}, "process: expected one of flow"),
        ({"process": "ddpm_cosine"}, "'euler' integrates the flow ODE"),
        ({"index": "tree"}, "index: expected one of auto, exact, faiss"),
        ({"features": "fourier"}, "features: expected one of identity"),
        ({"features": "custom"}, "requires the argument feature_map"),
        ({"frames": "lid"}, "unknown frame 'lid'"),
        ({"bandwith": 0.1}, "has no parameter 'bandwith': did you mean bandwidth"),
        ({"tau": "0.1"}, "tau: expected float, found '0.1'"),
        ({"n_obs_steps": 1.5}, "n_obs_steps: expected int, found 1.5"),
        ({"n_obs_steps": True}, "n_obs_steps: expected int, found True"),
        ({"preset": "papers"}, "unknown preset 'papers'"),
    ],
)
def test_parameters_out_of_range_are_refused(demos, parameters, message):
    with pytest.raises(ClosedFormError, match=message):
        ClosedFormPolicy(demos, **parameters)


def test_a_config_can_be_given_whole(demos):
    config = ClosedFormConfig(tau=0.2, n_action_steps=5, n_execute=5)
    assert ClosedFormPolicy(demos, config=config).config == config
    with pytest.raises(ClosedFormError, match="no further parameters, found ClosedFormConfig and tau"):
        ClosedFormPolicy(demos, config=config, tau=0.1)
    with pytest.raises(ClosedFormError, match="no further parameters, found ClosedFormConfig and preset 'paper'"):
        ClosedFormPolicy(demos, "paper", config=config)
    with pytest.raises(ClosedFormError, match="tau: expected float, found '2'"):
        ClosedFormConfig(tau="2")  # pyright: ignore[reportArgumentType]
    assert ClosedFormConfig(n_neighbors=np.int64(5), tau=np.float32(0.5)).tau == 0.5  # pyright: ignore


@pytest.mark.parametrize("policy_class", POLICIES)
@pytest.mark.parametrize("scale", [1e24, 1e154, 1e300])
def test_an_observation_far_beyond_all_demonstrations_is_refused_or_planned_for(both_ways, demos, policy_class, scale):
    """It must neither crash nor return anything that is not finite."""
    policy = policy_class(demos, n_action_steps=4)
    try:
        plan = policy.plan(scale * np.array([1.0, -0.3, 0.7]), seed=0)
    except ClosedFormError as error:
        assert "cannot be compared with the demonstrations" in str(error)
    else:
        actions = np.concatenate([episode.actions for episode in demos])
        assert (plan.actions >= actions.min(0) - 1e-9).all() and (plan.actions <= actions.max(0) + 1e-9).all()
        assert plan.distance > 1e6


@pytest.mark.parametrize("penalty", [np.zeros(3), np.full(200, np.nan), np.full(200, -1.0), np.zeros((200, 1))])
def test_a_penalty_that_does_not_fit_is_refused(both_ways, demos, penalty):
    with pytest.raises(ClosedFormError, match="penalty: expected 200 numbers of 0 or more"):
        ClosedFormPolicy(demos).plan(np.zeros(3), penalty=penalty)


def test_observations_far_from_the_origin_do_not_break_the_metric(both_ways):
    """Static observations at a large offset: rounding makes their covariance indefinite."""
    rng = np.random.default_rng(9)
    for offset in (1e6, 1e8):
        demos = Demos([(offset + 1e-3 * rng.normal(size=(20, 3)), rng.uniform(-1, 1, (20, 2))) for _ in range(4)])
        policy = ClosedFormPolicy(demos, features="identity", n_obs_steps=2, n_action_steps=3, regularization=1e-12)
        actions = policy.plan(demos[1].observations[4], seed=0).actions
        assert (np.abs(actions) <= 1).all()


def test_angles_stay_on_the_turn_that_was_demonstrated(both_ways):
    angles = np.linspace(3.0, 4.5, 40)[:, None]
    policy = ClosedFormPolicy(Demos([(angles, angles)] * 3, action_layout=Layout.of((None, "angle"))), n_action_steps=4)
    actions = np.concatenate([policy.plan(angles[t], seed=0).actions for t in range(0, 36, 4)])
    assert (actions > 2.9).all() and (actions < 4.6).all()


def test_a_policy_can_be_copied_to_other_processes(both_ways, demos):
    policy = ClosedFormPolicy(demos)
    clone = copy.deepcopy(policy)
    clone.add(demos[0])
    np.testing.assert_array_equal(
        policy.plan(np.zeros(3), seed=0).actions, ClosedFormPolicy(demos).plan(np.zeros(3), seed=0).actions
    )
    assert len(clone.episode_ids) == len(policy.episode_ids) + 1


@pytest.mark.parametrize("seed", ["a", -1, 1.5])
def test_seeds_that_are_none_are_refused(demos, seed):
    with pytest.raises(ClosedFormError, match="seed: expected a whole number"):
        ClosedFormPolicy(demos).plan(np.zeros(3), seed=seed)


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        (np.zeros(4), "expected observations of 3 numbers, found 4"),
        (np.zeros((3, 3)), r"found shape \(3, 3\)"),
        ([0.0, np.nan, 0.0], "must be finite, found nan at entry 1"),
        ([0.0, 0.0, np.inf], "must be finite, found inf at entry 2"),
        (["a", "b", "c"], "must be an array of real numbers"),
    ],
)
def test_bad_observations_are_refused(both_ways, demos, observation, message):
    policy = ClosedFormPolicy(demos)
    with pytest.raises(ClosedFormError, match=message):
        policy.plan(observation)
    agent = policy.agent()
    agent.act(np.zeros(3))
    with pytest.raises(ClosedFormError, match=message):  # also while a chunk is being executed
        agent.act(observation)


def test_which_of_many_observations_is_bad_is_said(demos):
    observations = np.zeros((5, 3))
    observations[3, 1] = np.nan
    with pytest.raises(ClosedFormError, match="found nan at entry 1 of observation 3"):
        ClosedFormPolicy(demos).sample(observations)
    with pytest.raises(ClosedFormError, match="n_samples: expected a whole number of at least 1, found 0"):
        ClosedFormPolicy(demos).sample(np.zeros((5, 3)), 0)


def test_episodes_that_are_all_too_short_are_refused():
    demos = [(np.zeros((n, 2)), np.zeros((n, 1))) for n in (5, 9, 7)]
    with pytest.raises(ClosedFormError, match=r"expected at least 13 steps .*2 \+ 12 - 1.*, found at most 9"):
        ClosedFormPolicy(demos, "paper")
    assert ClosedFormPolicy(demos).n_windows == 21  # with padding they are long enough


def test_a_short_episode_among_longer_ones_does_no_harm(both_ways):
    demos = [(np.random.default_rng(n).normal(size=(n, 2)), np.ones((n, 1))) for n in (3, 30, 4)]
    policy = ClosedFormPolicy(demos, padding=False, n_action_steps=8)
    assert set(policy.plan(np.zeros(2), seed=0).episodes.tolist()) == {1}
