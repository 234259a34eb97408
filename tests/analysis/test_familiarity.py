"""Familiarity: alarms as often as stated on the familiar, and always on the strange."""

import math

import numpy as np
import pytest

from closedform import ClosedFormPolicy, Demos
from closedform.analysis.familiarity import Familiarity, measure_familiarity
from closedform.analysis.leave_one_out import leave_one_out, windows_at
from closedform.demos.episode import Episode
from closedform.errors import ConfigError, DataError
from tests.conftest import planar_demos, random_demos, slow_on_the_reference


def alarm_rate(demos, n_kept, false_alarm_rate):
    """The rate of alarms on episodes that the policy never had."""
    order = np.random.default_rng(0).permutation(len(demos))
    layouts = (demos.observation_layout, demos.action_layout)
    policy = ClosedFormPolicy(Demos([demos[int(i)] for i in order[:n_kept]], *layouts), n_diffusion_steps=2)
    familiarity = measure_familiarity(policy, false_alarm_rate)
    alarms = [
        familiarity.alarm(policy.plan(observation, seed=0))
        for i in order[n_kept:]
        for observation in demos[int(i)].observations[::9]
    ]
    return np.mean(alarms)


@slow_on_the_reference
@pytest.mark.parametrize("false_alarm_rate", [0.05, 0.2])
def test_held_out_demonstrations_raise_as_many_alarms_as_stated(pusht, false_alarm_rate):
    rate = alarm_rate(pusht, 146, false_alarm_rate)
    assert 0.5 * false_alarm_rate < rate < 1.6 * false_alarm_rate  # 60 episodes, whose windows are alike


@slow_on_the_reference
def test_observations_far_outside_raise_an_alarm(pusht):
    policy = ClosedFormPolicy(pusht, n_diffusion_steps=2)
    familiarity = measure_familiarity(policy, 0.001, n_windows=2000)
    rng = np.random.default_rng(0)
    for _ in range(20):
        strange = np.concatenate([rng.choice([-600, 1100], 4) + rng.normal(scale=50, size=4), rng.uniform(0, 6, 1)])
        assert familiarity.alarm(policy.plan(strange, seed=0))
    assert not familiarity.alarm(policy.plan(pusht[3].observations[50], seed=0))


@slow_on_the_reference
@pytest.mark.parametrize("false_alarm_rate", [0.05, 0.2])
def test_starts_of_held_out_demonstrations_raise_as_many_alarms_as_stated(pusht, false_alarm_rate):
    """Every fifth of the episodes is held out in turn. Among all moments their starts would be far too unusual."""
    alarms, among_all = [], []
    for fold in range(5):
        kept = Demos([episode for i, episode in enumerate(pusht) if i % 5 != fold], pusht.observation_layout)
        policy = ClosedFormPolicy(kept, n_diffusion_steps=2)
        familiarity = measure_familiarity(policy, false_alarm_rate, n_windows=400)
        for episode in pusht[fold::5]:
            plan = policy.plan(episode.observations[0], seed=0)
            alarms.append(familiarity.at(first=True).alarm(plan))
            among_all.append(familiarity.at(first=False).alarm(plan))
    assert 0.5 * false_alarm_rate < np.mean(alarms) < 1.5 * false_alarm_rate
    assert np.mean(among_all) > 2 * false_alarm_rate


def far_starts(rng, n_episodes):
    """Episodes that start anywhere and soon move through the same place."""
    steps = np.linspace(0, 1, 20)[:, None] ** 0.3
    starts, ends = rng.normal(size=(2, n_episodes, 2)) * [[[10.0]], [[0.1]]]
    paths = [start * (1 - steps) + end * steps for start, end in zip(starts, ends, strict=True)]
    return Demos([Episode(path, path) for path in paths])


