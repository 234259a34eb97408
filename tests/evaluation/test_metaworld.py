"""Meta-World's tasks as environments."""

import sys

import numpy as np
import pytest

from closedform.errors import ConfigError, MissingExtraError
from closedform.evaluation.environment import check_trusted, environment_names, make_environment


def test_without_the_extra_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "metaworld", None)
    monkeypatch.setitem(sys.modules, "metaworld.env_dict", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'closedform\[metaworld\]'"):
        make_environment("metaworld:reach-v3")


def test_a_results_file_may_name_a_task():
    assert "metaworld:TASK" in environment_names()
    check_trusted("metaworld:reach-v3")


@pytest.fixture(scope="module")
def metaworld():
    reason = "Meta-World needs another mujoco than robosuite: an environment of its own, as `make wide` makes one"
    return pytest.importorskip("metaworld", reason=reason)


def test_an_unknown_task_is_refused(metaworld):
    with pytest.raises(ConfigError, match="no task 'reach' in Meta-World: expected one of assembly-v3, "):
        make_environment("metaworld:reach")


@pytest.mark.parametrize("task", ["reach-v3", "peg-insert-side-v3"])
def test_an_episode_depends_on_seed_and_actions_alone(metaworld, task):
    actions = np.random.default_rng(0).uniform(-1, 1, (40, 4))

    def episode(environment, seed):
        return np.array([environment.reset(seed), *(environment.step(action).observation for action in actions)])

    used, fresh = make_environment(f"metaworld:{task}"), make_environment(f"metaworld:{task}")
    first, other = episode(used, 7), episode(used, 8)
    np.testing.assert_array_equal(episode(used, 7), first)
    np.testing.assert_array_equal(episode(fresh, 7), first)
    assert np.abs(first[0, -3:] - other[0, -3:]).max() > 1e-3  # the goal is observed, and it is another one


@pytest.mark.parametrize("task", ["reach-v3", "door-open-v3"])  # whose expert writes to what it observes
def test_noisy_experts_are_recorded_as_they_acted(metaworld, tmp_path, task):
    from closedform import load_demos
    from studies.wide.record import expert_success, record

    record(task, tmp_path / task, n_demos=2)
    demos, environment = load_demos(tmp_path / task), make_environment(f"metaworld:{task}")
    assert len(demos) == 2 and expert_success(task, tmp_path) == 1.0
    np.testing.assert_array_equal(environment.reset(0), demos[0].observations[0])
    results = [environment.step(action) for action in demos[0].actions]
    np.testing.assert_array_equal([one.observation for one in results[:-1]], demos[0].observations[1:])
    assert [one.success for one in results[-11:]] == [True] * 11 and not results[-12].success
    assert np.std(np.diff(demos[0].actions, axis=0)) > 0.1  # noise


def test_the_benchmark_names_all_tasks(metaworld):
    from closedform.evaluation.metaworld import task_names
    from studies.wide.benchmarks import METAWORLD

    assert task_names() == METAWORLD
