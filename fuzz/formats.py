"""Damaged and hostile demonstrations: they load as numbers that can be used, or are refused, and nothing runs."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from closedform import Demos, load_demos, save_demos
from fuzz import changes
from fuzz.harness import WrongResultError
from fuzz.worlds import make_demos

VERIFIED = {"folder"}  # formats whose reader promises to notice any change of a number, whatever `verified` says
WORLD = {
    "observations": "hand position 2, block position 2, block angle",
    "actions": "hand position 2",
    "seed": 1,
    "n_episodes": 2,
    "n_steps": 5,
    "scale": 1.0,
    "repeated": False,
    "still": False,
}
ZIPPED = ("zarr2", "zarr3", "npz")  # archives: what is inside is changed, or the archive itself
WRITTEN = {"folder": "folder", "zarr2": "zarr", "robomimic": "robomimic", "lerobot": "lerobot"}
DTYPES = ("|O", "<M8[s]", "<f8", "<U4", "<c16", "|V8", ">f4")
PARQUET = ("nan", "null", "text", "one", "negative", "lists", "huge")


class Formats:
    """A small dataset in every format, changed."""

    def __init__(self, folder: Path) -> None:
        """Writes the originals, with the package's writers and by hand."""
        self._folder, self._demos = folder, make_demos(WORLD)
        for name, to in WRITTEN.items():
            save_demos(self._demos, folder / name, to)
        _write_by_hand(self._demos, folder)
        self._names = sorted(path.name for path in folder.iterdir())
        self._episodes = {_bytes_of(episode) for episode in self._demos}
        for name in self._names:
            self.check({"format": name, "changes": [], "zip": name == "npz"}, folder / "warm_up")
        shutil.rmtree(folder / "warm_up")

    def draw(self, rng: np.random.Generator) -> dict[str, Any]:
        """Changes of bytes, JSON and structure, and of what only some formats have."""
        name = str(rng.choice(self._names))
        original = self._folder / name
        case: dict[str, Any] = {"format": name, "changes": changes.draw_changes(rng, original)}
        if name in ZIPPED:
            case["zip"] = name == "npz" or bool(rng.random() < 0.4)
            if case["zip"] and rng.random() < 0.3:
                size = int(rng.choice([100, 1000, 3000]))
                case["then"] = [
                    {"do": "flip", "file": "", "at": int(rng.integers(size)), "xor": int(rng.integers(1, 256))}
                ]
        if rng.random() < 0.3:
            special = _draw_special(rng, name, original)
            case["changes"] = [special] if special else case["changes"]
            case["refused"] = special.get("op") in ("external_link", "external_storage", "unwritten")
        return case

    def check(self, case: dict[str, Any], folder: Path) -> None:
        """Loads a changed copy."""
        original, path, canary = self._folder / case["format"], folder / case["format"], folder / "canary"
        folder.mkdir(exist_ok=True)
        (shutil.copytree if original.is_dir() else shutil.copy)(original, path)
        for change in case["changes"]:
            if change["do"] in SPECIAL:
                SPECIAL[change["do"]](path / change["file"] if change["file"] else path, canary, change)
            else:
                changes.apply(path, [change])
        if case.get("zip"):
            path = _zipped(path, path.with_name(case.get("name", f"{path.name}.zip")))
        changes.apply(path, case.get("then", []))
        try:
            demos = load_demos(path)
        finally:
            if canary.exists():
                raise WrongResultError("code ran from data")
        if case.get("refused"):
            raise WrongResultError("loaded, and should have been refused")
        for array in (demos.all_observations(), demos.all_actions()):
            if not np.isfinite(array).all():
                raise WrongResultError("numbers that are not finite")
        if demos.rate is not None and not (isinstance(demos.rate, int | float) and 0 < demos.rate < np.inf):
            raise WrongResultError(f"a rate of {demos.rate!r}")
        promised = case["format"] in VERIFIED or getattr(demos, "verified", 0) == len(demos)
        if promised and not {_bytes_of(episode) for episode in demos} <= self._episodes:
            raise WrongResultError("other numbers than were saved")


