"""Plans made together: each bit for bit what its agent would get alone."""

import numpy as np
import pytest

from closedform import ClosedFormPolicy, NearestNeighborPolicy
from closedform.demos.chosen_layouts import choose_layouts
from closedform.errors import DataError
from tests.conftest import planar_demos, random_demos, slow_on_the_reference
from tests.evaluation.toy import displaced_demos

PLANAR = planar_demos(np.random.default_rng(0))
PLAIN = random_demos(np.random.default_rng(1), 5, 25, 3, 2)
DISPLACED = choose_layouts(displaced_demos(), "infer").demos


@slow_on_the_reference
@pytest.mark.parametrize(
    ("demos", "make"),
    [
        (PLANAR, lambda demos: ClosedFormPolicy(demos, n_diffusion_steps=5)),
        (
            PLANAR,
            lambda demos: ClosedFormPolicy(
                demos, "paper", n_neighbors=50, n_diffusion_steps=5, sampler="ddpm", process="ddpm_cosine"
            ),
        ),
        (PLAIN, lambda demos: ClosedFormPolicy(demos, n_obs_steps=2, n_diffusion_steps=5)),
        (DISPLACED, lambda demos: ClosedFormPolicy(demos, n_diffusion_steps=5)),
        (PLANAR, NearestNeighborPolicy),
    ],
)
def test_together_as_alone(demos, make):
    policy = make(demos)
    together, alone = ([policy.agent(seed=seed) for seed in range(5)] for _ in range(2))
    for step in range(0, 20, 4):
        for agent, other, episode in zip(together, alone, demos.episodes, strict=False):
            agent.observe(episode.observations[step])
            other.plan(episode.observations[step])
        parts = [agent.window for agent in together], [agent.state for agent in together], [a.rng for a in together]
        for agent, made in zip(together, policy.step_together(*parts), strict=True):
            agent.follow(*made)
        for agent, other in zip(together, alone, strict=True):
            assert agent.last_plan is not None and other.last_plan is not None
            for name in ("actions", "episodes", "steps", "weights", "distance", "frame", "held", "choice"):
                np.testing.assert_array_equal(getattr(agent.last_plan, name), getattr(other.last_plan, name))
            for _ in range(4):
                agent.next_action()
                other.next_action()


def test_an_observation_that_cannot_be_planned_for_is_refused_as_alone():
    policy = ClosedFormPolicy(PLANAR, n_diffusion_steps=5)
    windows = [PLANAR.episodes[0].observations[:1], PLANAR.episodes[0].observations[:1] + 1e200]
    agents = [policy.agent(seed=seed) for seed in range(2)]
    with pytest.raises(DataError, match="is not finite"):
        policy.step_together(windows, [agent.state for agent in agents], [agent.rng for agent in agents])
