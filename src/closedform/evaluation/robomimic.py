"""robomimic's tasks in robosuite: Lift, Can, Square, Transport and ToolHang (Mandlekar et al., 2021)."""

from __future__ import annotations

import logging
import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, partial
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from closedform.demos.demos import Demos
from closedform.demos.episode import Episode
from closedform.demos.formats.robomimic import controller_of, is_absolute
from closedform.demos.load import load_demos
from closedform.demos.robomimic_tasks import TASKS
from closedform.errors import ClosedFormWarning, ConfigError, DataError, MissingExtraError
from closedform.evaluation.environment import StepResult
from closedform.evaluation.mujoco_library import import_mujoco
from closedform.evaluation.operational_space import RobosuiteArm, step_together
from closedform.geometry.rigid_pose import RigidPose
from closedform.geometry.so3 import axis_angle_of, matrix_of_axis_angle

_RATE = 20.0
_PICTURE = 512  # pixels
_CAMERA = "agentview"
_CONTROLLER = ("type", "kp", "damping_ratio", "impedance_mode", "uncouple_pos_ori")  # must match the recording
_OBJECT_STATE = "object-state"  # robosuite's name of robomimic's `object`


class Robomimic:
    """A robomimic task with the protocol of Diffusion Policy's evaluation.

    Start states are those of `numpy.random.seed(seed); env.reset()`. Actions are absolute: each hand's target pose in
    the world (position, axis-angle) and its gripper. An episode ends on success, or after 400 or 700 steps.

    Args:
        task: `lift`, `can`, `square`, `transport` or `tool_hang`.
        poses: whether to observe only the poses of hands and objects and the grippers, as the paper does, instead of
            all of Diffusion Policy's keys.
    """

    rate = _RATE
    view = ((0, 1, 0), (1, 0, 0), (0, 0, 1))  # of the camera in front of the robot
    reach = 0.8

    def __init__(self, task: str, *, poses: bool = False):
        self.task = TASKS[task]
        self.poses = poses
        self.observation_layout = self.task.pose_layout if poses else self.task.observation_layout
        self.action_layout = self.task.action_layout
        self.max_steps = self.task.max_steps
        _robosuite(task)  # reports missing packages now
        self._arms: list[RobosuiteArm] = []
        self._first_poses: list[RigidPose] = []
        self._closes = False
        self._renderer: Any = None

    @cached_property
    def _env(self) -> Any:
        """The simulator, built for the first episode, since reading demonstrations does not need it."""
        with _kept_generator():
            return _make(self.task.name)

    @property
    def arms(self) -> list[RobosuiteArm]:
        """The arms of the current episode."""
        return self._arms

    def read(self, source: str) -> Demos:
        """Reads demonstrations; recorded deltas are made absolute, and only poses are kept if only they are observed.

        Demonstrations of another task, robot or controller are refused; another version of robosuite causes a warning.
        """
        demos = load_demos(source)
        if demos.recorded_in is None:
            return demos
        self._check_recorded(demos.recorded_in, source)
        if not is_absolute(demos.recorded_in):
            demos = load_demos(source, actions="absolute")
        columns = self.task.pose_columns
        if not self.poses or demos.observation_layout != self.task.observation_layout:
            return demos
        seen = [Episode(episode.observations[:, columns], episode.actions) for episode in demos]
        layouts = self.observation_layout, demos.action_layout
        return Demos(seen, *layouts, demos.rate, demos.tasks, demos.skipped, demos.recorded_in)

    def _check_recorded(self, recorded: Mapping[str, Any], source: str) -> None:
        """Refuses or warns about a recording made in a different environment."""
        own = environment_arguments(self.task.name)
        arguments = recorded.get("env_kwargs")
        then, now = arguments if isinstance(arguments, Mapping) else {}, own["env_kwargs"]
        controllers = controller_of(recorded), now["controller_configs"]
        compared = [("task", recorded.get("env_name"), own["env_name"])]
        compared += [(name, then.get(name), now.get(name)) for name in ("robots", "env_configuration", "control_freq")]
        compared += [(f"controller's {name}", *(c.get(name) for c in controllers)) for name in _CONTROLLER]
        for what, found, expected in compared:
            if found is not None and expected is not None and not _same(found, expected):
                raise DataError(
                    f"{source} does not match the environment {self.task.name!r}: expected the {what} "
                    f"{expected!r}, found {found!r}"
                )
        version = recorded.get("env_version")
        if version is not None and str(version).split(".")[:2] != own["env_version"].split(".")[:2]:
            warnings.warn(
                f"{source} was recorded with robosuite {version}, but {own['env_version']} is installed: its "
                "actions may not succeed here; evaluate with the version of the recording to be sure",
                ClosedFormWarning,
                stacklevel=2,
            )

    def reset(self, seed: int) -> np.ndarray:
        """Starts from the start state for a seed; published evaluations use seeds from 100000."""
        with _kept_generator():
            np.random.seed(seed)  # noqa: NPY002
            self._env.reset()
        return self._begin()

    def restore(self, state: np.ndarray, model: str | None = None) -> np.ndarray:
        """Starts from a recorded simulator state, in the recorded model (MJCF) if given.

        Without a model, that of the last reset is used, in which object sizes may differ slightly.
        """
        if model is not None:
            try:
                self._env.reset_from_xml_string(self._env.edit_model_xml(model))
            except Exception as error:  # robosuite fails somewhere inside
                self._env, self._arms = _make(self.task.name), []
                raise DataError(
                    f"expected a model of {self.task.name!r} from robosuite 1.4, found one that it cannot load "
                    f"({str(error)[:60]}...): restore the state without a model"
                ) from error
        elif not self._arms:
            self.reset(0)
        self._env.sim.set_state_from_flattened(np.asarray(state, np.float64))
        self._env.sim.forward()
        return self._begin()

    def step(self, action: np.ndarray) -> StepResult:
        """Moves the hands' targets for a twentieth of a second."""
        if not self._arms:
            raise ConfigError("expected a running episode, found none: call reset before step")
        action = np.asarray(action, np.float64)
        if action.shape != (self.action_layout.width,) or not np.isfinite(action).all():
            raise DataError(f"expected an action of {self.action_layout.width} finite numbers, found {action}")
        goals = []
        for hand in action.reshape(-1, 7):
            goals.append((RigidPose(matrix_of_axis_angle(hand[3:6]), hand[:3].copy()), float(hand[6])))
        self._closes = goals[0][1] > 0
        step_together(self._arms, goals, round(self._env.control_timestep / self._env.model_timestep))
        success = bool(self._env._check_success())
        return StepResult(self._observe(), float(success), success, success)

    def state(self) -> np.ndarray:
        """The simulator's state, as robomimic records it."""
        return self._env.sim.get_state().flatten()

    def model(self) -> str:
        """The simulator's model (MJCF), as robomimic records it, with mesh paths relative to robosuite's folder."""
        return re.sub(r'"[^"]*/(robosuite/models/)', r'"\1', self._env.sim.model.get_xml())

    def observed(self) -> dict[str, np.ndarray]:
        """All current robosuite observations, by robosuite's names."""
        return self._env._get_observations(force_update=True)

    def site(self, name: str) -> np.ndarray:
        """The position of a site of the model, by robosuite's name."""
        sim = self._env.sim
        return sim.data.site_xpos[sim.model.site_name2id(name)].copy()

    def place(self, name: str) -> np.ndarray:
        """A fixed position in the scene that is not observed: `can_bin` or `peg`."""
        if name == "peg":
            return np.array(self._env.sim.data.get_body_xpos("peg1"))
        return np.array(self._env.target_bin_placements[self._env.object_id])

    def render(self) -> np.ndarray:
        """An image of the scene from the front."""
        if not self._arms:
            raise ConfigError("expected a running episode, found none: call reset before render")
        mujoco = import_mujoco()
        model, data = self._arms[0].model, self._arms[0].data
        if self._renderer is None or self._renderer.model is not model:
            try:
                self._close_renderer()
                mujoco.gl_context.GLContext(1, 1).free()  # else a renderer that fails to start complains again on exit
                model.vis.global_.offwidth = model.vis.global_.offheight = _PICTURE  # some models have smaller ones
                self._renderer = mujoco.Renderer(model, _PICTURE, _PICTURE)
            except Exception as error:  # each rendering library fails in its own way
                library = os.environ.get("MUJOCO_GL")
                raise ConfigError(
                    f"rendering {self.task.name!r} needs a rendering library, found none for MUJOCO_GL={library} "
                    f"({error}): without a display, install libegl1 or libosmesa6 and set MUJOCO_GL=egl or osmesa"
                ) from error
            self._shown = mujoco.MjvOption()
            self._shown.geomgroup[0] = 0  # shapes that only collide
        self._renderer.update_scene(data, _CAMERA, self._shown)
        return np.array(self._renderer.render())  # older versions of MuJoCo reuse the image

    def hand(self) -> np.ndarray:
        """The position of the first hand, (3,), for `Steering`."""
        return np.array(self._arms[0].pose.position)

    def action_to(self, position: np.ndarray, closed: bool) -> np.ndarray:
        """The action that moves the first hand to a position, with the rotation it began with; others keep still."""
        poses = [RigidPose(self._first_poses[0].rotation, position), *self._first_poses[1:]]
        grips = np.array([closed, *[False] * (len(poses) - 1)]) * 2.0 - 1.0
        hands = zip(poses, grips, strict=True)
        return np.concatenate([[*pose.position, *axis_angle_of(pose.rotation), grip] for pose, grip in hands])

    def closed(self) -> bool:
        """Whether the first gripper was last commanded to close."""
        return self._closes

    def _begin(self) -> np.ndarray:
        self._arms = [RobosuiteArm(robot) for robot in self._env.robots]
        self._closes = False
        self._first_poses = [RigidPose(*map(np.array, arm.pose)) for arm in self._arms]
        return self._observe()

    def keyed(self) -> dict[str, np.ndarray]:
        """The current observations by Diffusion Policy's keys."""
        found = self.observed()
        names = {key: _OBJECT_STATE if key == "object" else key for key in self.task.keys}
        return {key: np.array(found[name], np.float64) for key, name in names.items()}

    def _observe(self) -> np.ndarray:
        observation = np.concatenate(list(self.keyed().values()))
        return observation[self.task.pose_columns] if self.poses else observation

    def _close_renderer(self) -> None:
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None


