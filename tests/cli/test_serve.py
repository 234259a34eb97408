"""The command `serve`: what it serves, how it stops, and one line for every mistake."""

import signal
import subprocess
import sys

import numpy as np
import pytest

from closedform import ClosedFormPolicy, save_demos
from closedform.cli import main
from tests.conftest import planar_demos

pytest.importorskip("websockets", reason="needs the extra serve")
pytest.importorskip("msgpack", reason="needs the extra serve")
from closedform.serve import Client

DEMOS = planar_demos(np.random.default_rng(0))


@pytest.fixture
def sources(tmp_path):
    save_demos(DEMOS, tmp_path / "demos")
    ClosedFormPolicy(DEMOS).save(tmp_path / "policy")
    return tmp_path


@pytest.mark.parametrize(("source", "number"), [("demos", signal.SIGTERM), ("policy", signal.SIGINT)])
@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_demonstrations_and_saved_policies_are_served_until_a_signal(sources, source, number):
    command = [sys.executable, "-m", "closedform", "serve", source, "--port", "0", "--learn", "--token", "key"]
    with subprocess.Popen(
        command,
        cwd=sources,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            assert server.stdout is not None
            said = server.stdout.readline()
            assert said.startswith("ClosedFormPolicy(6 episodes, 180 windows) at 127.0.0.1 port "), said
            port = said.split("port ")[1].split(";")[0]
            with Client(f"ws://127.0.0.1:{port}", token="key") as client:
                assert client.infer(DEMOS.episodes[0].observations[0])["actions"].shape == (12, 2)
                assert client.add(DEMOS.episodes[0].observations, DEMOS.episodes[0].actions) == 6
                server.send_signal(number)
                out, error = server.communicate(timeout=120)
        finally:
            server.kill()
    assert (server.returncode, out) == (0, "stopped\n"), error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["policy", "--policy", "paper"], "expected no --policy"),
        (["policy", "--set", "tau=1"], "saved policy with its own demonstrations and parameters"),
        (["demos", "--port", "99999"], "port: expected a number from 0 to 65535"),
        (["demos", "--host", "not a host", "--insecure"], "cannot listen on not a host"),
        (["demos", "--false-alarm-rate", "2"], "false_alarm_rate: expected"),
        (["demos", "--dialect", "gr00t", "--learn"], "--learn: expected with --dialect openpi"),
        (["demos", "--learn"], "--learn: expected a --token"),
        (["demos", "--host", "192.0.2.1"], "expected a --token beyond this machine"),
        (["demos", "--host", "192.0.2.1", "--insecure"], "cannot listen on 192.0.2.1"),  # an address of no machine
        (["demos", "--host", "192.0.2.1", "--token", "key"], "cannot listen on 192.0.2.1"),
        (["nowhere"], "nowhere"),
    ],
)
def test_mistakes_are_one_line(sources, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(sources)
    with pytest.raises(SystemExit) as stop:
        main(["serve", *arguments])
    last = capsys.readouterr().err.splitlines()[-1]
    assert stop.value.code == 2 and message in last


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--upstream", "http://x", "--demos", "demos"], "--upstream: expected an address such as ws://"),
        (["--upstream", "ws://x", "--demos", "demos", "--fallback", "demos"], "expected with --then fallback"),
        (["--upstream", "ws://x", "--demos", "demos", "--after", "0"], "after: expected at least 1"),
        (["--upstream", "ws://x", "--demos", "nowhere"], "nowhere"),
        (["--upstream", "ws://x", "--demos", "demos", "--host", "0.0.0.0"], "expected a --token beyond this machine"),
    ],
)
def test_mistakes_about_a_monitor_are_one_line(sources, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(sources)
    with pytest.raises(SystemExit) as stop:
        main(["monitor", *arguments])
    assert stop.value.code == 2 and message in capsys.readouterr().err.splitlines()[-1]
