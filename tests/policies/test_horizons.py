"""Rates: horizons are time where demonstrations are fine, and the same task goes the same way at any rate."""

import importlib
from dataclasses import asdict

import numpy as np
import pytest

from closedform import ClosedFormPolicy, Demos, Layout, NearestNeighborPolicy, load_policy, make_policy
from closedform.policies.config import ClosedFormConfig
from closedform.policies.horizons import horizons
from tests.conftest import slow_on_the_reference


def still_demos(n_steps, rate, n_episodes=3):
    rng = np.random.default_rng(0)
    return Demos([(rng.normal(size=(n_steps, 2)), rng.normal(size=(n_steps, 1))) for _ in range(n_episodes)], rate=rate)


@pytest.mark.parametrize(
    ("n_steps", "rate", "expected"),
    [
        (2000, None, (12, 4)),
        (2000, 5.0, (12, 4)),
        (2000, 10.0, (12, 4)),  # Push-T
        (50, 20.0, (12, 4)),  # robomimic's Lift
        (2000, 20.0, (24, 8)),
        (100, 80.0, (12, 4)),  # Meta-World: over in a second
        (300, 80.0, (24, 8)),
        (2000, 50.0, (60, 20)),
        (2000, 100.0, (120, 40)),
        (100_000, 1e6, (600, 200)),
    ],
)
def test_horizons_are_time_at_high_rates(n_steps, rate, expected):
    demos = still_demos(n_steps, rate, 1)
    config = ClosedFormConfig.preset("default", demos)
    assert (config.n_action_steps, config.n_execute) == expected
    assert ClosedFormConfig.preset("paper", demos) == ClosedFormConfig.preset("paper")


def test_numbers_that_are_given_are_steps_and_saved_policies_keep_theirs(tmp_path):
    demos = still_demos(400, 100.0)
    assert horizons(demos) == {"n_action_steps": 32, "n_execute": 11}
    policy = NearestNeighborPolicy(demos)
    assert (policy.config.n_action_steps, policy.config.n_execute) == (32, 11)
    assert make_policy("default", demos).config.n_execute == 11
    assert asdict(policy.config)["n_action_steps"] == 32  # results record what was used
    given = make_policy("default", demos, ["n_action_steps=8"]).config
    assert (given.n_action_steps, given.n_execute) == (8, 8)
    assert ClosedFormPolicy(demos, n_execute=2).config.n_execute == 2
    assert ClosedFormPolicy(demos, config=ClosedFormConfig()).config.n_execute == 4
    assert ClosedFormPolicy(demos, "paper", n_neighbors=50).config.n_execute == 12
    ClosedFormPolicy(demos, config=ClosedFormConfig()).save(tmp_path / "policy")
    assert load_policy(tmp_path / "policy").config.n_execute == 4


def test_demonstrations_without_steps_set_no_horizons():
    empty = np.empty((0, 2)), np.empty((0, 1))
    assert horizons(Demos([empty], rate=100.0)) == {}


def test_tuning_tries_chunks_of_the_same_time(monkeypatch):
    tuning = importlib.import_module("closedform.analysis.tune")
    monkeypatch.setattr(tuning, "GRID", {"n_action_steps": (8, 24)})
    tried = {trial.config.n_action_steps for trial in tuning.tune(still_demos(300, 40.0)).trials}
    assert tried == {16, 24, 48}


def test_what_was_used_is_remembered_for_the_same_time_at_any_rate():
    def half_life(rate, **parameters):
        """Seconds until half of what an agent remembers of a window has faded, while it does something else."""
        there, here = (np.linspace(place, place + 1, 16 * rate)[:, None] for place in (0.0, 50.0))
        policy = NearestNeighborPolicy(Demos([(there, there), (here, here)], rate=rate), loop_delay=False, **parameters)
        agent, row = policy.agent(seed=0), np.array([4 * rate])
        agent.act(there[4 * rate])
        used = agent.state.on(policy.store).penalty.at(row)[0]
        assert used == policy.config.loop_memory**2
        for step in range(1, 40 * rate):
            agent.act(here[0])
            if agent.state.on(policy.store).penalty.at(row)[0] <= 0.51 * used:
                return step / rate
        raise AssertionError("it does not fade")

    for rate in (10, 20, 100):
        assert half_life(rate) == pytest.approx(8, abs=0.4)  # a plan more or less
    assert half_life(100, n_action_steps=12, n_execute=4) == pytest.approx(0.8, abs=0.2)


def swirl_demos(rate):
    """A point that is led around the origin, nearer and nearer, at about the speed of a hand, and rests; 8 s each."""
    seconds = np.arange(0, 8, 1 / rate)
    progress = np.clip(seconds / 7, 0, 1)
    eased = progress - np.sin(2 * np.pi * progress) / (2 * np.pi)
    episodes = []
    for phase in np.linspace(0, 0.3, 6):
        angle = 2.5 * np.pi * eased + phase * (1 - eased)
        size = 1.2 - eased
        path = np.stack([size * np.cos(angle), (1 + phase) * size * np.sin(angle)], 1)
        episodes.append((path, np.concatenate([path[1:], path[-1:]])))
    return Demos(episodes, Layout.plain(2), Layout.plain(2), rate=float(rate))


def positions(rate, **parameters):
    """Where the point is at every tenth of a second of a rollout, (100, 2); a current carries it a little."""
    policy = ClosedFormPolicy(swirl_demos(rate), n_diffusion_steps=20, n_perturbations=8, **parameters)
    agent, position, seen = policy.agent(seed=0), np.array([1.19, 0.05]), []
    for step in range(10 * rate):
        if step % (rate // 10) == 0:
            seen.append(position)
        position = agent.act(position) + np.array([0, 0.02 / rate])
    return np.array(seen)


@slow_on_the_reference
def test_a_path_is_followed_in_the_same_time_at_any_rate():
    """Within a tenth of its size, at every moment; without `loop_delay` it is far ahead."""
    slow = positions(10)
    assert np.linalg.norm(positions(100) - slow, axis=1).max() < 0.12
    assert np.linalg.norm(positions(100, loop_delay=False, continuation=0.0) - slow, axis=1).max() > 0.24
