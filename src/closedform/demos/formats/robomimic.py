"""robomimic's HDF5 files: `data/demo_N/{obs/*, actions}`, `env_args` and `mask/*`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from closedform.demos.demos import Demos
from closedform.demos.formats.array_images import Hdf5Images
from closedform.demos.formats.checksums import KEY, Checksums
from closedform.demos.formats.common import (
    ReadOptions,
    flat,
    known_layout,
    known_rate,
    make_demos,
    pick,
    require,
    select,
    verify,
)
from closedform.demos.formats.hdf5 import is_file_with, json_attribute, member, names_in, numbers, open_hdf5
from closedform.demos.formats.sizes import Sizes
from closedform.demos.images import Images
from closedform.demos.robomimic_tasks import BY_ENV_NAME, HANDS
from closedform.errors import LoadError
from closedform.files import appearing
from closedform.geometry.layout import Entry, Layout
from closedform.geometry.so3 import (
    axis_angle_of,
    columns_of_quaternion,
    matrix_of_axis_angle,
    rotation_matrix,
    two_columns,
)

NAME = "robomimic"
_PURPOSE = "reading a robomimic file"
_DEMO = re.compile("demo_[0-9]+")
_UNKNOWN: dict[str, Any] = {"env_name": "unknown", "type": 1, "env_kwargs": {}}
_LOW_DIM_KEYS = ("object", "robot0_eef_pos", "robot0_eef_quat", "robot0_gripper_qpos")
_SECOND_ARM_KEYS = ("robot1_eef_pos", "robot1_eef_quat", "robot1_gripper_qpos")


def matches(path: Path) -> bool:
    """Whether a path is an HDF5 file with robomimic's group `data/demo_N`."""
    return is_file_with(path, lambda file: any(map(_DEMO.fullmatch, names_in(path, file, "data"))))


def read(path: Path, options: ReadOptions) -> Demos:
    """Reads the episodes; keys are those of the group `obs`."""
    with open_hdf5(path, _PURPOSE, "data/demo_N with obs and actions") as (file, sizes):
        return _read(path, file, sizes, options)


def _read(path: Path, file: Any, sizes: Sizes, options: ReadOptions) -> Demos:
    data = member(path, file, "data")
    everything = sorted((n for n in data if _DEMO.fullmatch(n)), key=lambda n: int(n[5:]))
    chosen = list(range(len(everything)))
    if options.mask is not None:
        mask = _mask(path, file, options.mask, sizes)
        chosen = [index for index in chosen if everything[index] in mask]
    chosen = [chosen[e] for e in select(path, options.episodes, len(chosen))]
    attributes = data.attrs
    environment = json_attribute(path, attributes, "env_args")
    environment = environment if isinstance(environment, dict) else {}
    stored = {
        name: known_layout(path, name, json_attribute(path, attributes, name))
        for name in ("observation_layout", "action_layout")
    }
    if is_absolute(environment) and options.actions != "recorded":
        known = stored["action_layout"]
        kind = "absolute_6d" if known and any(e.kind == "rotation6d" for e in known.entries) else "absolute"
        if kind != options.actions:
            raise LoadError(
                f"{path}: expected delta actions to make {options.actions}, found {kind}: start from the recording"
            )
        options = replace(options, actions="recorded")  # they already are
    form = "absolute" if is_absolute(environment) and options.actions == "recorded" else options.actions
    pairs, layouts, images = [], {}, dict[str, list[Images]]()
    names: tuple[str, ...] = ()
    for name in (everything[index] for index in chosen):
        demo = member(path, data, name)
        observed = _Arrays(path, name, member(path, demo, "obs"), sizes)
        keys = options.observation_keys or _default_keys(list(observed.group))
        if not keys:
            raise LoadError(f"{path}: {name}: expected observations, found none")
        parts = [flat(path, key, observed[key]) for key in keys]
        if len({len(part) for part in parts}) != 1:
            found = ", ".join(f"{key} {len(part)}" for key, part in zip(keys, parts, strict=True))
            raise LoadError(f"{path}: {name}: expected observations of equal length, found {found}")
        actions = flat(path, "actions", _Arrays(path, name, demo, sizes)[options.action_key or "actions"])
        if options.actions != "recorded":
            actions = _absolute(path, name, observed, actions, environment, options.actions)
        pairs.append((np.concatenate(parts, axis=1), actions))
        for camera in _cameras(observed.group, len(actions)):
            source = Hdf5Images(path, f"data/{name}/obs/{camera}")
            images.setdefault(camera, []).append(Images(source, 0, len(actions)))
        if not layouts:
            names = tuple(
                f"{key}[{i}]" if part.shape[1] > 1 else key
                for key, part in zip(keys, parts, strict=True)
                for i in range(part.shape[1])
            )
            layouts = {
                "observation_layout": stored["observation_layout"] or _layout(keys, parts, environment),
                "action_layout": stored["action_layout"] or _action_layout(actions.shape[1], form),
            }
    written = known_rate(path, attributes.get("rate"))
    arguments = environment.get("env_kwargs")
    frequency = arguments.get("control_freq") if isinstance(arguments, dict) else None
    checksums = _checksums(path, data, everything)
    if checksums is not None:
        checksums.check_description(path, stored, written, len(everything))
    verified = verify(path, chosen, pairs, checksums, options)
    unknown = environment.get("env_name") in (None, _UNKNOWN["env_name"])
    if options.actions != "recorded":
        controller_of(environment)["control_delta"] = False
    rate = written if frequency is None else known_rate(path, frequency)
    recorded_in = None if unknown else environment
    known = {**layouts, "rate": rate, "recorded_in": recorded_in}
    if options.observation_keys or (names and not names[0].startswith("observation[")):  # the key of our own files
        known["column_names"] = names, None
    images = {camera: some for camera, some in images.items() if len(some) == len(pairs)}
    return make_demos(path, pairs, options, verified=verified, images=images, **known)


