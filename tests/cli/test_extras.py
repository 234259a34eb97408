"""Missing extras: each command says in one line what to install, before it does anything."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from closedform import save_demos
from closedform.errors import MissingExtraError
from closedform.evaluation.study import Study
from tests.evaluation.toy import reach_demos

ROOT = Path(__file__).parents[2]
TOY = "tests.evaluation.toy:Reach"
LIFT = str(ROOT / "tests" / "data" / "robomimic" / "lift.hdf5")
SCRIPT = """
import contextlib, io, json, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

absent = set(sys.argv[1].split(","))
sys.meta_path.insert(0, Absent())
from closedform.cli import main

rows = []
for command in json.loads(sys.argv[2]):
    with contextlib.redirect_stderr(io.StringIO()) as error:
        try:
            main(command)
            status = 0
        except SystemExit as stop:
            status = stop.code
    rows.append([status, error.getvalue()])
print(json.dumps(rows))
"""
ABSENT = {
    "torch,matplotlib,av,h5py,zarr,pyarrow,faiss,gym_pusht": {
        "neural": [
            ["edit", "guide", "pusht-dit", "--demos", "demos", "--everything", "demos", "-o", "new"],
            ["train", "demos", "-o", "new"],
            ["info", "pusht-dit"],
            ["eval", "--env", TOY, "--demos", "demos", "--device", "cuda"],
        ],
        "plots": [
            ["report", "results.json", "-o", "new", "--env", TOY],
            ["explain", "--demos", "demos", "--observation", "0", "0", "0", "0", "-o", "new"],
            ["inspect", "demos", "--output", "new"],
            ["eval", "--env", TOY, "--demos", "demos", "--episodes", "1", "--video", "1", "--json", "new"],
        ],
        "data": [
            ["convert", "demos", "new.hdf5"],
            ["convert", "demos", "new.zarr"],
            ["convert", "demos", "new", "--to", "lerobot"],
            ["convert", LIFT, "new"],
            ["generate", "--task", "lift", "-o", "new.hdf5"],
        ],
        "ann": [["index", "demos", "-o", "new"]],
        "pusht": [["eval", "--demos", "pusht-embedded"]],
    },
    "torch": {
        "neural": [
            ["eval", "--env", TOY, "--policy", "pusht-dit"],
            ["explain", "--policy", "pusht-dit", "--observation", "0", "-o", "new"],
            ["serve", "pusht-dit"],
            ["edit", "augment", "pusht-dit", "--demos", "demos", "-o", "new"],
        ]
    },
    "rtde_control,rtde_receive": {"ur": [["run", "--host", "127.17.17.97", "--demos", "demos"]]},
    "uvicorn": {"studio": [["studio", "--no-open"], ["studio", "--no-open", "--record", "new"]]},
    "websockets": {"serve": [["serve", "demos"], ["monitor", "--upstream", "ws://127.0.0.1:9", "--demos", "demos"]]},
    "zmq": {"serve": [["serve", "demos", "--dialect", "gr00t"]]},
    "msgpack": {"serve": [["serve", "demos"]]},
    "lancedb": {"fleet": [["fleet", "init", "new"], ["fleet", "status", "s3://bucket/fleet"]]},
    "mujoco": {"twin": [["run", "--demos", "demos"]]},
    "robosuite": {
        "robosuite": [
            ["generate", "--task", "lift", "-o", "new.hdf5", "--workers", "2"],
            ["eval", "--env", "lift", "--demos", LIFT, "--workers", "2"],
        ]
    },
}


@pytest.mark.parametrize("absent", ABSENT)
def test_what_to_install_is_one_line(tmp_path, absent):
    demos = reach_demos(6)
    save_demos(demos, tmp_path / "demos")
    Study.make(TOY, str(tmp_path / "demos"), "default", n_episodes=1).run(tmp_path / "results.json", 1)
    before = sorted(tmp_path.iterdir())
    pairs = [(extra, command) for extra, commands in ABSENT[absent].items() for command in commands]
    arguments = [absent, json.dumps([command for _, command in pairs])]
    script = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{SCRIPT}"
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for (extra, command), (status, said) in zip(pairs, json.loads(done.stdout.splitlines()[-1]), strict=True):
        assert status == 2 and said.count("\n") == 1, (command, said)
        assert f"pip install 'closedform[{extra}]'" in said, (command, said)
    assert sorted(tmp_path.iterdir()) == before


def test_an_installation_from_a_clone_is_told_where_the_clone_is(tmp_path, monkeypatch):
    (tmp_path / "src").mkdir()
    (tmp_path / "pyproject.toml").touch()
    origin = {"url": tmp_path.as_uri(), "dir_info": {}}
    installed = SimpleNamespace(read_text=lambda name: json.dumps(origin) if name == "direct_url.json" else None)
    monkeypatch.setattr("importlib.metadata.distribution", lambda name: installed)
    monkeypatch.setattr("closedform.errors.__file__", str(tmp_path / "env" / "lib" / "closedform" / "errors.py"))
    assert f"or in your clone {tmp_path}: pip install '.[plots]'" in str(MissingExtraError("av", "plots", "a film"))
    origin["url"] = "https://example.org/closedform.whl"
    assert str(MissingExtraError("av", "plots", "a film")).endswith("pip install 'closedform[plots]'")
