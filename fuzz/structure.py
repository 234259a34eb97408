"""Format-specific changes: attacks on readers of HDF5, zarr, npz, parquet and CSV."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fuzz import changes

DTYPES = ("|O", "<M8[s]", "<f8", "<U4", "<c16", "|V8", ">f4")
PARQUET = ("nan", "null", "text", "one", "negative", "lists", "huge")


def draw_change(rng: np.random.Generator, name: str, original: Path) -> dict[str, Any]:
    """A change specific to this format."""
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
        if texts and rng.random() < 0.2:
            return {"do": "heap", "file": "", "object": int(rng.integers(8)), "length": int(rng.integers(1, 17))}
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


def _heap(path: Path, canary: Path, change: dict[str, Any]) -> None:
    """Zeros the beginning of an object in HDF5's string heap."""
    content = bytearray(path.read_bytes())
    at = content.find(b"GCOL") + 16
    for _ in range(change["object"]):
        at += 16 + -(-int.from_bytes(content[at + 8 : at + 16], "little") // 8) * 8
    content[at : at + change["length"]] = bytes(change["length"])
    path.write_bytes(content)


def _pickle(path: Path, canary: Path, change: dict[str, Any]) -> None:
    """Declares numcodecs' pickle codec for an array, with a chunk that creates a folder when unpickled."""
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
    """Writes an array whose header does not match its data."""
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


DO: dict[str, Callable[[Path, Path, dict[str, Any]], None]] = {
    "hdf5": _hdf5,
    "pickle": _pickle,
    "npy": _npy,
    "parquet": _parquet,
    "cell": _cell,
    "heap": _heap,
}
