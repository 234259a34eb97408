"""Environments: one for each process that runs episodes, and none where nothing is run."""

import os
from collections import Counter
from pathlib import Path

import pytest

from closedform import ClosedFormPolicy, save_demos
from closedform.cli import main
from closedform.errors import ConfigError, MissingExtraError
from closedform.evaluation import evaluate, robomimic
from closedform.evaluation.environment import make_environment
from closedform.evaluation.environment_pool import EnvironmentPool
from closedform.evaluation.study import Study
from tests.conftest import real_file
from tests.evaluation.toy import Reach, reach_demos

TOY = "tests.evaluation.toy"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def built(tmp_path, monkeypatch):
    """How many environments each process has built so far."""
    folder = tmp_path / "built"
    folder.mkdir()
    monkeypatch.setenv("TOY_BUILT", str(folder))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # for the worker processes
    return lambda: Counter(int(path.name.split("-")[0]) for path in folder.iterdir())


@pytest.fixture
def demos(tmp_path):
    save_demos(reach_demos(), tmp_path / "demos")
    return str(tmp_path / "demos")


@pytest.mark.parametrize("name", ["Counted", "counted"])
def test_an_evaluation_in_one_process_builds_one_environment(name, demos, tmp_path, built, capsys):
    command = ["eval", "--env", f"{TOY}:{name}", "--demos", demos, "--episodes", "3", "--workers", "1"]
    main([*command, "--json", str(tmp_path / "results.json"), "--video", "2"])
    assert capsys.readouterr().out.count("video: ") == 2
    assert built() == {os.getpid(): 1}


def test_worker_processes_build_one_environment_each_and_their_parent_none(demos, tmp_path, built):
    command = ["eval", "--env", f"{TOY}:Counted", "--demos", demos, "--episodes", "6", "--workers", "2"]
    main([*command, "--json", str(tmp_path / "results.json")])
    found = built()
    assert 1 <= len(found) <= 2 and set(found.values()) == {1} and os.getpid() not in found
    main([*command, "--json", str(tmp_path / "results.json")])  # there is nothing left to do
    assert built() == found


def test_an_environment_that_does_not_say_what_it_is_like_is_asked_once(demos, built):
    study = Study.make(f"{TOY}:counted", demos, "default", n_episodes=4)
    assert study.environments.spec.action_layout == Reach.action_layout and built() == {os.getpid(): 1}
    study.run(workers=2)
    assert set(built().values()) == {1} and len(built()) > 1


def test_an_environment_that_is_lent_again_gives_the_same_rows(built):
    policy, pool = ClosedFormPolicy(reach_demos()), EnvironmentPool(f"{TOY}:Counted")
    runs = [list(evaluate(policy, environment, range(3))) for environment in (Reach, pool, pool)]
    kept = [[(row.seed, row.score, row.steps, row.distances) for row in rows] for rows in runs]
    assert kept[0] == kept[1] == kept[2] and built() == {os.getpid(): 1}


def test_an_environment_is_not_lent_again_after_an_error(built):
    pool = EnvironmentPool(f"{TOY}:Counted")
    with pytest.raises(RuntimeError), pool.borrow(2) as lent:
        assert lent[0] is not lent[1]
        raise RuntimeError
    with pool.borrow() as (first,), pool.borrow() as (second,):
        assert first is not second and first not in lent and second not in lent
    with pool.borrow(2) as again:
        assert set(again) == {first, second}


def test_what_is_missing_is_said_before_anything_is_built(demos, built):
    with pytest.raises(MissingExtraError, match="needs the package 'simulator'"):
        Study.make(f"{TOY}:Uninstalled", demos, "default")
    assert not built()


def test_an_environment_with_other_layouts_than_its_class_is_refused():
    with pytest.raises(ConfigError, match="expected the observation_layout of its class, found another"):
        make_environment(f"{TOY}:Contradicting")


def test_a_simulator_is_not_built_to_read_demonstrations(monkeypatch):
    pytest.importorskip("robosuite")

    def refuse(task):
        raise AssertionError(f"the simulator of {task} was built")

    monkeypatch.setattr(robomimic, "_make", refuse)
    study = Study.make("lift", str(real_file("robomimic", "lift_ph_low_dim_10demos.hdf5")), "default", n_episodes=1)
    assert study.environments.spec.observation_layout == study.policy.observation_layout
    with pytest.raises(AssertionError, match="the simulator of lift was built"), study.environments.borrow() as (one,):
        one.reset(0)
