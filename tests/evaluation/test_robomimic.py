"""robomimic's tasks: the physics of robosuite's own stepping, seeds, real demonstrations, and what does not fit."""

import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from closedform import load_demos, save_demos
from closedform.demos.robomimic_tasks import TASKS
from closedform.errors import ClosedFormError, ClosedFormWarning, MissingExtraError
from closedform.evaluation.environment import Environment, check_fit, make_environment
from closedform.evaluation.robomimic import Robomimic, environment_arguments
from closedform.evaluation.study import Study, demos_for
from closedform.geometry.so3 import axis_angle_of
from tests.conftest import real_file

WIDTHS = {"lift": 19, "can": 23, "square": 23, "transport": 59, "tool_hang": 53}
POSES = {"lift": 16, "can": 16, "square": 16, "transport": 45, "tool_hang": 30}


@pytest.fixture(scope="module")
def lift_environment():
    return Robomimic("lift")


def stay(environment):
    """The action that keeps all hands where they are, grippers open."""
    hands = [np.concatenate([p, axis_angle_of(axes), [-1.0]]) for axes, p in (arm.pose for arm in environment.arms)]
    return np.concatenate(hands)


@pytest.mark.parametrize("task", TASKS)
def test_every_task_moves_as_in_robosuite(task):
    environment = Robomimic(task)
    assert isinstance(environment, Environment)
    first = environment.reset(7)
    assert len(first) == WIDTHS[task] == environment.observation_layout.width
    assert len(first[environment.task.pose_columns]) == POSES[task] == environment.task.pose_layout.width
    hold, sway = stay(environment), np.zeros(environment.action_layout.width)
    sway[:3] = (0.03, -0.02, 0.02)
    actions = [hold + np.sin(t / 3) * sway for t in range(8)]
    assert not any(environment.step(action).success for action in actions)
    ours, seen = environment.state(), np.concatenate(list(environment.keyed().values()))
    environment.reset(7)
    for action in actions:
        environment._env.step(action)
    n = environment._env.sim.model.nq + 1
    # Contacts are solved to a tolerance only, and Transport has ninety of them.
    np.testing.assert_allclose(ours[1:n], environment.state()[1:n], atol=5e-3 if task == "transport" else 1e-5)
    np.testing.assert_allclose(seen, np.concatenate(list(environment.keyed().values())), atol=2e-2)


def test_a_seed_is_an_episode_and_leaves_numpys_own_generator_alone(lift_environment):
    np.random.seed(5)  # noqa: NPY002
    expected = np.random.rand(3)  # noqa: NPY002
    np.random.seed(5)  # noqa: NPY002
    first = lift_environment.reset(100000)
    assert np.array_equal(np.random.rand(3), expected)  # noqa: NPY002
    other = lift_environment.reset(100001)
    assert np.array_equal(lift_environment.reset(100000), first) and not np.array_equal(first, other)
    # Where robosuite puts the cube after numpy.random.seed(100000); env.reset().
    assert first[:3] == pytest.approx([-0.02476835, 0.012355, 0.83099608], abs=1e-6)


def test_the_ten_real_demonstrations_succeed_when_their_absolute_actions_are_replayed(lift_environment):
    h5py: Any = import_module("h5py")
    path = real_file("robomimic", "lift_ph_low_dim_10demos.hdf5")
    demos = lift_environment.read(str(path))
    done = 0
    with h5py.File(path) as file:
        for index, episode in enumerate(demos):
            group = file[f"data/demo_{index}"]
            lift_environment.restore(group["states"][0])
            done += any(lift_environment.step(action).success for action in episode.actions)
        assert done == 10
        first = file["data/demo_0"]
        with pytest.raises(ClosedFormError, match=r"from robosuite 1\.4, found one that it cannot load"):
            lift_environment.restore(first["states"][0], first.attrs["model_file"])


def test_demonstrations_become_what_the_environment_takes(tmp_path, lift_environment):
    path = real_file("robomimic", "lift_ph_low_dim_10demos.hdf5")
    absolute = demos_for(lift_environment, str(path))
    assert [e.kind for e in absolute.action_layout.entries] == ["position", "axis_angle", "other"]
    save_demos(absolute, tmp_path / "absolute.hdf5")
    again = demos_for(lift_environment, str(tmp_path / "absolute.hdf5"))
    assert np.array_equal(again[3].actions, absolute[3].actions) and again.recorded_in is not None
    poses = demos_for(make_environment("lift_poses"), str(path))
    assert poses.observation_layout.width == 16 and len(poses) == 10
    with pytest.raises(ClosedFormError, match=r"actions that are positions, found displacements; .*--actions absolute"):
        check_fit(lift_environment, load_demos(path), "lift")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"env_name": "PickPlaceCan"}, "expected the task 'Lift', found 'PickPlaceCan'"),
        ({"env_kwargs": {"robots": ["Sawyer"]}}, r"expected the robots \['Panda'\], found \['Sawyer'\]"),
        ({"env_kwargs": {"controller_configs": {"type": "JOINT_POSITION"}}}, "type 'OSC_POSE', found 'JOINT_POSITION'"),
        (
            {"env_kwargs": {"robots": ["Panda", "Panda"]}},
            r"expected the robots \['Panda'\], found \['Panda', 'Panda'\]",
        ),
        ({"env_kwargs": {"control_freq": 10}}, "expected the control_freq 20, found 10"),
    ],
)
def test_what_was_recorded_elsewhere_is_refused_before_the_first_step(lift_environment, change, message):
    own = environment_arguments("lift")
    recorded = {**own, **change, "env_kwargs": {**own["env_kwargs"], **change.get("env_kwargs", {})}}
    with pytest.raises(ClosedFormError, match=message):
        lift_environment._check_recorded(recorded, "demos.hdf5")


