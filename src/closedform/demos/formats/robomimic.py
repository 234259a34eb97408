"""robomimic's HDF5 files: `data/demo_N/{obs/*, actions}`, `env_args` and `mask/*`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from closedform.demos.demos import Demos
from closedform.demos.encoding import (
    axis_angle_of,
    columns_of_quaternion,
    matrix_of_axis_angle,
    rotation_matrix,
    two_columns,
)
from closedform.demos.formats.common import ReadOptions, flat, make_demos, pick, require, select
from closedform.demos.layout import Entry, Layout
from closedform.demos.robomimic_tasks import BY_ENV_NAME, HANDS
from closedform.errors import ClosedFormError, LoadError
from closedform.files import appearing

NAME = "robomimic"
PURPOSE = "reading a robomimic file"
UNKNOWN: dict[str, Any] = {"env_name": "unknown", "type": 1, "env_kwargs": {}}
LOW_DIM_KEYS = ("object", "robot0_eef_pos", "robot0_eef_quat", "robot0_gripper_qpos")
SECOND_ARM_KEYS = ("robot1_eef_pos", "robot1_eef_quat", "robot1_gripper_qpos")


def matches(path: Path) -> bool:
    """Whether a path is an HDF5 file with robomimic's group `data/demo_N`."""
    h5py = require("h5py", PURPOSE)
    try:
        with h5py.File(path, "r") as file:
            return any(re.fullmatch(r"demo_\d+", name) for name in file.get("data", {}))
    except (OSError, RuntimeError, KeyError):
        return False


def read(path: Path, options: ReadOptions) -> Demos:
    """Reads the episodes; keys are those of the group `obs`."""
    h5py = require("h5py", PURPOSE)
    try:
        with h5py.File(path, "r") as file:
            return _read(path, file, options)
    except ClosedFormError:
        raise
    except Exception as error:  # parsers of damaged files raise anything
        raise LoadError(f"{path}: expected data/demo_N with obs and actions, found {error}") from error


def _read(path: Path, file: Any, options: ReadOptions) -> Demos:
    names = sorted((n for n in file["data"] if re.fullmatch(r"demo_\d+", n)), key=lambda n: int(n[5:]))
    if options.mask is not None:
        masks = list(file.get("mask", {}))
        mask = {name.decode() for name in file["mask"][pick(path, masks, options.mask, (), "mask")][:]}
        names = [name for name in names if name in mask]
    names = [names[e] for e in select(path, options.episodes, len(names))]
    environment = _environment(file)
    if is_absolute(environment) and options.actions != "recorded":
        stored = _stored(file, "action_layout")
        kind = "absolute_6d" if stored and any(e.kind == "rotation6d" for e in stored.entries) else "absolute"
        if kind != options.actions:
            raise LoadError(
                f"{path}: expected deltas to make {options.actions}, found {kind}: begin with the recording"
            )
        options = replace(options, actions="recorded")  # they are so already
    form = "absolute" if is_absolute(environment) and options.actions == "recorded" else options.actions
    pairs, layouts = [], {}
    for name in names:
        demo = file["data"][name]
        keys = options.observation_keys or _default_keys(list(demo["obs"]))
        parts = [flat(path, key, _numbers(path, name, demo["obs"], key)) for key in keys]
        if len({len(part) for part in parts}) != 1:
            found = ", ".join(f"{key} {len(part)}" for key, part in zip(keys, parts, strict=True))
            raise LoadError(f"{path}: {name}: expected observations of one length, found {found}")
        actions = flat(path, "actions", _numbers(path, name, demo, options.action_key or "actions"))
        if options.actions != "recorded":
            actions = _absolute(path, name, demo, actions, environment, options.actions)
        pairs.append((np.concatenate(parts, axis=1), actions))
        if not layouts:
            layouts = {
                "observation_layout": _stored(file, "observation_layout") or _layout(keys, parts, environment),
                "action_layout": _stored(file, "action_layout") or _action_layout(actions.shape[1], form),
            }
    arguments = environment.get("env_kwargs")
    rate = arguments.get("control_freq") if isinstance(arguments, dict) else None
    rate = file["data"].attrs.get("rate") if rate is None else rate
    rate = None if rate is None else float(rate)
    unknown = environment.get("env_name") in (None, UNKNOWN["env_name"])
    if options.actions != "recorded":
        controller_of(environment)["control_delta"] = False
    return make_demos(path, pairs, options, **layouts, rate=rate, recorded_in=None if unknown else environment)


def _numbers(path: Path, demo: str, group: Any, key: str) -> np.ndarray:
    if key not in group:
        raise LoadError(f"{path}: {demo}: expected {key!r}, found {', '.join(sorted(group))}")
    return group[key][...]


def _environment(file: Any) -> dict[str, Any]:
    try:
        environment = json.loads(file["data"].attrs.get("env_args", "{}"))
    except ValueError as error:
        raise LoadError(f"{file.filename}: expected env_args to be JSON, found {error}") from error
    return environment if isinstance(environment, dict) else {}


def is_absolute(environment: Mapping[str, Any]) -> bool:
    """Whether actions are targets of robosuite's OSC_POSE controller, as Diffusion Policy keeps them."""
    controller = controller_of(environment)
    return controller.get("type") == "OSC_POSE" and controller.get("control_delta") is False