def _same(found: Any, expected: Any) -> bool:
    """Whether two arguments are equivalent; a number may stand for six equal ones."""
    numbers = (int, float)
    if isinstance(found, numbers) or isinstance(expected, numbers):
        return bool(np.all(np.asarray(found) == np.asarray(expected)))
    return found == expected


def environment_arguments(task: str) -> dict[str, Any]:
    """robomimic's `env_args`, from which it creates the environment of a file."""
    known = TASKS[task]
    robosuite = _robosuite(task)
    from robosuite.controllers import load_controller_config

    controller = {**load_controller_config(default_controller="OSC_POSE"), "control_delta": False}
    return {
        "env_name": known.env_name,
        "env_version": robosuite.__version__,
        "type": 1,
        "env_kwargs": {
            "robots": ["Panda"] * known.n_arms,
            "controller_configs": controller,
            **({"env_configuration": "single-arm-opposed"} if known.n_arms == 2 else {}),
            "has_renderer": False,
            "has_offscreen_renderer": False,
            "use_camera_obs": False,
            "use_object_obs": True,
            "control_freq": int(_RATE),
            "ignore_done": True,
        },
    }


def _make(task: str) -> Any:
    arguments = environment_arguments(task)
    return _robosuite(task).make(arguments["env_name"], **arguments["env_kwargs"])


