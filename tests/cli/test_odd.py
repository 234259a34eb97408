"""Odd command lines: each is one line on the error stream and exit status 2, and leaves nothing behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from closedform import ClosedFormPolicy, save_demos
from closedform.cli import main
from closedform.evaluation.study import Study
from tests.evaluation.toy import reach_demos

TOY = "tests.evaluation.toy:Reach"
HUGE = "9" * 5000
WHOLE = ["-1", "²", "1.5", "nan", "inf", "", "\udcff", str(2**64), HUGE]  # none is a number of anything
REAL = ["nan", "inf", "-inf", "1e400", "²", "", "\udcff", "-1", "1e308"]
FILES = ["/", "", "..", "folder", "folder/../..", "file/x", "/proc/x", "/dev/null/x", "x" * 300, "no\0where"]
DEVICES = ["nope", "", "cuda:", "cuda:²", "cuda5", "cuda:-1", "cuda:99999", "CPU", "mps", "\udcff"]
SETTINGS = ["", "=", "tau=", "tau=²", "tau=nan", f"n_neighbors={HUGE}", "\udcff=1"]
EVAL = ["eval", "--env", TOY, "--demos", "demos", "--episodes", "1"]
EXPLAIN = ["explain", "--env", TOY, "--demos", "demos"]
TRAIN = ["train", "demos", "-o", "trained", "--device", "cpu"]
GENERATE = ["generate", "--task", "lift", "-o", "made.hdf5"]

REFUSED: list[list[str]] = [
    *([*EVAL[:5], "--episodes", n] for n in [*WHOLE, "0", "100001"]),
    *([*EVAL, "--seed", n] for n in [*WHOLE, "4294967296"]),
    *([*EVAL, "--workers", n] for n in [*WHOLE, "0", "1025"]),
    *([*EVAL, "--video", n] for n in WHOLE[:-2]),
    *([*EVAL, "--json", path] for path in FILES),
    *([*EVAL, "--device", name] for name in DEVICES),
    *(["eval", "--env", name, "--demos", "demos"] for name in ["", ":", "a:", ":b", "os", "\udcff", "no.such:thing"]),
    *(["eval", "--env", TOY, "--policy", name] for name in ["~nouser", "/", "\udcff", "no\0where", "results.json"]),
    *(["eval", "--env", TOY, "--demos", "demos", "--policy", name] for name in ["results.json", "nested.json"]),
    *(
        [*EVAL, "--set", setting]
        for setting in ["", "=", "tau=", "tau=²", "n_neighbors=" + HUGE, "\udcff=1", "tau=nan"]
    ),
    *([*EXPLAIN, "--seed", n] for n in [*WHOLE, "4294967296"]),
    *([*EXPLAIN, "--step", n] for n in [*WHOLE, "1000000"]),
    *([*EXPLAIN, "--false-alarm-rate", x] for x in [*REAL, "0", "1"]),
    *([*EXPLAIN, "-o", path] for path in FILES),
    *(["explain", "--demos", "demos", "--observation", "0", "0", "0", x] for x in REAL[:7]),
    *(["convert", "demos", path] for path in ["/", "", "..", "folder", "file/x", "/proc/x", "x" * 300, "no\0where"]),
    *(["tune", "demos", "-o", path] for path in FILES),
    *(["report", "results.json", "-o", path] for path in FILES),
    *(["report", "results.json", "--env", name] for name in ["", "os:abort", "\udcff"]),
    *(["report", path] for path in ["/", "", "nested.json", "demos", "file", "\udcff", "no\0where", "x" * 300]),
    *(["compare", path, "results.json"] for path in ["/", "nested.json", "file", "\udcff", "/dev/full"]),
    *([*GENERATE, "--episodes", n] for n in [*WHOLE, "0", "100001"]),
    *([*GENERATE, "--seed", n] for n in WHOLE),
    *([*GENERATE, "--workers", n] for n in [*WHOLE, "0", "1025"]),
    *([*GENERATE[:3], "-o", path] for path in [*FILES, "file"]),
    *([*TRAIN, "--batch-size", n] for n in [*WHOLE, "0", "1000001"]),
    *([*TRAIN, "--steps", n] for n in [*WHOLE, "0"]),
    *([*TRAIN, "--seed", n] for n in WHOLE),
    *([*TRAIN, "--eval-episodes", n] for n in [*WHOLE, "0", "100001"]),
    *([*TRAIN, "--learning-rate", x] for x in REAL),
    *(["train", "demos", "-o", "trained", "--device", name] for name in DEVICES),
    *(
        ["info", path]
        for path in ["~nouser", "~nouser/x", "", "/", "file", "\udcff", "no\0where", "\x1b[2J\r\n", "x" * 300]
    ),
    *(["inspect", "demos", "--output", path] for path in ["file", "file/x", "/proc/x", "/dev/null", "no\0where"]),
    ["nothing"],
    [""],
    ["\udcff"],
    ["x" * 10_000],
    ["eval"] * 50,
    ["eval", "--\udcff"],
    ["compare"],
    ["report", "results.json", "results.json"],
]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with everything that a command could be asked about."""
    folder = tmp_path_factory.mktemp("odd")
    demos = reach_demos()
    save_demos(demos, folder / "demos")
    Study.of_policy(TOY, ClosedFormPolicy(demos), "default", str(folder / "demos"), n_episodes=2).run(
        folder / "results.json", 1
    )
    (folder / "nested.json").write_text("[" * 100_000)
    (folder / "file").write_text("something")
    (folder / "folder").mkdir()
    return folder