def controller_of(environment: Mapping[str, Any]) -> dict[str, Any]:
    """The controller in `env_args`; of several arms that of the first, and {} if there is none."""
    arguments = environment.get("env_kwargs")
    found = arguments.get("controller_configs") if isinstance(arguments, Mapping) else None
    if isinstance(found, list) and found:
        found = found[0]
    return found if isinstance(found, dict) else {}


def _stored(file: Any, name: str) -> Layout | None:
    text = file["data"].attrs.get(name)
    return Layout.from_json(json.loads(text)) if text is not None else None


def _default_keys(names: list[str]) -> tuple[str, ...]:
    """Diffusion Policy's low-dimensional keys where they are, else everything that is not an image."""
    if "observation" in names:
        return ("observation",)
    keys = LOW_DIM_KEYS + (SECOND_ARM_KEYS if SECOND_ARM_KEYS[0] in names else ())
    if set(keys) <= set(names):
        return keys
    return tuple(name for name in sorted(names) if not name.endswith(("image", "depth")))


def _layout(keys: tuple[str, ...], parts: list[np.ndarray], environment: dict[str, Any]) -> Layout:
    entries: list[Entry] = []
    for key, part in zip(keys, parts, strict=True):
        width = part.shape[1]
        task = BY_ENV_NAME.get(environment.get("env_name", ""))
        known = task.objects if task else ()
        hand = re.match(r"robot([01])_eef_(pos|quat)$", key)
        gripper = re.match(r"robot([01])_gripper_qpos$", key)
        if key == "object" and sum(entry.size for entry in known) == width:
            entries.extend(known)
        elif hand:
            body = HANDS[int(hand[1])]
            entries.append(Entry("position", 3, body) if hand[2] == "pos" else Entry("quaternion", 4, body))
        elif gripper:
            entries.append(Entry("other", width, HANDS[int(gripper[1])]))
        else:
            entries.append(Entry("other", width))
    return Layout(tuple(entries))


def _action_layout(width: int, actions: str) -> Layout | None:
    """One arm or two; deltas of position turn with a frame, absolute positions also move with it."""
    arm = {
        "recorded": [("vector", 3), ("other", 3), ("other", 1)],
        "absolute": [("position", 3), ("axis_angle", 3), ("other", 1)],
        "absolute_6d": [("position", 3), ("rotation6d", 6), ("other", 1)],
    }[actions]
    size = sum(number for _, number in arm)
    if width not in (size, 2 * size):
        return None
    entries = []
    for hand in HANDS[: width // size]:
        entries += [Entry(kind, number, hand) for kind, number in arm]  # pyright: ignore[reportArgumentType]
    return Layout(tuple(entries))


def _absolute(
    path: Path, name: str, demo: Any, actions: np.ndarray, environment: dict[str, Any], form: str
) -> np.ndarray:
    """The targets of robosuite's OSC_POSE controller for delta actions, from the pose that was observed.

    The controller adds the scaled delta to the pose of its own frame at the time, which is turned by -90 degrees about
    the hand's z axis from `robot0_eef_quat`.
    """
    controller = controller_of(environment)
    if controller.get("type") != "OSC_POSE" or not controller.get("control_delta", False):
        raise LoadError(
            f"{path}: absolute actions are made from OSC_POSE deltas, found controller {controller.get('type')!r} with "
            f"control_delta {controller.get('control_delta')!r}"
        )
    if actions.shape[1] % 7:
        raise LoadError(f"{path}: {name}: expected 7 numbers an arm for OSC_POSE, found {actions.shape[1]}")
    scale = np.asarray(controller["output_max"]) / np.asarray(controller.get("input_max", 1.0))
    parts = []
    for arm in range(actions.shape[1] // 7):
        own = actions[:, 7 * arm : 7 * arm + 7]
        position = _numbers(path, name, demo["obs"], f"robot{arm}_eef_pos")
        quaternion = _numbers(path, name, demo["obs"], f"robot{arm}_eef_quat")
        delta = np.clip(own[:, :6], -1, 1) * scale
        quarter_turn = np.array([[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
        rotation = (
            matrix_of_axis_angle(delta[:, 3:]) @ rotation_matrix(columns_of_quaternion(quaternion)) @ quarter_turn
        )
        turned = axis_angle_of(rotation) if form == "absolute" else two_columns(rotation)
        parts += [position + delta[:, :3], turned, own[:, 6:]]
    return np.concatenate(parts, axis=1)


def write(demos: Demos, path: Path) -> None:
    """Writes observations as the one key `obs/observation`, with the layouts as attributes."""
    h5py = require("h5py", "writing a robomimic file")
    with appearing(path, folder=False) as target, h5py.File(target, "w") as file:
        data = file.create_group("data")
        data.attrs["total"] = demos.n_steps
        data.attrs["env_args"] = json.dumps(demos.recorded_in or UNKNOWN)
        data.attrs["observation_layout"] = json.dumps(demos.observation_layout.to_json())
        data.attrs["action_layout"] = json.dumps(demos.action_layout.to_json())
        if demos.rate is not None:
            data.attrs["rate"] = demos.rate
        for index, episode in enumerate(demos):
            demo = data.create_group(f"demo_{index}")
            demo.attrs["num_samples"] = len(episode)
            demo.create_dataset("obs/observation", data=episode.observations)
            demo.create_dataset("actions", data=episode.actions)
