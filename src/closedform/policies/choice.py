"""Choosing a policy by name: what the commands call `--policy` and `--set`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

from closedform.demos.demos import Demos
from closedform.errors import ConfigError, LoadError, meant
from closedform.files import read_json, replacing
from closedform.parameters import shown
from closedform.policies.closed_form import ClosedFormPolicy
from closedform.policies.config import PolicyConfig
from closedform.policies.demonstration_policy import DemonstrationPolicy
from closedform.policies.folder import SHIPPED, find_folder
from closedform.policies.nearest_neighbor import KernelRegressionPolicy, NearestNeighborPolicy, VINNPolicy
from closedform.policies.policy import Policy
from closedform.policies.saving import POLICIES, load_policy
from closedform.store.recorded_steps import Progress

FORMAT = "closedform-config"
FORMAT_VERSION = 1
CHOICES: dict[str, tuple[type[DemonstrationPolicy[Any]], str]] = {
    "default": (ClosedFormPolicy, "default"),
    "paper": (ClosedFormPolicy, "paper"),
    "1nn": (NearestNeighborPolicy, "paper"),
    "regression": (KernelRegressionPolicy, "paper"),
    "vinn": (VINNPolicy, "paper"),
}


def make_policy(
    choice: str,
    demos: Demos | None,
    settings: Sequence[str] = (),
    *,
    parameters: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Policy[Any]:
    """Makes a policy.

    Args:
        choice: `default`, `paper`, `1nn` or `regression` (nearest neighbor and kernel regression with the paper's
            windows and normalization), `vinn` (with VINN's own), a parameter file written by `write_config`, or a saved
            policy: its folder, or its name if it comes with the package.
        demos: the demonstrations; None for a saved policy, which has its own.
        settings: parameters to replace, as `name=value`.
        parameters: more of them, by name.
        progress: called with a description and the fraction done, if building takes long.
    """
    path = Path(choice)
    if choice in SHIPPED or (choice not in CHOICES and find_folder(choice).is_dir()):
        if demos is not None or settings or parameters:
            raise ConfigError(
                f"{choice} is a saved policy with its own demonstrations and parameters: expected neither, found "
                f"{'demonstrations' if demos is not None else (*settings, *(parameters or ()))[0]}"
            )
        return load_policy(choice)
    if choice in CHOICES:
        policy_class, preset = CHOICES[choice]
        saved: dict[str, Any] = {}
    elif path.is_file():
        policy_class, saved = read_config(path)
        preset = "default"
    else:
        names = [*CHOICES, *SHIPPED, "a saved policy's folder or a parameter file"]
        raise ConfigError(f"unknown policy {shown(choice)}: {meant(choice, names)}")
    if demos is None:
        raise ConfigError(f"the policy {choice!r} needs demonstrations, found none")
    changes = {**saved, **parse_settings(policy_class.config_class, settings), **(parameters or {})}
    return policy_class(demos, config=policy_class.config_class.preset(preset, demos, **changes), progress=progress)


def parse_settings(config: type[PolicyConfig], settings: Sequence[str]) -> dict[str, Any]:
    """Parses `name=value` according to the types of the parameters."""
    hints = get_type_hints(config)
    known = [field.name for field in fields(config)]
    values: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise ConfigError(f"expected parameter=value, found {shown(setting)}")
        if name not in known:
            raise ConfigError(f"unknown parameter {shown(name)}: {meant(name, known)}")
        if name in values:
            raise ConfigError(f"the parameter {name!r} is set twice")
        values[name] = _parse(name, text, get_args(hints[name]) or (hints[name],))
    return values


def _parse(name: str, text: str, allowed: tuple[type, ...]) -> Any:
    if type(None) in allowed and text.lower() == "none":
        return None
    if bool in allowed:
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        raise ConfigError(f"{name}: expected true or false, found {shown(text)}")
    kind = next(kind for kind in allowed if kind is not type(None))
    try:
        return kind(text)
    except ValueError as error:  # also for integers of more than 4300 digits
        expected = "a whole number" if kind is int else "a number"
        raise ConfigError(f"{name}: expected {expected}, found {shown(text)}") from error


def write_config(config: PolicyConfig, policy_class: type[DemonstrationPolicy[Any]], path: Path, **notes: Any) -> None:
    """Writes parameters to a file for `make_policy`; notes are for human readers."""
    content = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "policy": policy_class.__name__,
        "parameters": asdict(config),
        **notes,
    }
    with replacing(path) as new:
        new.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def read_config(path: Path) -> tuple[type[DemonstrationPolicy[Any]], dict[str, Any]]:
    """Reads a file written by `write_config`."""
    content = read_json(path, "a parameter file written by 'closedform tune'")
    kind = content.get("format") if isinstance(content, dict) else None
    if kind != FORMAT or content.get("format_version") != FORMAT_VERSION:
        found = f"a file of format {kind!r}" if kind and kind != FORMAT else "another file or version"
        raise LoadError(f"{path}: expected a parameter file written by 'closedform tune', found {found}")
    if content.get("policy") not in list(POLICIES) or not isinstance(content.get("parameters"), dict):
        raise LoadError(f"{path}: expected a parameter file with policy and parameters, found one without")
    return POLICIES[content["policy"]], content["parameters"]