def _bytes_of(episode: Any) -> bytes:
    return episode.observations.astype("<f8").tobytes() + episode.actions.astype("<f8").tobytes()


def _write_by_hand(demos: Demos, folder: Path) -> None:
    """The formats that the package only reads."""
    import h5py
    import zarr

    observations, actions = demos.all_observations(), demos.all_actions()
    ends, episode = np.cumsum([len(e) for e in demos]), np.repeat(np.arange(len(demos)), [len(e) for e in demos])
    group = zarr.create_group(str(folder / "zarr3"), zarr_format=3)
    for name, array in (("data/state", observations), ("data/action", actions), ("meta/episode_ends", ends)):
        group.create_array(name, data=array, chunks=array.shape)
    with h5py.File(folder / "minari", "w") as file:
        for index, one in enumerate(demos):
            file[f"episode_{index}/observations"] = np.append(one.observations, one.observations[-1:], 0)
            file[f"episode_{index}/actions"] = one.actions
    (folder / "npz").mkdir()
    for name, array in (("observations", observations), ("actions", actions), ("episode_ends", ends)):
        np.save(folder / "npz" / f"{name}.npy", array)
    names = ["episode", *(f"obs{i}" for i in range(5)), "act0", "act1"]
    table = np.column_stack([episode, observations, actions])
    np.save(folder / "columns.npy", np.array([tuple(row) for row in table], [(name, "<f8") for name in names]))
    rows = [",".join(names), *(",".join(map(repr, row)) for row in table.tolist())]
    (folder / "table.csv").write_text("\n".join(rows) + "\n")