@pytest.mark.parametrize("n_windows", [30, 60, 600])
def test_the_alarm_is_of_all_moments_however_few_of_an_episode_are_measured(n_windows):
    policy = ClosedFormPolicy(far_starts(np.random.default_rng(0), 60), n_diffusion_steps=2)
    familiarity = measure_familiarity(policy, 0.2, n_windows=n_windows)
    assert familiarity.threshold < 0.5 * familiarity.at(first=True).threshold


@pytest.mark.parametrize("n_episodes", [2, 3, 12, 48])
def test_few_starts_keep_the_smallest_rate_that_they_can(n_episodes):
    policy = ClosedFormPolicy(far_starts(np.random.default_rng(0), n_episodes), n_diffusion_steps=2)
    familiarity = measure_familiarity(policy, 0.01).at(first=True)
    assert familiarity.false_alarm_rate == 1 / (n_episodes + 1)
    assert familiarity.threshold == familiarity.distances[-1] and len(familiarity.distances) == n_episodes
    assert not familiarity.alarm(familiarity.threshold) and familiarity.alarm(familiarity.threshold * 1.001)


def test_the_threshold_is_the_conformal_quantile():
    familiarity = Familiarity(np.arange(1, 100, dtype=float), 0.1)  # 99 distances
    assert familiarity.threshold == 90
    assert not familiarity.alarm(90.0) and familiarity.alarm(90.1)
    assert familiarity.share_nearer(50.5) == pytest.approx(50 / 99)
    assert Familiarity(np.arange(5.0), 0.1).threshold == math.inf  # too few to tell
    assert familiarity.at(first=True) is familiarity  # starts were not measured
    for n in range(1, 300):
        assert Familiarity(np.arange(float(n)), 1 / (n + 1)).threshold == n - 1


def test_bad_input():
    policy = ClosedFormPolicy(planar_demos(np.random.default_rng(0)))
    with pytest.raises(ConfigError, match=r"between 0 and 1, found 1\.5"):
        measure_familiarity(policy, 1.5)
    with pytest.raises(DataError, match="at least two episodes"):
        measure_familiarity(ClosedFormPolicy(planar_demos(np.random.default_rng(0), n_episodes=1)))


def test_left_out_episodes_are_predicted_by_the_others_alone():
    demos = random_demos(np.random.default_rng(0), 5, 30, 3, 2)
    policy = ClosedFormPolicy(demos, n_obs_steps=2, tau=0.0)
    for left_out in leave_one_out(policy, n_windows=4, n_samples=3, horizon=5):
        assert left_out.differences.shape == (4, 3, 5, 2) and left_out.distances.min() > 0
        others = Demos([e for i, e in enumerate(demos) if i != left_out.episode])
        window = windows_at(demos[left_out.episode], left_out.steps, 2)[1]
        alone = ClosedFormPolicy(others, n_obs_steps=2, tau=0.0).plan(window, seed=0)
        assert alone.distance == pytest.approx(left_out.distances[1])


def test_windows_have_their_true_history():
    demos = random_demos(np.random.default_rng(0), 2, 30, 3, 2)
    windows = windows_at(demos[1], np.array([0, 1, 10]), 3)
    observations = demos[1].observations
    assert np.array_equal(windows, [observations[[0, 0, 0]], observations[[0, 0, 1]], observations[[8, 9, 10]]])


def test_a_policy_that_changes_meanwhile_is_measured_as_it_was(monkeypatch):
    """As one of a fleet does, from which an episode is removed."""
    demos = random_demos(np.random.default_rng(0), 5, 30, 3, 2)
    expected = measure_familiarity(ClosedFormPolicy(demos, n_diffusion_steps=2))
    policy = ClosedFormPolicy(demos, n_diffusion_steps=2)

    def removing(*arguments, **options):
        if len(policy.episode_ids) == 5:
            policy.remove(1)
        return windows_at(*arguments, **options)

    monkeypatch.setattr("closedform.analysis.familiarity.windows_at", removing)
    found = measure_familiarity(policy)
    np.testing.assert_array_equal(found.distances, expected.distances)
    assert len(policy.episode_ids) == 4
