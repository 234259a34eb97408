"""Gym: any gymnasium environment with vector or Dict observations and continuous actions."""

from __future__ import annotations

import importlib
import re
from typing import Any

import numpy as np

from closedform.errors import ConfigError, DataError, MissingExtraError
from closedform.evaluation.environment import StepResult, see_current_folder
from closedform.geometry.layout import Layout

_SUCCESS = ("is_success", "success")  # what environments call it in `info`
_OWN = ("success", "score", "keys", "max_steps")
_RULE = re.compile(r"([\w./-]+?)(?:([<>])(-?[0-9.]+(?:e-?[0-9]+)?))?")


class Gym:
    """A gymnasium environment, as it is registered.

    Observations are a vector, or a Dict of vectors, which are put one after the other in the order of the space.
    Actions are clipped to their space. Layouts are unknown, and those of demonstrations are used.

    Args:
        name: the id, as in `Pendulum-v1` or `gym_pusht/PushT-v0`; a package of that name is imported if needed.
        success: what in `info` says that the task is accomplished, by default `is_success` or `success`; also
            `terminated` or `reward`; `NAME>NUMBER` and `NAME<NUMBER` compare a number.
        score: what in `info` is a score from 0 to 1, or `reward`; by default 1 with success and 0 without.
        keys: of a Dict observation, which are used, joined by `+`; by default all.
        max_steps: the length of an episode; by default that of the environment.
        options: of `gymnasium.make`.
    """

    def __init__(
        self,
        name: str,
        *,
        success: str | None = None,
        score: str | None = None,
        keys: str | None = None,
        max_steps: int | None = None,
        **options: Any,
    ):
        self._name, self._success, self._score = name, success, score
        self._env = _make(name, options)
        self._keys = self._chosen(keys)
        space = self._env.action_space
        if type(space).__name__ != "Box":
            raise ConfigError(f"gym:{name}: expected continuous actions, a Box, found {space}")
        self._low, self._high, self._shape = space.low.ravel(), space.high.ravel(), space.shape
        self._dtype = space.dtype
        self.observation_layout = Layout.plain(sum(self._width(key) for key in self._keys))
        self.action_layout = Layout.plain(len(self._low))
        self.observation_names = self._named()
        limit = getattr(self._env.spec, "max_episode_steps", None) if max_steps is None else max_steps
        if not isinstance(limit, int) or limit < 1:
            raise ConfigError(f"gym:{name}: expected an environment with a limit of steps, found none; add max_steps=N")
        self.max_steps = limit
        self.rate = float(self._env.metadata.get("render_fps") or 10.0)

    def reset(self, seed: int) -> np.ndarray:
        """Starts the episode of a seed."""
        observation, _ = self._env.reset(seed=seed)
        return self._vector(observation)

    def step(self, action: np.ndarray) -> StepResult:
        """Executes an action, clipped to the space."""
        clipped = np.clip(np.asarray(action, np.float64), self._low, self._high).astype(self._dtype)
        observation, reward, terminated, truncated, info = self._env.step(clipped.reshape(self._shape))
        found = {**info, "reward": float(reward), "terminated": bool(terminated)}
        success = self._succeeded(found)
        score = None if self._score is None else float(self._value(found, self._score, "score"))
        return StepResult(self._vector(observation), score, success, bool(terminated or truncated))

    def render(self) -> np.ndarray:
        """An image of the scene."""
        return np.asarray(self._env.render())

    def _succeeded(self, found: dict[str, Any]) -> bool:
        rule = self._success or next((name for name in _SUCCESS if name in found), None)
        if rule is None:
            raise ConfigError(
                f"gym:{self._name}: expected {' or '.join(_SUCCESS)} in info, found {', '.join(found)}; say what "
                f"success is: gym:{self._name},success=NAME, or success=NAME>NUMBER"
            )
        match = _RULE.fullmatch(rule)
        if match is None:
            raise ConfigError(f"success: expected NAME, NAME>NUMBER or NAME<NUMBER, found {rule!r:.100}")
        value = self._value(found, match[1], "success")
        if match[2] is None:
            return bool(np.all(value))
        return bool(value > float(match[3]) if match[2] == ">" else value < float(match[3]))

    def _value(self, found: dict[str, Any], name: str, what: str) -> Any:
        if name not in found:
            raise ConfigError(f"gym:{self._name}: {what}: expected one of {', '.join(found)}, found {name!r}")
        return found[name]

    def _chosen(self, keys: str | None) -> tuple[str | None, ...]:
        spaces = getattr(self._env.observation_space, "spaces", None)
        if not isinstance(spaces, dict):
            if keys is not None:
                raise ConfigError(f"gym:{self._name}: keys: expected with Dict observations, found a vector")
            return (None,)
        chosen = tuple(spaces) if keys is None else tuple(keys.split("+"))
        unknown = [key for key in chosen if key not in spaces]
        if unknown:
            raise ConfigError(f"gym:{self._name}: keys: expected some of {', '.join(spaces)}, found {unknown[0]!r}")
        return chosen

    def _width(self, key: str | None) -> int:
        space = self._env.observation_space if key is None else self._env.observation_space.spaces[key]
        shape = getattr(space, "shape", None)
        if type(space).__name__ != "Box" or shape is None or len(shape) > 1:
            which = "" if key is None else f" under {key!r}"
            advice = "" if key is None else "; choose others with keys=NAME+NAME"
            raise ConfigError(f"gym:{self._name}: expected vectors as observations, found {space}{which}{advice}")
        return int(np.prod(shape))

    def _named(self) -> tuple[str, ...] | None:
        """The names of the numbers of a Dict observation, by its keys."""
        widths = {key: self._width(key) for key in self._keys if key is not None}
        names = (f"{key}[{i}]" if width > 1 else key for key, width in widths.items() for i in range(width))
        return tuple(names) or None

    def _vector(self, observation: Any) -> np.ndarray:
        parts = [observation if key is None else observation[key] for key in self._keys]
        vector = np.concatenate([np.ravel(np.asarray(part, np.float64)) for part in parts])
        if len(vector) != self.observation_layout.width:
            raise DataError(
                f"gym:{self._name}: expected observations of {self.observation_layout.width} numbers, as its space "
                f"says, found {len(vector)}"
            )
        return vector


