"""Environment: what a policy is evaluated in, a small protocol that other packages can implement."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import numpy as np

from closedform.demos.conversion import KINDS, Meaning, declared_meaning, meaning_of
from closedform.demos.demos import Demos
from closedform.demos.robomimic_tasks import TASKS
from closedform.errors import ClosedFormError, ConfigError, DataError, LoadError, meant
from closedform.geometry.layout import Layout
from closedform.policies.demonstration_policy import DemonstrationPolicy
from closedform.policies.policy import Policy

_ENTRY_POINTS = "closedform.environments"
_MOST_EPISODES = 100_000
_N_EXAMINED = 50  # episodes of a policy, for what its actions are
N_SEEDS = 2**32  # from 0
_MEMBERS = ("observation_layout", "action_layout", "max_steps", "rate", "reset", "step")
_ROBOMIMIC = tuple(name + choice for name in TASKS for choice in ("", "_poses"))
BUILT_IN = {
    "pusht": "closedform.evaluation.pusht:PushT",
    "pusht_pixels": "closedform.evaluation.pusht_pixels:PushTPixels",
    **{name: f"closedform.evaluation.robomimic:{name}" for name in _ROBOMIMIC},
    "twin": "closedform.robot.twin.environment:Twin",
    "twin_truth": "closedform.robot.twin.environment:TwinTruth",
}
_WORDS: dict[Meaning, str] = {"targets": "positions", "displacements": "displacements"}
_FAMILIES = {  # `FAMILY:ARGUMENT`: the function that makes the environment, and what its argument is called
    "gym": ("closedform.evaluation.gym:make", "ID,SETTING=VALUE,..."),
    "metaworld": ("closedform.evaluation.metaworld:make", "TASK"),
    "pusht_pixels": ("closedform.evaluation.pusht_pixels:make", "SETTING=VALUE,..."),
    "twin": ("closedform.robot.twin.environment:make", "SETTING=VALUE,..."),
    "twin_truth": ("closedform.robot.twin.environment:make_truth", "SETTING=VALUE,..."),
}


class StepResult(NamedTuple):
    """The result of one action.

    Attributes:
        observation: (D_o,)
        score: of the current state, in [0, 1]; a rollout's score is its maximum. None, for tasks that are only
            accomplished or not, counts as 1 with success and 0 without.
        success: whether the task is accomplished.
        done: whether the episode is over.
    """

    observation: np.ndarray
    score: float | None = None
    success: bool = False
    done: bool = False


class EnvironmentSpec(Protocol):
    """What is known about an environment before it is built: its class, or an instance.

    Attributes:
        observation_layout, action_layout: the layouts of its observations and actions.
        max_steps: the length after which an episode is stopped.
        rate: steps per second.

    An optional attribute `commands` says what actions are if their layout does not: `targets` (absolute), or
    `displacements` of the body that they command. Demonstrations of the other kind are then refused.
    """

    observation_layout: Layout
    action_layout: Layout
    max_steps: int
    rate: float


@runtime_checkable
class Environment(EnvironmentSpec, Protocol):
    """A task. The same seed and actions give the same episode, regardless of what ran before.

    If the attributes are class attributes, environments are built only where episodes run. An optional class method
    `check_installed` is called first, and reports missing packages. Videos need a method `render` too; see `Renders`.
    """

    def reset(self, seed: int) -> np.ndarray:
        """Starts the episode of a seed and returns its first observation (D_o,)."""
        ...

    def step(self, action: np.ndarray) -> StepResult:
        """Executes an action (D_a,)."""
        ...


@runtime_checkable
class Renders(Protocol):
    """An environment that can show itself, for videos and reports."""

    def render(self) -> np.ndarray:
        """An image of the scene, (height, width, 3) of uint8."""
        ...


@runtime_checkable
class Scene(Protocol):
    """An environment that can render any observation, as the background for explanations.

    Attributes:
        extent: the edges of its images in the units of positions: left, right, bottom, top.
    """

    extent: tuple[float, float, float, float]

    def picture(self, observation: np.ndarray) -> np.ndarray:
        """An image of the scene at an observation (D_o,), as from `render`."""
        ...


@runtime_checkable
class ReadsDemos(Protocol):
    """An environment that knows how to read demonstrations for it, and refuses those of other tasks."""

    def read(self, source: str) -> Demos:
        """Reads demonstrations from a path or a dataset by name."""
        ...


def environment_names() -> list[str]:
    """The environments available by name: the package's own and those of installed packages."""
    families = (f"{family}:{argument}" for family, (_, argument) in _FAMILIES.items())
    return sorted({*BUILT_IN, *families, *(point.name for point in entry_points(group=_ENTRY_POINTS))})


def check_trusted(name: str, given: str | None = None) -> None:
    """Refuses to run code named only by a file: an environment must be built in, installed, or named by the user.

    Args:
        name: the environment named in the file.
        given: the environment named by the user, if any.
    """
    family = name.partition(":")[0]
    if name in environment_names() or name == given or (family in _FAMILIES and family != "gym"):
        return
    if ":" not in name:
        raise LoadError(f"expected one of the environments {', '.join(environment_names())}, found {name!r}")
    raise LoadError(
        f"expected a built-in or installed environment, found {name!r}: code named by a file is run only if you "
        f"name it as well (--env {name})"
    )


