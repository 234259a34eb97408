"""The parameters of policies as keywords: in type checkers, in signatures and in `help()`."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Any, TypedDict

_ALL = "    parameters: parameters to replace, by name."  # in the docstring of a policy


class ClosedFormParameters(TypedDict, total=False):
    """Any of the parameters of `ClosedFormConfig`, which says what they are."""

    n_obs_steps: int
    n_action_steps: int
    n_execute: int
    padding: bool
    features: str
    rotation_weight: float
    metric: str
    n_neighbors: int | None
    regularization: float
    shrinkage: float | None
    choose_shrinkage: bool
    relevance: bool
    selection: bool
    distinct: bool
    frames: str
    fair_frames: bool
    missing_rotations: str
    loop_memory: float
    rest: bool
    pace: bool
    continuation: float
    goal_weight: float
    goals: str
    symmetry: bool
    find_symmetry: bool
    relation_weight: float
    targets: str
    index: str
    recall: float
    bandwidth: float
    tau: float
    n_perturbations: int
    n_diffusion_steps: int
    process: str
    sampler: str
    pruning_error: float
    deadline: float | None


def name_parameters(policy_class: Any, documentation: str | None) -> None:
    """Has the signature and the docstring of a policy's class name each parameter of its configuration.

    The defaults in the signature are those of the preset `default`.

    Args:
        policy_class: a class with a `config_class`, whose constructor takes `**parameters`.
        documentation: the docstring with the other arguments, which is added to that of a class that lists none.
    """
    signature, config = inspect.signature(policy_class.__init__), policy_class.config_class
    named = [
        inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type)
        for field in fields(config)
    ]
    _, *given = signature.parameters.values()  # without self
    given = [each for each in given if each.kind is not inspect.Parameter.VAR_KEYWORD]
    policy_class.__signature__ = inspect.Signature([*given, *named])
    own = policy_class.__doc__
    if own and documentation and "Args:" not in own:  # python -OO has no docstrings
        classes = [each for each in reversed(config.__mro__) if each is not object]
        listed = [inspect.cleandoc(each.__doc__).partition("Attributes:\n")[2] for each in classes]
        arguments = "Args:" + inspect.cleandoc(documentation).partition("Args:")[2]
        policy_class.__doc__ = inspect.cleandoc(own) + "\n\n" + arguments.replace(_ALL, "\n".join(listed)) + "\n"
