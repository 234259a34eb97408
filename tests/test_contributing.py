"""CONTRIBUTING.md: the four walks are those that the code takes."""

import re
import sys
from functools import cache
from importlib import import_module
from inspect import unwrap
from pathlib import Path
from typing import Any

import pytest

from closedform import ClosedFormPolicy, load_policy, save_demos
from closedform.cli import main
from tests.evaluation.toy import reach_demos

PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"
TOY = "tests.evaluation.toy:Reach"


@cache
def walks() -> dict[str, list[str]]:
    section = PAGE.read_text(encoding="utf-8").split("## Four walks")[1].split("\n## ")[0]
    _, *parts = re.split(r"^\*\*(.+?)\*\*", section, flags=re.MULTILINE)
    return {
        name: re.findall(r"^\d+\. `([\w/]+\.py:[\w.]+)`", text, flags=re.MULTILINE)
        for name, text in zip(parts[::2], parts[1::2], strict=True)
    }


def find(hop):
    path, _, names = hop.partition(":")
    found: Any = import_module("closedform." + path.removesuffix(".py").replace("/", "."))
    for name in names.split("."):
        found = getattr(found, name)
    return unwrap(getattr(found, "__func__", found))


def walked(name, action):
    """The hops of a walk in the order in which an action calls them first; compiled code cannot be seen."""
    hops = {hop: find(hop).__code__ for hop in walks()[name] if "compiled_plan.py" not in hop}
    called = {}

    def note(frame, event, _):
        if event == "call":
            called.setdefault(frame.f_code, len(called))

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    assert [hop for hop, code in hops.items() if code not in called] == []
    assert sorted(hops, key=lambda hop: called[hops[hop]]) == list(hops)


def test_there_are_four_walks_of_at_most_eight_hops():
    assert list(walks()) == ["act", "load and build", "eval", "guided plan"]
    assert all(3 <= len(hops) <= 8 for hops in walks().values())
    assert all(callable(find(hop)) for hops in walks().values() for hop in hops)


def test_act(monkeypatch):
    monkeypatch.setenv("CLOSEDFORM_DISABLE_KERNELS", "0")
    agent = ClosedFormPolicy(reach_demos(5)).agent(seed=0)
    walked("act", lambda: agent.act(reach_demos(1)[0].observations[0]))


def test_load_and_build(tmp_path):
    ClosedFormPolicy(reach_demos(5)).save(tmp_path / "policy")
    walked("load and build", lambda: load_policy(tmp_path / "policy"))


def test_eval(tmp_path):
    save_demos(reach_demos(5), tmp_path / "demos")
    command = ["eval", "--env", TOY, "--demos", str(tmp_path / "demos"), "--episodes", "1", "--workers", "1"]
    walked("eval", lambda: main([*command, "--json", str(tmp_path / "results.json")]))


def test_guided_plan():
    torch = pytest.importorskip("torch")
    from closedform.editing.edited_policy import demonstrations_for
    from closedform.editing.guided_policy import GuidedPolicy
    from closedform.neural.config import NeuralConfig
    from closedform.neural.data import training_data
    from closedform.neural.policy import NeuralPolicy, count_weights

    config = NeuralConfig(width=16, n_heads=1, n_blocks=1, sampler="ddim", n_sampling_steps=3)
    data = training_data(reach_demos(5), config)
    neural = NeuralPolicy.of(config, torch.zeros(count_weights(config, data.features.shape[1], 2)), data)
    policy = GuidedPolicy(neural, *(demonstrations_for(neural, reach_demos(n)) for n in (3, 5)))
    walked("guided plan", lambda: policy.plan(reach_demos(1)[0].observations[0], seed=0))