def make_environment(name: str) -> Environment:
    """Makes an environment.

    Args:
        name: one of `environment_names()`, such as `pusht`, `metaworld:reach-v3` or `gym:Pendulum-v1`, or
            `package.module:function`, where the function (or class) takes no arguments. Packages can register theirs
            under the entry point group `closedform.environments`.
    """
    factory = _factory(name)
    try:
        environment = factory()
    except ClosedFormError:
        raise
    except (Exception, SystemExit) as error:  # user code can raise anything
        raise ConfigError(f"environment {name!r}: could not be created: {error!r}") from error
    missing = [member for member in _MEMBERS if not hasattr(environment, member)]
    if missing:
        found = f"a {type(environment).__name__} without {', '.join(missing)}"
        raise ConfigError(f"environment {name!r}: expected an Environment, found {found}")
    for what in ("observation_layout", "action_layout"):
        if not isinstance(getattr(environment, what), Layout):
            raise ConfigError(
                f"environment {name!r}: expected {what} to be a Layout, found {getattr(environment, what)!r}"
            )
        declared = getattr(factory, what, None)
        if isinstance(declared, Layout) and declared != getattr(environment, what):
            raise ConfigError(f"environment {name!r}: expected the {what} of its class, found another")
    environment.action_layout.check_commands()
    if not isinstance(environment.max_steps, int) or environment.max_steps < 1:
        raise ConfigError(f"environment {name!r}: expected max_steps of at least 1, found {environment.max_steps!r}")
    return environment


def describe_environment(name: str) -> EnvironmentSpec | None:
    """The description of an environment from its class; None if one has to be built to know.

    Args:
        name: see `make_environment`.
    """
    factory = _factory(name)
    if not isinstance(factory, type) or not all(hasattr(factory, member) for member in _MEMBERS):
        return None
    known = cast("Environment", factory)
    if not isinstance(known.observation_layout, Layout) or not isinstance(known.action_layout, Layout):
        return None
    if hasattr(factory, "read"):  # an instance method
        return None
    check_installed = getattr(factory, "check_installed", None)
    if check_installed is not None:
        check_installed()
    return known


def check_seed(seed: int, n: int = 1) -> None:
    """Refuses seeds out of range, and too many episodes."""
    if not 1 <= n <= _MOST_EPISODES:
        raise ConfigError(f"episodes: expected at least one episode and at most {_MOST_EPISODES}, found {n}")
    if seed < 0 or seed + n > N_SEEDS:
        raise ConfigError(f"expected seeds from 0 to 2^32 - 1, found {seed}{f' to {seed + n - 1}' if n > 1 else ''}")


def check_fit(environment: EnvironmentSpec, subject: Demos | Policy, name: str) -> None:
    """Refuses demonstrations or a policy that do not match an environment; the error gives both widths."""
    for what in ("observation", "action"):
        expected, found = (getattr(side, f"{what}_layout").width for side in (environment, subject))
        if expected != found:
            more = f"{abs(found - expected)} too {'many' if found > expected else 'few'}"
            raise DataError(
                f"{name} does not match the environment: expected {what}s of {expected} numbers, found {found} ({more})"
            )
    expected = _commands(environment)
    if expected is None:
        return
    found = meaning_of(subject) if isinstance(subject, Demos) else policy_meaning(subject)
    if found is None or found == expected:
        return
    if isinstance(subject, Demos):
        how = "absolute" if expected == "targets" else "displacements --action-scale NUMBER"
        kind = "position" if expected == "targets" else "vector"
        declared = any(entry.kind in KINDS for entry in subject.action_layout.entries)
        advice = f"convert them with 'closedform convert --actions {how}'"
        advice += "" if declared else f", or if that is wrong, declare them with --action-layout 'hand {kind} 2, ...'"
    else:
        advice = "build it from demonstrations with such actions"
    raise DataError(
        f"{name} does not match the environment: expected actions that are {_WORDS[expected]}, found "
        f"{_WORDS[found]}; {advice}"
    )


def policy_meaning(policy: Policy) -> Meaning | None:
    """What a policy's actions are, as declared or as clear from some of its demonstrations; else None."""
    if not isinstance(policy, DemonstrationPolicy):
        return declared_meaning(policy.action_layout)
    episodes = [episode for episode in policy.episodes[:_N_EXAMINED] if len(episode)]
    return meaning_of(Demos(episodes, policy.observation_layout, policy.action_layout))


def can_render(environment: object, name: str) -> Renders:
    """The environment, if it can show itself; otherwise refuses to make videos of it."""
    if not isinstance(environment, Renders):
        raise ConfigError(f"the environment {name!r} cannot be filmed: expected a method `render`, found none")
    return environment


def _commands(environment: EnvironmentSpec) -> Meaning | None:
    """What actions are in an environment, as declared by it or by their layout; None if by neither."""
    said = getattr(environment, "commands", None)
    if said is None:
        return declared_meaning(environment.action_layout)
    if said not in _WORDS:
        raise ConfigError(f"expected an environment whose commands are {' or '.join(_WORDS)}, found {said!r:.60}")
    return said


def see_current_folder() -> None:
    """Has modules in the current folder found, as the user of a command expects."""
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))


def _factory(name: str) -> Callable[[], Any]:
    for point in entry_points(group=_ENTRY_POINTS):
        if point.name == name:
            return point.load()
    path = BUILT_IN.get(name, name)
    module, colon, attribute = path.partition(":")
    if colon and attribute and module in _FAMILIES:
        where, _, maker = _FAMILIES[module][0].partition(":")
        return partial(getattr(importlib.import_module(where), maker), attribute)
    if not (module and colon and attribute):
        raise ConfigError(
            f"unknown environment {name!r}: {meant(name, [*environment_names(), 'or package.module:function'])}"
        )
    see_current_folder()
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"environment {name!r}: expected {attribute} in {module}, found {error}") from error