def make(argument: str) -> Gym:
    """The environment `gym:ID` or `gym:ID,NAME=VALUE,...`: settings of `Gym`, and options of the environment."""
    name, *settings = argument.split(",")
    options: dict[str, Any] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not key.isidentifier() or not equals:
            raise ConfigError(f"gym:{name}: expected settings NAME=VALUE, found {setting!r:.100}")
        options[key] = value if key in _OWN and key != "max_steps" else _read(value)
    return Gym(name, **options)


def _read(value: str) -> Any:
    """A number, true or false, or text."""
    if value in ("true", "false"):
        return value == "true"
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def _make(name: str, options: dict[str, Any]) -> Any:
    try:
        import gymnasium
    except ImportError as error:
        raise MissingExtraError("gymnasium", "gym", "an environment of gymnasium") from error
    see_current_folder()
    package = name.partition("/")[0]
    if "/" in name and name not in gymnasium.registry and package.isidentifier():
        try:
            importlib.import_module(package)  # registers its environments
        except ImportError as error:
            raise ConfigError(f"gym:{name}: expected the package {package} to be installed, found {error}") from error
    try:
        return gymnasium.make(name, **{"render_mode": "rgb_array", **options})
    except Exception as error:  # of the environment, which can raise anything
        said = " ".join(str(error).split())[:300]
        if isinstance(error, gymnasium.error.NameNotFound | gymnasium.error.NamespaceNotFound) and ":" not in name:
            said += f"; if a package registers it, name it as well: gym:PACKAGE:{name}"
        raise ConfigError(f"gym:{name}: expected an environment of gymnasium, found {said}") from error