def _cameras(group: Any, n_steps: int) -> list[str]:
    """The names of the images (n_steps, H, W, 3) in the group of an episode's observations."""
    shapes = {name: getattr(group.get(name), "shape", None) or () for name in group if name.endswith("image")}
    return [name for name, shape in shapes.items() if len(shape) == 4 and shape[0] == n_steps and shape[3] == 3]


def _mask(path: Path, file: Any, name: str, sizes: Sizes) -> set[str]:
    """The names of the episodes in a mask."""
    masks = names_in(path, file, "mask")
    dataset = member(path, file, f"mask/{pick(path, masks, name, (), 'mask')}")
    if not hasattr(dataset, "shape") or dataset.is_virtual or dataset.external or len(dataset.shape or ()) != 1:
        raise LoadError(f"{path}: expected mask/{name} to be a list of names in this file")
    sizes.add_bytes(f"mask/{name}", len(dataset) * max(dataset.dtype.itemsize, 64))
    return {text.decode() if isinstance(text, bytes) else str(text) for text in dataset[:]}


def _checksums(path: Path, data: Any, names: list[str]) -> Checksums | None:
    """The checksums that our writer stored with each episode; None if another program wrote the file."""
    description = data.attrs.get(KEY)
    found = [member(path, data, name).attrs.get(KEY) for name in names]
    if description is None and not any(checksum is not None for checksum in found):
        return None
    while found and found[-1] is None:  # episodes that another program added
        found.pop()
    return Checksums.from_json(path, {"crc32": found, "description": description})


@dataclass(frozen=True)
class _Arrays:
    """The arrays of a group, by name."""

    path: Path
    demo: str
    group: Any
    sizes: Sizes

    def __getitem__(self, key: str) -> np.ndarray:
        if self.group.get(key, getlink=True, default=None) is None:
            raise LoadError(f"{self.path}: {self.demo}: expected {key!r}, found {', '.join(sorted(self.group))}")
        return numbers(self.path, member(self.path, self.group, key), self.sizes)