@contextmanager
def _kept_generator() -> Iterator[None]:
    """Restores the state of numpy's global generator, which robosuite draws from."""
    before = np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002


@contextmanager
def _no_renderer() -> Iterator[None]:
    """Lets robosuite be imported without EGL, which it requires even if nothing is rendered."""
    library, name = os.environ.get("MUJOCO_GL"), "robosuite.renderers.context.egl_context"
    if name not in sys.modules:
        sys.modules[name] = ModuleType(name)
        sys.modules[name].EGLGLContext = None  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        if library is None:
            os.environ.pop("MUJOCO_GL", None)
        else:
            os.environ["MUJOCO_GL"] = library


def _robosuite(task: str) -> Any:
    logging.getLogger("robosuite_logs").setLevel(logging.ERROR)  # it asks for a private file at each import
    try:
        mujoco = import_mujoco()
        if tuple(int(part) for part in mujoco.__version__.split(".")[:2]) >= (3, 10):
            raise ConfigError(  # robosuite would fail somewhere inside
                f"the environment {task!r}: expected MuJoCo below 3.10, found {mujoco.__version__}: "
                "pip install 'mujoco<3.10'"
            )
        with _no_renderer():
            robosuite = import_module("robosuite")
    except ImportError as error:
        raise MissingExtraError(error.name or "robosuite", "robosuite", f"the environment {task!r}") from error
    if not robosuite.__version__.startswith("1.4."):
        raise ConfigError(
            f"the environment {task!r}: expected robosuite 1.4, found {robosuite.__version__}, which ignores numpy's "
            "seeds: pip install 'robosuite==1.4.1'"
        )
    return robosuite


lift, can, square, transport, tool_hang = (partial(Robomimic, task) for task in TASKS)
lift_poses, can_poses, square_poses, transport_poses, tool_hang_poses = (
    partial(Robomimic, task, poses=True) for task in TASKS
)
