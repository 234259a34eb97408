"""Demonstrations are checked once on their way from a file into a policy, and never less than once."""

import numpy as np
import pytest

from closedform import ClosedFormPolicy, ClosedFormWarning, Demos, Layout, load_demos, save_demos
from closedform.demos import demos as module
from closedform.errors import DataError
from closedform.evaluation.study import Study
from tests.evaluation.toy import Reach, reach_demos

TOY = "tests.evaluation.toy:Reach"


@pytest.fixture
def checked(monkeypatch):
    """The numbers of the episodes that were checked."""
    names, check = [], module.check_episode

    def counting(episode, name, *layouts):
        names.append(name)
        check(episode, name, *layouts)

    monkeypatch.setattr(module, "check_episode", counting)
    return names


def test_a_dataset_that_becomes_a_policy_is_checked_once(tmp_path, checked):
    demos = reach_demos(6)
    save_demos(demos, tmp_path / "demos")
    checked.clear()
    ClosedFormPolicy(load_demos(tmp_path / "demos"))
    assert checked == list(range(6))


def test_layouts_of_the_environment_do_not_cost_another_check(tmp_path, checked):
    demos = reach_demos(6)
    ends = np.cumsum([len(episode) for episode in demos])
    np.savez(tmp_path / "d.npz", observations=demos.all_observations(), actions=demos.all_actions(), episode_ends=ends)
    checked.clear()
    study = Study.make(TOY, str(tmp_path / "d.npz"), "default", n_episodes=1)
    assert study.policy.observation_layout == Reach.observation_layout
    assert checked == list(range(6))


def test_episodes_in_memory_are_checked_once(checked):
    pairs = [(episode.observations, episode.actions) for episode in reach_demos(4)]
    checked.clear()
    with pytest.warns(ClosedFormWarning, match="no layouts are declared, so they are inferred"):
        policy = ClosedFormPolicy(pairs)
    assert checked == list(range(4))
    with pytest.raises(DataError, match="episode 4: observations must be finite"):
        policy.add((np.full((5, 4), np.nan), np.zeros((5, 2))))


ROTATION = Layout.of(("body", "quaternion", 4))


@pytest.mark.parametrize(
    ("pairs", "layout", "message"),
    [
        ([(np.full((9, 4), np.nan), np.zeros((9, 2)))], None, "episode 0: observations must be finite, found nan"),
        ([(np.zeros((9, 4)), np.full((9, 2), np.inf))], None, "episode 0: actions must be finite, found inf"),
        ([(np.full((9, 4), 3.0), np.zeros((9, 2)))], ROTATION, "episode 0: observations: expected unit length"),
    ],
)
def test_demonstrations_that_were_read_to_be_looked_at_are_checked_by_a_policy(pairs, layout, message):
    demos = Demos(pairs, layout, finite=False)
    with pytest.raises(DataError, match=message):
        ClosedFormPolicy(demos)


def test_other_layouts_are_checked_for_what_they_add():
    demos = Demos([(np.full((9, 4), 3.0), np.zeros((9, 2)))], rate=5.0, tasks=["a"], skipped=["video"])
    with pytest.raises(DataError, match="episode 0: observations: expected unit length"):
        demos.with_layouts(ROTATION, demos.action_layout)
    with pytest.raises(DataError, match="episode 0: expected actions of 3 numbers, found 2"):
        demos.with_layouts(demos.observation_layout, Layout.plain(3))
    other = demos.with_layouts(Layout.of(("a", "position", 2), ("b", "position", 2)), demos.action_layout)
    assert other.observation_layout.entries[0].kind == "position" and demos.observation_layout == Layout.plain(4)
    assert other.episodes is demos.episodes and (other.rate, other.tasks, other.skipped) == (5.0, ("a",), ("video",))
