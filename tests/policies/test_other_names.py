"""Names of other libraries say what to call, and `dir` shows what a user needs."""

import copy
import pickle

import numpy as np
import pytest

from closedform import ClosedFormPolicy
from tests.conftest import planar_demos


@pytest.fixture(scope="module")
def policy():
    return ClosedFormPolicy(planar_demos(np.random.default_rng(0)))


@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("predict", "policy.plan(observation)"),
        ("select_action", "agent.act(observation)"),
        ("act", "policy.agent(seed=0)"),
        ("from_pretrained", "load_policy(folder)"),
        ("save_pretrained", "policy.save(folder)"),
        ("fit", "policy.add(episode)"),
    ],
)
def test_a_name_of_another_library_says_in_one_line_what_to_call(policy, name, use):
    for thing in (policy, ClosedFormPolicy):
        with pytest.raises(AttributeError) as raised:
            getattr(thing, name)
        said = str(raised.value)
        assert said.startswith(f"ClosedFormPolicy has no {name!r}: ") and use in said and "\n" not in said
        assert not hasattr(thing, name)


def test_an_agent_says_so_too(policy):
    with pytest.raises(AttributeError, match=r"Agent has no 'predict': agent.act\(observation\), at every step"):
        _ = policy.agent(seed=0).predict


def test_dir_shows_what_a_user_needs_and_what_a_user_added(policy):
    class Mine(ClosedFormPolicy):
        def mine(self):
            return 0

    shown = dir(policy)
    assert {"plan", "agent", "add", "remove", "save", "load", "config", "episodes"} <= set(shown) and len(shown) < 30
    assert all(hasattr(policy, name) for name in shown)
    assert "mine" in dir(Mine(planar_demos(np.random.default_rng(0))))


def test_what_dir_leaves_out_is_there(policy):
    assert policy.step_together and policy.store
    assert copy.copy(policy).config == policy.config and pickle.loads(pickle.dumps(policy)).config == policy.config
