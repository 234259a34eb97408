"""A fleet on the command line: `serve` and `run` open its policy by an address."""

import numpy as np
import pytest

from closedform import Demos
from closedform.cli import main
from closedform.fleet import FleetPolicy, FleetTable, SearchPolicy, publish
from closedform.robot.commands import Run
from closedform.serve.commands import Serve
from tests.conftest import random_demos

pytest.importorskip("lancedb", reason="LanceDB is not installed: make test-fleet")

EPISODES = random_demos(np.random.default_rng(0), 6, 40, 3, 2)


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = FleetTable.create("fleet")
    table.push(Demos(EPISODES[:4]), task="walk", outcome="success")
    table.push(Demos(EPISODES[4:]), task="swim")
    return table


def test_serve_opens_a_fleet_and_follows_it(table):
    command = Serve(source="fleet:fleet?cache=replica&task=walk&outcome=success", set=(("n_execute=3",),))
    policy = command._policy()
    assert isinstance(policy, FleetPolicy)
    with policy:
        assert policy.config.n_execute == 3 and len(policy.episodes) == 4
        policy.plan(EPISODES[0].observations[0], seed=0)
        table.push(random_demos(np.random.default_rng(1), 1, 40, 3, 2), task="walk", outcome="success")
        while not policy.refresh():
            pass
        assert len(policy.episodes) == 5


def test_run_opens_a_fleet(table):
    policy = Run(policy="fleet:fleet?cache=replica&task=swim").make(None)
    assert isinstance(policy, FleetPolicy)
    with policy:
        assert len(policy.episodes) == 2


def test_serve_searches_in_the_store(table):
    pytest.importorskip("faiss", reason="faiss is not installed: make test-fleet")
    with FleetPolicy("fleet", cache="replica", where={"task": "walk"}, period=None, index="faiss") as replica:
        publish(replica, "walk")
    policy = Serve(source="fleet:fleet?search=walk")._policy()
    assert isinstance(policy, SearchPolicy) and len(policy.episodes) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["serve", "fleet:"], "expected fleet:URI?cache=FOLDER"),
        (["serve", "fleet:fleet"], "expected fleet:URI?cache=FOLDER"),
        (["serve", "fleet:fleet?cache=a&search=b"], "expected fleet:URI?cache=FOLDER"),
        (["serve", "fleet:fleet?cache=a&cache=b"], "expected fleet:URI?cache=FOLDER"),
        (["serve", "fleet:fleet?cache=a&color=red"], "where: expected some of task"),
        (
            ["serve", "fleet:fleet?cache=a", "--learn", "--token", "key"],
            "expected neither --policy nor --learn with a fleet",
        ),
        (["serve", "fleet:fleet?cache=a", "--set", "tua=1"], "unknown parameter 'tua'"),
        (["serve", "fleet:fleet?search=walk"], "expected windows to search, found none"),
        (["serve", "fleet:nowhere?cache=a"], "expected a fleet, found none"),
        (["run", "--policy", "fleet:fleet"], "expected fleet:URI?cache=FOLDER"),
        (["run", "--policy", "fleet:fleet?cache=a", "--demos", "pusht-embedded"], "expected no demonstrations"),
    ],
)
def test_a_mistake_is_one_line(table, capsys, arguments, message):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    said = capsys.readouterr().err
    assert stop.value.code == 2 and message in said and said.count("\n") == 1
