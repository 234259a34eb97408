"""Push-T: start states, exact restoring, and what counts as a success."""

import numpy as np
import pytest

from closedform import load_demos
from closedform.evaluation.environment import Environment, Renders, Scene
from closedform.evaluation.pusht import PushT, start_state

GOAL = (256.0, 256.0, np.pi / 4)


@pytest.fixture(scope="module")
def environment():
    return PushT()


def test_it_is_an_environment_that_draws_any_state(environment):
    assert isinstance(environment, Environment) and isinstance(environment, Scene)
    assert isinstance(environment, Renders)
    first = environment.reset(3)
    picture = environment.picture(np.array([50, 50, *GOAL]))
    assert picture.shape == (512, 512, 3) and picture.dtype == np.uint8
    assert np.array_equal(environment.render(), environment.picture(first))  # drawing another state changed nothing
    assert not np.array_equal(environment.render(), picture)


def test_start_states_are_those_of_diffusion_policy():
    # As its evaluation draws them at its first two seeds.
    assert start_state(100000) == pytest.approx([235, 124, 335, 128, -0.9049274284249247])
    assert start_state(100001) == pytest.approx([365, 182, 275, 280, -1.0981131397099535])


def test_the_same_seed_and_actions_give_the_same_episode(environment):
    def run():
        observations = [environment.reset(11)]
        for t in range(60):
            observations.append(environment.step([256 + 3 * t, 300 - 2 * t]).observation)
        return np.array(observations)

    first = run()
    environment.reset(12)
    environment.step([100, 100])
    assert np.array_equal(run(), first)


def test_recorded_states_are_restored_exactly(environment, pusht):
    for episode in pusht[:30]:
        for step in (0, len(episode) // 2, len(episode) - 1):
            state = np.asarray(episode.observations[step], np.float64)
            assert environment.restore(state) == pytest.approx(state, rel=0, abs=1e-9)


def test_replaying_recorded_actions_leads_to_the_recorded_states(environment, pusht):
    close = 0
    for episode in pusht[:20]:
        environment.restore(episode.observations[0])
        error = 0.0
        for action, after in zip(episode.actions[:-1], episode.observations[1:], strict=True):
            observation = environment.step(action).observation
            error = max(error, float(np.abs(observation[:4] - after[:4]).max()))
        close += error < 0.01
    assert close == 20


def test_restoring_leaves_nothing_behind(environment, pusht):
    def after(seed):
        environment.reset(seed)
        environment.step([256, 256])
        environment.restore(pusht[3].observations[40])
        return environment.step(pusht[3].actions[40]).observation

    assert np.array_equal(after(1), after(2))


def test_success_is_more_than_095_of_the_outline(environment):
    def score_at(block):
        environment.restore([30, 30, *block])
        return environment.step([30, 30])

    there = score_at(GOAL)
    assert there.score == 1 and there.success and there.done
    near = score_at((GOAL[0] + 3, *GOAL[1:]))
    assert 0.9 < near.score < 1 and not near.success and not near.done
    assert score_at((100, 400, 0)).score == 0


def test_the_embedded_demonstrations_end_at_the_goal(environment):
    demos = load_demos("pusht-embedded")
    assert len(demos) == 200 and demos.rate == 10.0
    assert demos.observation_layout == environment.observation_layout
    starts = {tuple(start_state(seed)[:4]) for seed in range(100000, 100500)}
    for episode in demos:
        assert tuple(episode.observations[0][:4].round(3)) not in starts
        assert environment.coverage(episode.observations[-1]) > 0.95 - 1e-3  # single precision


def test_coverage_does_not_depend_on_addresses(monkeypatch):
    """gym-pusht takes the block's two shapes from a set, whose order differs between processes."""
    import pymunk

    own = pymunk.Body.shapes
    assert isinstance(own, property) and own.fget is not None
    shapes_of, states = (
        own.fget,
        np.random.default_rng(0).uniform([50, 50, 150, 150, 0], [450, 450, 350, 350, 6], (60, 5)),
    )
    found = []
    for backward in (False, True):

        def ordered(body, backward=backward):
            return sorted(shapes_of(body), key=lambda shape: shape.area, reverse=backward)

        monkeypatch.setattr(pymunk.Body, "shapes", property(ordered))
        environment = PushT()
        found.append([environment.coverage(state) for state in states])
    assert found[0] == found[1]
