"""Ray, as far as it can be tested without it: addresses, versions and what is missing."""

import socket
import subprocess
import sys

import pytest

from closedform import ClosedFormPolicy
from closedform.cli import main
from closedform.errors import ConfigError, MissingExtraError
from closedform.evaluation import EvaluationError, Processes, Ray, evaluate
from closedform.evaluation.ray_pool import check_answers, check_installation, installation
from tests.evaluation.toy import Reach, reach_demos


@pytest.mark.parametrize("address", ["", "here", "host:", ":6379", "host:port"])
def test_an_address_is_a_host_and_a_port(address):
    with pytest.raises(ConfigError, match="ray: expected an address HOST:PORT, or auto, found"):
        Ray(address)


@pytest.mark.parametrize("kind", [Processes, lambda n: Ray(n=n)])
def test_numbers_of_workers_are_bounded_everywhere(kind):
    with pytest.raises(ConfigError, match="workers: expected at least 1 and at most 1024, found 0"):
        kind(0)


def test_without_the_extra_one_line_says_how_to_install_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'closedform\[ray\]'"):
        list(evaluate(ClosedFormPolicy(reach_demos()), Reach, range(2), workers=Ray()))
    with pytest.raises(SystemExit) as stop:
        main(["eval", "--demos", "pusht-embedded", "--episodes", "2", "--ray"])
    said = capsys.readouterr().err
    assert stop.value.code == 2 and "pip install 'closedform[ray]'" in said and said.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ray", "here"], "ray: expected an address HOST:PORT, or auto, found 'here'"),
        (["--ray", "a:1", "b:2"], "ray: expected at most one address, found a:1 b:2"),
        (["--ray", "--workers", "0"], "workers: expected at least 1"),
    ],
)
def test_bad_addresses_are_one_line(arguments, message, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["eval", "--demos", "pusht-embedded", *arguments])
    said = capsys.readouterr().err
    assert stop.value.code == 2 and message in said and said.count("\n") == 1


def test_an_address_where_nothing_listens_is_refused_at_once():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(EvaluationError, match=rf"^ray: expected a cluster at {address}, found .*refused"):
            check_answers(address)
        unused.listen()
        check_answers(address)
    for wrong in ("127.0.0.1:99999", "no such host:6379", "a..b:6379"):
        with pytest.raises(EvaluationError, match=f"^ray: expected a cluster at {wrong}, found "):
            check_answers(wrong)


def test_nodes_with_other_versions_are_refused():
    here = installation()
    check_installation(here, dict(here), "10.0.0.2")
    check_installation(here, {**here, "another package": "1.0"}, "10.0.0.2")
    check_installation({**here, "torch": "2.0"}, {name: here[name] for name in here if name != "torch"}, "10.0.0.2")
    for name in ("numpy", "closedform's source"):
        with pytest.raises(EvaluationError, match=rf"10\.0\.0\.2: expected {name} .*, as here, found 0\.1; install"):
            check_installation(here, {**here, name: "0.1"}, "10.0.0.2")


def test_ray_is_imported_only_where_it_is_used():
    code = "import sys, closedform.evaluation; print('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