def _zipped(folder: Path, path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                archive.write(file, file.relative_to(folder).as_posix())
    return path


def _draw_special(rng: np.random.Generator, name: str, original: Path) -> dict[str, Any]:
    """What only this format can be made to do."""
    if name in ("robomimic", "minari"):
        import h5py

        with h5py.File(original) as file:
            found: list[str] = []
            file.visit(found.append)
            inside = str(rng.choice([path for path in found if isinstance(file[path], h5py.Dataset)]))
            attributes = file["data"].attrs.items() if "data" in file else []
            texts = {k: changes.as_json(v) for k, v in attributes if isinstance(v, str)}
            if texts and rng.random() < 0.4:
                key = str(rng.choice(sorted(texts)))
                change = changes.draw_json_change(rng, texts[key])
                return {**change, "do": "hdf5", "file": "", "op": "attribute", "name": key}
        op = str(rng.choice(["external_link", "external_storage", "unwritten", "huge", "text", "loop", "delete"]))
        return {"do": "hdf5", "file": "", "op": op, "path": inside}
    if name in ("zarr2", "zarr3"):
        array, where = (
            rng.choice(["data/state", "data/action", "meta/episode_ends"]),
            rng.choice(["filter", "compressor"]),
        )
        return {"do": "pickle", "file": str(array), "where": str(where), "dtype": str(rng.choice(DTYPES))}
    if name == "npz":
        shape = [[10**9, 5], [-1, 5], [10, 2**62], [], [0, 5]][int(rng.integers(5))]
        return {"do": "npy", "file": "observations.npy", "shape": shape, "dtype": str(rng.choice(DTYPES))}
    if name == "lerobot":
        column = str(rng.choice(["episode_index", "observation.state", "action", "task_index"]))
        file = "data/chunk-000/file-000.parquet"
        return {"do": "parquet", "file": file, "column": column, "values": str(rng.choice(PARQUET))}
    if name == "table.csv":
        text = str(rng.choice(["nan", "inf", "1e999", "²", "", "1e400", "9" * 5000, '"', "0x1", "1_0", "\x00"]))
        return {"do": "cell", "file": "", "row": int(rng.integers(8)), "column": int(rng.integers(8)), "text": text}
    return {}


def _hdf5(path: Path, canary: Path, change: dict[str, Any]) -> None:
    import h5py

    secret = path.with_name("secret")
    with h5py.File(path, "a") as file:
        if change["op"] == "attribute":
            text = str(file["data"].attrs[change["name"]])
            if changes.as_json(text) is not None:
                text = changes.set_json(text, change["at"], change.get("value"), change.get("raw"))
            file["data"].attrs[change["name"]] = text.encode("utf-8", "surrogatepass")[:60_000]
            return
        inside = change["path"]
        dataset = file[inside]
        assert isinstance(dataset, h5py.Dataset)
        shape = dataset.shape
        del file[inside]
        match change["op"]:
            case "external_link":
                with h5py.File(secret, "w") as other:
                    other["x"] = np.ones(shape)
                file[inside] = h5py.ExternalLink(str(secret), "/x")
            case "external_storage":
                secret.write_bytes(np.ones(shape).tobytes())
                file.create_dataset(inside, shape, "<f8", external=[(str(secret), 0, h5py.h5f.UNLIMITED)])
            case "unwritten":
                file.create_dataset(inside, shape, "<f8", chunks=(1, *shape[1:]))
            case "huge":
                file.create_dataset(inside, (10**9, *shape[1:]), "<f8", chunks=(1000, *shape[1:]))
            case "text":
                file[inside] = ["text"] * shape[0]
            case "loop":
                file[inside] = h5py.SoftLink("/data" if "data" in file else "/")
            case _:
                pass


def _pickle(path: Path, canary: Path, change: dict[str, Any]) -> None:
    """Has an array decoded by numcodecs' pickle codec, from a chunk that makes a folder when it is."""
    program = f"cos\nmkdir\n(S'{canary}'\ntR.".encode()
    old, new = path / ".zarray", path / "zarr.json"
    if old.exists():
        facts = json.loads(old.read_text())
        codec: dict[str, Any] = {"id": "pickle", "protocol": 0}
        facts |= {"filters": [codec]} if change["where"] == "filter" else {"compressor": codec}
        facts["compressor"] = facts["compressor"] if change["where"] == "compressor" else None
        old.write_text(json.dumps({**facts, "dtype": change["dtype"], "fill_value": None}))
    else:
        facts = json.loads(new.read_text())
        codec = {"name": "numcodecs.pickle", "configuration": {"protocol": 0}}
        facts["codecs"] = [codec] if change["where"] == "filter" else [*facts["codecs"], codec]
        new.write_text(json.dumps(facts))
    for chunk in path.rglob("*"):
        if chunk.is_file() and chunk not in (old, new, path / ".zattrs"):
            chunk.write_bytes(program)


def _npy(path: Path, canary: Path, change: dict[str, Any]) -> None:
    """Writes an array that says it is larger, or something else, than what follows."""
    shape = "(" + "".join(f"{n}, " for n in change["shape"]) + ")"
    header = f"{{'descr': '{change['dtype']}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(400))


def _parquet(path: Path, canary: Path, change: dict[str, Any]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    table = parquet.read_table(path)
    n = len(table)
    values: dict[str, Any] = {
        "nan": [float("nan")] * n,
        "null": [None] * n,
        "text": ["text"] * n,
        "one": [1] * n,
        "negative": list(range(0, -n, -1)),
        "lists": [[[1.0], [2.0]]] * n,
        "huge": [1e300] * n,
    }
    index = table.column_names.index(change["column"])
    parquet.write_table(table.set_column(index, change["column"], pa.array(values[change["values"]])), path)


def _cell(path: Path, canary: Path, change: dict[str, Any]) -> None:
    rows = [row.split(",") for row in path.read_text().splitlines()]
    rows[change["row"]][change["column"]] = change["text"]
    path.write_text("\n".join(map(",".join, rows)) + "\n")


SPECIAL = {"hdf5": _hdf5, "pickle": _pickle, "npy": _npy, "parquet": _parquet, "cell": _cell}
