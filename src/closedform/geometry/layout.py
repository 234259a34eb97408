"""Layout: the meaning of each entry of an observation or action, and the body it belongs to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from reprlib import repr as brief
from typing import TYPE_CHECKING, Any, Literal, get_args

from closedform.errors import ConfigError
from closedform.geometry.body_symmetry import BodySymmetry

if TYPE_CHECKING:
    from closedform.demos.demos import Demos
    from closedform.demos.inference.inferred import InferredLayouts

Kind = Literal[
    "position",
    "vector",
    "angle",
    "quaternion",
    "quaternion_wxyz",
    "rotation6d",
    "rotation6d_rows",
    "axis_angle",
    "binary",
    "other",
    "ignored",
]

_SIZES: dict[str, tuple[int, ...]] = {
    "position": (2, 3),
    "vector": (2, 3),
    "angle": (1,),
    "quaternion": (4,),
    "quaternion_wxyz": (4,),
    "rotation6d": (6,),
    "rotation6d_rows": (6,),
    "axis_angle": (3,),
}
_LARGEST = 100_000_000  # numbers in an entry
SPATIAL_ROTATIONS = ("quaternion", "quaternion_wxyz", "rotation6d", "rotation6d_rows", "axis_angle")
ROTATIONS = ("angle", *SPATIAL_ROTATIONS)


_inference: list[Callable[[Demos], InferredLayouts]] = []


def register_inference(infer: Callable[[Demos], InferredLayouts]) -> Callable[[Demos], InferredLayouts]:
    """Sets the function behind `Layout.infer`, which is defined above this module, since it needs demonstrations."""
    _inference.append(infer)
    return infer


@dataclass(frozen=True)
class Entry:
    """A run of numbers that belong together.

    Attributes:
        kind: `position` (a point, 2 or 3 numbers), `vector` (a displacement or velocity: it turns with a frame but does
            not move with it), `angle` (radians; in space, about the z axis), `quaternion` (x, y, z, w),
            `quaternion_wxyz` (w, x, y, z), `rotation6d` (the first two columns of the rotation matrix),
            `rotation6d_rows` (its first two rows, as pytorch3d and Diffusion Policy write it), `axis_angle` (the axis
            times the angle in radians), `binary` (each number takes one of two values), `other`, `ignored` (of
            observations: not used at all, and may hold any finite numbers, such as the previous frame of
            stacked frames).
        size: how many numbers.
        body: the body it describes, such as `"hand"`; None if it describes none.
        symmetry: of a rotation, how its body can be turned or mirrored and look the same, in the body's own axes:
            `mirror_x` (its x axis flipped), `turn4_z` (turned about its z axis by quarters), `turn_z` (by any angle),
            or several, as in `turn4_z+mirror_x`; of an angle, also `turn4` and `turn`. Of the position of a body
            without rotation, `mirror_x`, in the axes of the world; of `other` numbers, `mirror`: they are the same in a
            mirrored scene. None if it looks different in any other pose. See `Layout`.
        inferred: whether the kind was found in the data, which may be wrong: numbers that do not fit are then not
            refused, as those of a declared kind are. Entries are equal either way.
    """

    kind: Kind
    size: int = 1
    body: str | None = None
    symmetry: str | None = None
    inferred: bool = field(default=False, compare=False)

    def __post_init__(self):
        if not isinstance(self.inferred, bool):
            raise ConfigError(f"a layout entry is inferred or not, found {brief(self.inferred)}")
        if not isinstance(self.size, int) or isinstance(self.size, bool):
            raise ConfigError(f"a layout entry's size is a whole number, found {brief(self.size)}")
        if abs(self.size) > _LARGEST:
            raise ConfigError(f"a layout entry has at most {_LARGEST} numbers, found more")
        if not (self.body is None or isinstance(self.body, str)):
            raise ConfigError(f"a layout entry's body is a name or None, found {brief(self.body)}")
        if self.kind not in get_args(Kind):
            raise ConfigError(
                f"layout entry of unknown kind {brief(self.kind)}: expected one of {', '.join(get_args(Kind))}"
            )
        sizes = _SIZES.get(self.kind)
        if sizes is not None and self.size not in sizes:
            expected = " or ".join(map(str, sizes))
            raise ConfigError(f"a layout entry of kind {self.kind!r} has {expected} numbers, found size {self.size}")
        if self.size < 1:
            raise ConfigError(f"a layout entry has at least one number, found size {self.size}")
        if self.body == "world" or (self.body is not None and (not self.body or "." in self.body)):
            raise ConfigError(f"a body's name must not be empty, 'world', or contain '.'; found {brief(self.body)}")
        if self.symmetry is not None:
            self._check_symmetry()

    def _check_symmetry(self) -> None:
        if not isinstance(self.symmetry, str):
            raise ConfigError(f"a layout entry's symmetry is a text or None, found {brief(self.symmetry)}")
        if self.kind == "other" and self.symmetry == "mirror":
            return
        if self.kind not in ("position", *ROTATIONS) or self.body is None:
            raise ConfigError(
                "symmetry: expected on the rotation of a body, on the position of one without, or 'mirror' on numbers "
                f"of kind 'other', found {brief(self.symmetry)} on kind {self.kind!r}"
            )
        found = BodySymmetry.parse(self.symmetry, planar=self.kind == "angle" or self.size == 2)
        if self.kind == "position" and (len(found.rotations) > 1 or found.axis >= 0):
            raise ConfigError(
                f"symmetry: expected mirror_x, mirror_y or mirror_z on a position, found {brief(self.symmetry)}; "
                "turns are declared on a rotation"
            )

    @property
    def body_symmetry(self) -> BodySymmetry:
        """What `symmetry` says, of positions and rotations."""
        if self.symmetry is None or self.kind == "other":
            return BodySymmetry.none()
        return BodySymmetry.parse(self.symmetry, planar=self.kind == "angle" or self.size == 2)


@dataclass(frozen=True)
class Layout:
    """The entries of an observation or an action, in order.

    Push-T, for instance, observes a hand and a block and commands the hand's target:

        observations = Layout.of(("hand", "position", 2), ("block", "position", 2), ("block", "angle"))
        actions = Layout.of(("hand", "position", 2))

    The kinds of entries, with how many numbers they have; `Entry` says more:

    - `position` (2 or 3): a point; in an action, an absolute target
    - `vector` (2 or 3): a displacement or velocity
    - `angle` (1): radians
    - `quaternion` (4): x, y, z, w; `quaternion_wxyz` (4): w first
    - `rotation6d` (6): two columns of a rotation matrix; `rotation6d_rows` (6): two rows
    - `axis_angle` (3): the axis times the angle in radians
    - `binary` (any): each number takes one of two values
    - `other` (any): anything else
    - `ignored` (any): not used at all; observations only

    An entry may say that its body looks the same when it is turned or mirrored:

        observations = Layout.of(("hand", "position", 2), ("block", "position", 2), ("block", "angle", 1, "mirror_x"))

    Demonstrations then count in all these poses. A mirrored demonstration is one of the whole scene, mirrored where
    the body ends. So what else matters in the scene has to look the same too, such as walls and the robot's reach, and
    every other rotation and `other` number, in observations and actions, has to be declared the same when mirrored, or
    the policy is refused. Bodies without rotation are taken as points, `vector` entries as displacements or velocities
    (an angular velocity is neither), and `binary` numbers do not change. A hand with a commanded rotation has its
    symmetry in both layouts.
    """

    entries: tuple[Entry, ...]

    def __post_init__(self):
        if not self.entries or not all(isinstance(entry, Entry) for entry in self.entries):
            raise ConfigError(f"expected a layout of at least one Entry, found {brief(self.entries)}; see Layout.of")
        if all(entry.kind == "ignored" for entry in self.entries):
            raise ConfigError("expected a layout with an entry that is not ignored, found none")
        of_body: dict[str, list[Entry]] = {}
        for entry in self.entries:
            if entry.body is not None:
                of_body.setdefault(entry.body, []).append(entry)
        for body, entries in of_body.items():
            positions = [entry for entry in entries if entry.kind == "position"]
            rotations = [entry.kind for entry in entries if entry.kind in ROTATIONS]
            if len(positions) > 1 or len(rotations) > 1:
                raise ConfigError(f"body {body!r} has more than one position or more than one rotation in a layout")
            if positions and rotations and positions[0].size == 2 and rotations[0] != "angle":
                raise ConfigError(
                    f"body {body!r} has a position of 2 numbers and a rotation of kind {rotations[0]!r}: "
                    "a planar position needs an angle"
                )
            if positions and rotations and positions[0].symmetry is not None:
                raise ConfigError(f"symmetry: expected on the rotation of body {body!r}, found on its position")

    @classmethod
    def of(
        cls, *entries: tuple[str | None, Kind] | tuple[str | None, Kind, int] | tuple[str | None, Kind, int, str]
    ) -> Layout:
        """Builds a layout from `(body, kind)`, `(body, kind, size)` or `(body, kind, size, symmetry)`.

        A kind of fixed size needs no size.
        """
        built = []
        for entry in entries:
            if not isinstance(entry, tuple | list) or len(entry) not in (2, 3, 4) or not isinstance(entry[1], str):
                raise ConfigError(
                    "expected a layout entry (body, kind), (body, kind, size) or (body, kind, size, symmetry), found "
                    f"{brief(entry)}"
                )
            size = entry[2] if len(entry) > 2 else _SIZES.get(entry[1], (1,))[0]
            built.append(Entry(entry[1], size, entry[0], entry[3] if len(entry) == 4 else None))
        return cls(tuple(built))

    @classmethod
    def parse(cls, text: str) -> Layout:
        """Reads a layout written as `hand position 2, block position 2, block angle, - other 3`; `-` means no body.

        Numbers that must not count, such as the second half of two stacked frames, are `- ignored 5`. A symmetry comes
        last: `block angle 1 mirror_x`.
        """
        entries: list[Any] = []
        for part in text.split(","):
            words = part.split()
            if len(words) not in (2, 3, 4) or (len(words) > 2 and not re.fullmatch("[0-9]{1,9}", words[2])):
                raise ConfigError(
                    "expected a layout entry 'body kind', 'body kind size' or 'body kind size symmetry', found "
                    f"{part.strip()[:100]!r}"
                )
            body = None if words[0] == "-" else words[0]
            entries.append((body, words[1], *map(int, words[2:3]), *words[3:]))
        return cls.of(*entries)

    @classmethod
    def plain(cls, width: int) -> Layout:
        """A layout of `width` numbers of unknown meaning."""
        return cls((Entry("other", width),))

    @classmethod
    def infer(cls, demos: Demos) -> InferredLayouts:
        """Infers the layouts of demonstrations from their numbers, with the confidence and evidence for each entry."""
        return _inference[-1](demos)

    @cached_property
    def width(self) -> int:
        """The number of numbers in one observation or action."""
        return sum(entry.size for entry in self.entries)

    @cached_property
    def has_unit_vectors(self) -> bool:
        """Whether it has entries of unit length: quaternions or rotation-6D."""
        return any(entry.kind.startswith(("quaternion", "rotation6d")) for entry in self.entries)

    @property
    def spatial(self) -> bool:
        """Whether any entry is three-dimensional."""
        return any(
            entry.kind in SPATIAL_ROTATIONS or (entry.kind in ("position", "vector") and entry.size == 3)
            for entry in self.entries
        )

    @property
    def bodies(self) -> tuple[str, ...]:
        """The bodies named, in order of appearance, except those of ignored entries."""
        named = (entry.body for entry in self.entries if entry.kind != "ignored")
        return tuple(dict.fromkeys(body for body in named if body is not None))

    @cached_property
    def used_columns(self) -> tuple[int, ...]:
        """The numbers that are not ignored."""
        return tuple(i for entry, c in self.slices() if entry.kind != "ignored" for i in range(c.start, c.stop))

    @property
    def ignores(self) -> bool:
        """Whether some numbers are ignored."""
        return any(entry.kind == "ignored" for entry in self.entries)

    @cached_property
    def asymmetric(self) -> Layout:
        """The same layout with no symmetry declared."""
        return Layout(tuple(replace(entry, symmetry=None) for entry in self.entries))

    def check_commands(self) -> None:
        """Refuses to be the layout of actions, all of whose numbers are commanded, if some are ignored."""
        for index, entry in enumerate(self.entries):
            if entry.kind == "ignored":
                raise ConfigError(
                    f"action_layout: expected entries that are commanded, found entry {index} ignored; "
                    "only observations can have ignored entries"
                )
            if entry.body_symmetry.axis >= 0:
                raise ConfigError(
                    f"action_layout: expected turns in steps, such as turn2_z, found {entry.symmetry!r} at entry "
                    f"{index}; a rotation that is commanded cannot be any"
                )

    def slices(self) -> Iterator[tuple[Entry, slice]]:
        """Yields each entry with its slice of the numbers."""
        start = 0
        for entry in self.entries:
            yield entry, slice(start, start + entry.size)
            start += entry.size

    def __str__(self) -> str:
        """The layout as `parse` reads it."""
        entries = ([entry.body or "-", entry.kind, str(entry.size), entry.symmetry] for entry in self.entries)
        return ", ".join(" ".join(filter(None, words)) for words in entries)

    def describe(self, index: int) -> str:
        """Describes the number at `index` for a message, such as `entry 4 (block angle)`."""
        for entry, columns in self.slices():
            if columns.start <= index < columns.stop:
                if entry.kind == "other" and entry.body is None:
                    return f"entry {index}"
                return f"entry {index} ({entry.body + ' ' if entry.body else ''}{entry.kind})"
        raise IndexError(index)

    def to_json(self) -> list[dict[str, Any]]:
        """The layout as plain lists and dictionaries."""
        return [
            {key: value for key, value in asdict(entry).items() if key not in ("symmetry", "inferred") or value}
            for entry in self.entries
        ]

    @classmethod
    def from_json(cls, entries: list[dict[str, Any]]) -> Layout:
        """The inverse of `to_json`; anything else is refused."""
        if not isinstance(entries, list | tuple):
            raise ConfigError(f"expected a list of layout entries, found {type(entries).__name__}")
        try:
            return cls(tuple(Entry(**entry) for entry in entries))
        except TypeError as error:
            raise ConfigError(f"expected layout entries with kind, size, body and symmetry, found {error}") from error
