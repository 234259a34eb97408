"""Devices: names that are none, and GPUs that are not there, are refused for every policy."""

import sys

import numpy as np
import pytest

from closedform import ClosedFormPolicy
from closedform.device import check_device, choose_device, limit_threads
from closedform.errors import ConfigError, MissingExtraError
from tests.conftest import planar_demos


@pytest.mark.parametrize(
    "name", ["nope", "", "cuda:", "cuda:\u00b2", "cuda5", "cuda:-1", "cuda:0,1", "CPU", "cpu:0", None, 0]
)
def test_what_is_no_device_is_refused(name):
    for refuse in (check_device, choose_device, ClosedFormPolicy(planar_demos(np.random.default_rng(0))).to):
        with pytest.raises(ConfigError, match="device: expected auto, cpu, cuda or cuda:NUMBER, found"):
            refuse(name)


def test_a_gpu_that_is_not_there_is_refused(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    policy = ClosedFormPolicy(planar_demos(np.random.default_rng(0)))
    for name in ("cuda", "cuda:0"):
        with pytest.raises(ConfigError, match="expected a GPU that torch can use, found none; use --device cpu"):
            policy.to(name)
    assert policy.to("auto") is policy and policy.to("cpu") is policy and choose_device("auto") == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("auto") == "cuda" and choose_device("cuda:1") == "cuda:1"
    with pytest.raises(ConfigError, match="expected a GPU that torch can use, found 2"):
        check_device("cuda:2")


def test_without_torch_there_is_the_cpu(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert choose_device("auto") == "cpu" and choose_device("cpu") == "cpu"
    with pytest.raises(MissingExtraError, match=r"pip install 'closedform\[neural\]'"):
        check_device("cuda")


def test_threads_are_limited_unless_the_user_has_said_how_many(monkeypatch):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    before = torch.get_num_threads()
    try:
        monkeypatch.setenv("OMP_NUM_THREADS", "3")
        torch.set_num_threads(2)
        limit_threads(1)
        assert torch.get_num_threads() == 2
        monkeypatch.delenv("OMP_NUM_THREADS")
        limit_threads(1)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