@pytest.mark.parametrize("command", REFUSED, ids=lambda command: ascii(" ".join(command))[:70])
def test_one_line_and_nothing_else(place, monkeypatch, capsys, command):
    monkeypatch.chdir(place)
    before = sorted(place.rglob("*"))
    with pytest.raises(SystemExit) as stop:
        main(command)
    said = capsys.readouterr()
    assert stop.value.code == 2
    assert said.err.startswith("closedform: ") and len(said.err) > 20 and said.err.endswith("\n")
    assert said.err[:-1].isprintable()  # one line, whatever it is about
    assert not said.out and sorted(place.rglob("*")) == before


def test_results_with_odd_fields_are_one_line(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    results = json.loads(Path("results.json").read_text())
    Path("odd.json").write_text(json.dumps({**results, "n_episodes": 10**400}))
    for command in (["compare", "odd.json", "results.json"], ["report", "odd.json"]):
        with pytest.raises(SystemExit) as stop:
            main(command)
        said = capsys.readouterr().err
        assert stop.value.code == 2 and said.count("\n") == 1
        assert "odd.json: expected n_episodes to be a whole number of at least 1, found a number beyond" in said
    Path("odd.json").unlink()


@pytest.mark.parametrize("columns", ["5", "1", "0", "-7", "1000000000", HUGE, "wide"])
def test_help_is_wrapped_to_what_can_be_read(monkeypatch, capsys, columns):
    monkeypatch.setenv("COLUMNS", columns)
    for command in (["--help"], ["eval", "--help"]):
        with pytest.raises(SystemExit) as stop:
            main(command)
        text = capsys.readouterr().out
        assert not stop.value.code and "usage" in text
        assert max(map(len, text.splitlines())) <= 400
    assert os.environ["COLUMNS"] == columns


def run(command, folder, **environment):
    """The exit statuses of a shell pipeline's commands, its output and its errors."""
    script = f"{command}; echo ${{PIPESTATUS[@]}} > status"
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, capture_output=True, check=False, env={**os.environ, **environment}
    )
    return (folder / "status").read_text().split(), done.stdout, done.stderr


CLOSEDFORM = f"'{sys.executable}' -m closedform"


@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell")
@pytest.mark.parametrize(
    ("command", "status", "error"),
    [
        ("data list | head -0", "141", b""),
        ("--help | head -0", "141", b""),
        ("--version | head -0", "141", b""),
        ("data list >&-", "2", b"closedform: cannot write the output: Bad file descriptor\n"),
        ("--version >&-", "2", b"closedform: cannot write the output: Bad file descriptor\n"),
        ("info nowhere 2>&-", "2", b""),
        ("info nowhere >&- 2>&- <&-", "2", b""),
    ],
)
def test_streams_that_are_closed_or_full(tmp_path, command, status, error):
    statuses, _, said = run(f"{CLOSEDFORM} {command}", tmp_path)
    assert statuses[0] == status and said == error


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])  # it fails when Python ends or at once
@pytest.mark.parametrize("command", ["data list", "--help", "--version"])
def test_full_output(tmp_path, command, unbuffered):
    statuses, _, said = run(f"{CLOSEDFORM} {command} > /dev/full", tmp_path, PYTHONUNBUFFERED=unbuffered)
    assert statuses == ["2"] and said.count(b"\n") == 1
    assert said.startswith(b"closedform: ") and said.endswith(b"No space left on device\n")


@pytest.mark.skipif(sys.platform != "linux", reason="needs file names that are no text")
@pytest.mark.parametrize("environment", [{}, {"PYTHONIOENCODING": "ascii"}])
def test_names_that_are_no_text(tmp_path, environment):
    save_demos(reach_demos(3), tmp_path / "demos")
    statuses, out, _ = run(f"{CLOSEDFORM} fit demos -o $'p\\xff'", tmp_path, **environment)
    assert statuses == ["0"] and out.endswith(b": p\xff\n") and (tmp_path / "p\udcff" / "config.json").exists()
    statuses, _, error = run(f"{CLOSEDFORM} info $'q\\xff'", tmp_path, **environment)
    assert statuses == ["2"] and error.count(b"\n") == 1 and b"q\\udcff: expected a saved policy" in error