def is_absolute(environment: Mapping[str, Any]) -> bool:
    """Whether actions are absolute targets of robosuite's OSC_POSE controller, as in Diffusion Policy's files."""
    controller = controller_of(environment)
    return controller.get("type") == "OSC_POSE" and controller.get("control_delta") is False


def controller_of(environment: Mapping[str, Any]) -> dict[str, Any]:
    """The controller in `env_args`, that of the first arm if there are several; {} if there is none."""
    arguments = environment.get("env_kwargs")
    found = arguments.get("controller_configs") if isinstance(arguments, Mapping) else None
    if isinstance(found, list) and found:
        found = found[0]
    return found if isinstance(found, dict) else {}


def _default_keys(names: list[str]) -> tuple[str, ...]:
    """Diffusion Policy's low-dimensional keys if the file has them, otherwise everything but images."""
    if "observation" in names:
        return ("observation",)
    keys = _LOW_DIM_KEYS + (_SECOND_ARM_KEYS if _SECOND_ARM_KEYS[0] in names else ())
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
    """The layout for one or two arms: position deltas turn with a frame, absolute positions also move with it."""
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
    path: Path, name: str, observed: _Arrays, actions: np.ndarray, environment: dict[str, Any], form: str
) -> np.ndarray:
    """The targets of robosuite's OSC_POSE controller for delta actions, from the observed pose.

    The controller adds the scaled delta to the current pose of its own frame, which is `robot0_eef_quat` rotated by -90
    degrees about the hand's z axis.
    """
    controller = controller_of(environment)
    if controller.get("type") != "OSC_POSE" or not controller.get("control_delta", False):
        raise LoadError(
            f"{path}: absolute actions are made from OSC_POSE deltas, found controller {controller.get('type')!r} with "
            f"control_delta {controller.get('control_delta')!r}"
        )
    if actions.shape[1] % 7:
        raise LoadError(f"{path}: {name}: expected 7 numbers per arm for OSC_POSE, found {actions.shape[1]}")
    scale = np.asarray(controller["output_max"]) / np.asarray(controller.get("input_max", 1.0))
    parts = []
    for arm in range(actions.shape[1] // 7):
        own = actions[:, 7 * arm : 7 * arm + 7]
        position, quaternion = observed[f"robot{arm}_eef_pos"], observed[f"robot{arm}_eef_quat"]
        delta = np.clip(own[:, :6], -1, 1) * scale
        quarter_turn = np.array([[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
        rotation = (
            matrix_of_axis_angle(delta[:, 3:]) @ rotation_matrix(columns_of_quaternion(quaternion)) @ quarter_turn
        )
        turned = axis_angle_of(rotation) if form == "absolute" else two_columns(rotation)
        parts += [position + delta[:, :3], turned, own[:, 6:]]
    return np.concatenate(parts, axis=1)


def write(demos: Demos, path: Path) -> None:
    """Writes observations under the single key `obs/observation`, with the layouts as attributes."""
    h5py = require("h5py", "writing a robomimic file")
    checksums = Checksums.of(demos, demos.rate)
    # In memory, because HDF5 ends the process when it cannot close a file on a full disk.
    with appearing(path, folder=False) as target, h5py.File(path.name, "w", driver="core", backing_store=False) as file:
        data = file.create_group("data")
        data.attrs["total"] = demos.n_steps
        data.attrs["env_args"] = json.dumps(demos.recorded_in or _UNKNOWN)
        data.attrs["observation_layout"] = json.dumps(demos.observation_layout.to_json())
        data.attrs["action_layout"] = json.dumps(demos.action_layout.to_json())
        data.attrs[KEY] = checksums.description
        if demos.rate is not None:
            data.attrs["rate"] = demos.rate
        for index, episode in enumerate(demos):
            demo = data.create_group(f"demo_{index}")
            demo.attrs["num_samples"] = len(episode)
            demo.attrs[KEY] = checksums.episodes[index]
            demo.create_dataset("obs/observation", data=episode.observations)
            demo.create_dataset("actions", data=episode.actions)
        file.flush()
        target.write_bytes(file.id.get_file_image())
