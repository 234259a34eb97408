"""Parameters: each is declared once, with its default, the paper's value, what is allowed, and its help."""

from __future__ import annotations

import inspect
import math
import textwrap
from collections.abc import Collection
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import Any, NamedTuple, get_args, get_type_hints

from closedform.errors import ConfigError

_ALL = "    parameters: parameters to replace, by name."  # in the docstring of a policy
_LONGEST_SHOWN = 80  # characters of a value in a message


class Declared(NamedTuple):
    """What a parameter's declaration says besides its default.

    Attributes:
        help: one or two sentences.
        paper: the value in the preset `paper`.
        between: the smallest and the largest number that is allowed; None always is where the type has it.
        open_ends: whether each of the two is itself left out.
        choices: the names that are allowed, or a dictionary of them to which others can be added.
    """

    help: str
    paper: Any
    between: tuple[float, float] = (-math.inf, math.inf)
    open_ends: tuple[bool, bool] = (False, False)
    choices: Collection[str] = ()

    def refusal(self, value: Any) -> str | None:
        """What was expected instead of a value of the right type; None if it is allowed, which NaN never is."""
        if self.choices:
            return None if value in self.choices else f"one of {', '.join(self.choices)}"
        if isinstance(value, bool | str):
            return None
        (low, high), (above, below) = self.between, self.open_ends
        if low <= value <= high and not (above and value == low) and not (below and value == high):
            return None
        if isinstance(value, int) and isinstance(low, int):
            return f"at least {low}" if value < low else f"at most {high:,}"
        if above or below:
            ends = f"more than {_number(low)}" if above else f"{_number(low)} or more"
            return f"{ends} and {'below' if below else 'at most'} {_number(high)}"
        return f"{_number(low)} to {_number(high)}"


def _number(value: float) -> str:
    return f"{value:g}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")


def parameter(default: Any, paper: Any, help: str, **allowed: Any) -> Any:
    """Declares a parameter of a dataclass of parameters.

    Args:
        default: its value in the preset `default`.
        paper: its value in the preset `paper`.
        help: one or two sentences.
        allowed: see `Declared`.
    """
    return field(default=default, metadata={"declared": Declared(help, paper, **allowed)})


@dataclass(frozen=True)
class Parameters:
    """Parameters that are checked: numbers become Python's own, and wrong types and values are refused."""

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for each in fields(self):
            value = _converted(each.name, getattr(self, each.name), get_args(hints[each.name]) or (hints[each.name],))
            object.__setattr__(self, each.name, value)
            refusal = None if value is None else each.metadata["declared"].refusal(value)
            if refusal is not None:
                raise ConfigError(f"{each.name}: expected {refusal}, found {shown(value)}")

    @classmethod
    def papers(cls) -> dict[str, Any]:
        """Every value of the preset `paper`."""
        return {each.name: each.metadata["declared"].paper for each in fields(cls)}

    @classmethod
    def described(cls) -> str:
        """Names and help of all parameters, as the section of a docstring, group by group."""
        lines = []
        for each in fields(cls):
            text = f"{each.name}: {each.metadata['declared'].help}"
            lines.append(textwrap.fill(text, 112, initial_indent="    ", subsequent_indent="        "))
        return "\n".join(lines)


def document(config: type[Parameters]) -> None:
    """Lists all parameters in the docstring of a finished class."""
    if config.__doc__:  # python -OO has none
        config.__doc__ = f"{inspect.cleandoc(config.__doc__)}\n\nAttributes:\n{config.described()}\n"


def name_parameters(policy_class: Any, documentation: str | None) -> None:
    """Has the signature and the docstring of a policy's class name each parameter of its configuration.

    The defaults in the signature are those of the preset `default`.

    Args:
        policy_class: a class with a `config_class`, whose constructor takes `**parameters`.
        documentation: the docstring with the other arguments, which is added to that of a class that lists none.
    """
    signature, config = inspect.signature(policy_class.__init__), policy_class.config_class
    named = [
        inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=each.type)
        for each in fields(config)
    ]
    _, *given = signature.parameters.values()  # without self
    given = [each for each in given if each.kind is not inspect.Parameter.VAR_KEYWORD]
    policy_class.__signature__ = inspect.Signature([*given, *named])
    own = policy_class.__doc__
    if own and documentation and "Args:" not in own:  # python -OO has no docstrings
        arguments = "Args:" + inspect.cleandoc(documentation).partition("Args:")[2]
        policy_class.__doc__ = inspect.cleandoc(own) + "\n\n" + arguments.replace(_ALL, config.described()) + "\n"


def _converted(name: str, value: Any, allowed: tuple[Any, ...]) -> Any:
    """A value with numpy's numbers as Python's; refuses values of the wrong type."""
    if isinstance(value, bool) and bool in allowed:
        return value
    try:
        if isinstance(value, Integral) and not isinstance(value, bool) and int in allowed:
            return int(value)
        if isinstance(value, Real) and not isinstance(value, bool) and float in allowed:
            return float(value)
    except OverflowError as error:  # an integer that no float holds
        raise ConfigError(f"{name}: expected a number below 1e308, found {shown(value)}") from error
    if isinstance(value, bool) or not isinstance(value, allowed):
        names = " or ".join(t.__name__ if t is not type(None) else "None" for t in allowed)
        raise ConfigError(f"{name}: expected {names}, found {shown(value)}")
    return value


def shown(value: Any) -> str:
    """A value for an error message, truncated if it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python does not print integers of more than 4300 digits
        return "a number of thousands of digits"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}... ({len(text)} characters)"
