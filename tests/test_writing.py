"""Files that are replaced: whole or not at all, through links, and never a device."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from closedform import save_demos
from closedform.errors import SaveError
from closedform.evaluation.study import Study
from closedform.files import check_writable, replacing, write_file
from tests.evaluation.toy import reach_demos

TOY = "tests.evaluation.toy:Reach"
ROOT = Path(__file__).parents[1]


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "deep" / "file"
    write_file(path, "first")

    def interrupted():
        with replacing(path) as new:
            new.write_text("sec")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "first" and list(path.parent.iterdir()) == [path]
    write_file(path, b"second")
    assert path.read_bytes() == b"second" and list(path.parent.iterdir()) == [path]


def test_links_stay_and_odd_characters_are_written(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere" / "file")
    write_file(tmp_path / "link", "caf\u00e9 \udcff")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "elsewhere" / "file").read_text("utf-8") == "caf\u00e9 \\udcff"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_devices_are_written_to_and_not_replaced():
    null = Path("/dev/null")
    before = null.stat().st_ino
    write_file(null, "gone")
    assert null.is_char_device() and null.stat().st_ino == before
    with pytest.raises(SaveError, match=r"/dev/full: expected to write it, found No space left on device"):
        write_file(Path("/dev/full"), "too much")


@pytest.mark.parametrize("name", ["", "/", "..", "missing/../..", "file/x", "x" * 300, "a\0b"])
def test_what_cannot_be_written_is_said_at_once(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("something")
    for write in (check_writable, lambda path: write_file(path, "content")):
        with pytest.raises(SaveError, match="expected"):
            write(Path(name))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_asking_whether_a_file_can_be_written_leaves_nothing(tmp_path):
    check_writable(tmp_path / "a" / "b" / "file")
    assert not list(tmp_path.iterdir())


FULL = """
import contextlib, io, resource, sys
from pathlib import Path
import matplotlib.pyplot
from closedform.cli import main
from closedform.cli.policy import Tune
from importlib import import_module
from closedform import ClosedFormConfig

tune = import_module("closedform.analysis.tune")  # the package has the function of this name

def quick(demos, start, workers=None, progress=None):
    trial = tune.Trial(ClosedFormConfig.preset(), 1.0, 0.1)
    return tune.Tuning(trial, trial, [trial])

tune.tune, toy = quick, sys.argv[1]
for command in (
    ["tune", "demos", "-o", "old"],
    ["eval", "--env", toy, "--demos", "demos", "--episodes", "2", "--workers", "1", "--json", "new.json"],
    ["explain", "--demos", "demos", "--observation", "0", "0", "0", "0", "-o", "old"],
    ["report", "results.json", "-o", "old", "--env", toy],
    ["inspect", "demos", "--output", "."],
):
    before = {path: path.read_bytes() for path in Path().iterdir() if path.is_file()}
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, resource.RLIM_INFINITY))
    with contextlib.redirect_stderr(io.StringIO()) as error, contextlib.redirect_stdout(io.StringIO()):
        try:
            main(command)
            raise AssertionError(f"{command[0]}: there was room")
        except SystemExit as stop:
            assert stop.code == 2, command
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    said = error.getvalue()
    assert "found File too large; nothing was changed" in said.splitlines()[-1], said
    assert {path: path.read_bytes() for path in Path().iterdir() if path.is_file()} == before, command
    print(command[0])
"""


def test_a_full_disk_is_said_and_leaves_what_was_there(tmp_path):
    pytest.importorskip("resource")
    save_demos(reach_demos(4), tmp_path / "demos")
    Study.make(TOY, str(tmp_path / "demos"), "default", n_episodes=1).run(tmp_path / "results.json", 1)
    (tmp_path / "old").write_text("old")
    (tmp_path / "report.png").write_text("old")
    script = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{FULL}"
    environment = {**os.environ, "CLOSEDFORM_DISABLE_KERNELS": "1"}  # whose compiled code would not be cached
    done = subprocess.run(
        [sys.executable, "-c", script, TOY], cwd=tmp_path, capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["tune", "eval", "explain", "report", "inspect"]