def test_another_version_of_robosuite_is_warned_about(lift_environment):
    recorded = {**environment_arguments("lift"), "env_version": "1.2.0"}
    with pytest.warns(ClosedFormWarning, match=r"recorded with robosuite 1\.2\.0, but 1\.4\.1 is installed"):
        lift_environment._check_recorded(recorded, "demos.hdf5")


@pytest.mark.usefixtures("lift")
def test_ten_human_demonstrations_lift_the_cube():
    study = Study.make("lift", "robomimic-lift-10", "default", seed=70_000, n_episodes=3)
    results = study.run(workers=1)
    assert results.success.mean == 1.0


def test_a_picture_of_the_scene_is_rendered(lift_environment):
    lift_environment.reset(1)
    try:
        first = lift_environment.render()
    except ClosedFormError as error:
        if os.environ.get("MUJOCO_GL") == "disable":
            pytest.skip(f"nothing can be rendered here: {error}")
        raise
    assert first.shape == (512, 512, 3) and first.std() > 20
    action = stay(lift_environment)
    action[2] -= 0.1
    for _ in range(5):
        lift_environment.step(action)
    assert np.abs(lift_environment.render().astype(int) - first).mean() > 0.1  # the arm has moved


def test_bad_actions_and_missing_libraries_are_said(lift_environment, monkeypatch):
    lift_environment.reset(1)
    with pytest.raises(ClosedFormError, match="expected an action of 7 finite numbers"):
        lift_environment.step(np.full(7, np.nan))
    with pytest.raises(ClosedFormError, match="expected a running episode, found none: call reset before step"):
        Robomimic("lift").step(np.zeros(7))
    import mujoco

    def broken(*_):
        raise RuntimeError("gladLoadGL error")

    monkeypatch.setattr(mujoco, "Renderer", broken)
    with pytest.raises(ClosedFormError, match=r"needs a rendering library, found none .*MUJOCO_GL=egl or osmesa"):
        lift_environment.render()
    monkeypatch.setitem(sys.modules, "robosuite", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'closedform\[robosuite\]'"):
        Robomimic("lift")
    monkeypatch.undo()
    monkeypatch.setattr(mujoco, "__version__", "4.0.0")
    with pytest.raises(
        ClosedFormError, match=r"expected MuJoCo below 3\.10, found 4\.0\.0: pip install 'mujoco<3\.10'"
    ):
        Robomimic("lift")


@pytest.mark.parametrize(
    "change",
    [{"env_kwargs": None}, {"env_kwargs": {"controller_configs": []}}, {"env_version": 1.4}, {"env_name": "unknown"}],
)
def test_odd_env_args_do_not_stop_the_reader(tmp_path, lift_environment, change):
    h5py: Any = import_module("h5py")
    own = Path(__file__).parents[1] / "data" / "robomimic" / "lift.hdf5"
    save_demos(demos_for(lift_environment, str(own)), tmp_path / "lift.hdf5")
    with h5py.File(tmp_path / "lift.hdf5", "a") as file:
        recorded = json.loads(file["data"].attrs["env_args"])
        file["data"].attrs["env_args"] = json.dumps({**recorded, **change})
    demos = load_demos(tmp_path / "lift.hdf5")
    assert len(demos) == 2 and (demos.recorded_in is None) == (change.get("env_name") == "unknown")
    if change.get("env_kwargs", {}) == {}:
        assert len(lift_environment.read(str(tmp_path / "lift.hdf5"))) == 2


@pytest.mark.usefixtures("lift")
def test_rotations_of_absolute_actions_are_not_mixed_up(tmp_path):
    save_demos(load_demos("robomimic-lift-10", actions="absolute_6d"), tmp_path / "six.hdf5")
    assert load_demos(tmp_path / "six.hdf5", actions="absolute_6d").action_layout.width == 10
    with pytest.raises(ClosedFormError, match="expected delta actions to make absolute, found absolute_6d"):
        load_demos(tmp_path / "six.hdf5", actions="absolute")
