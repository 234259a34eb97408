"""Tests with the real lerobot: its programs run as commands, offline, and write into temporary folders."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", HF_HOME=tempfile.mkdtemp(), SDL_VIDEODRIVER="dummy", CUDA_VISIBLE_DEVICES="")

import pytest

from closedform import load_demos, save_demos

DEVICE = "--policy.device=cpu"


def run(program, *options):
    """Runs a program of this environment, and returns what it printed; fails with that if it fails."""
    command = [str(Path(sys.executable).with_name(program)), *map(str, options)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-5000:]}"
    return done.stdout


def train(dataset, output, *options):
    """`lerobot-train` on a dataset; returns the folder of the policy."""
    where = f"--dataset.repo_id=local/{dataset.name}", f"--dataset.root={dataset}", f"--output_dir={output}"
    chosen = () if any(option.startswith("--policy.path") for option in options) else ("--policy.type=closedform",)
    said = run("lerobot-train", *where, *chosen, DEVICE, "--policy.push_to_hub=false", "--num_workers=0", *options)
    assert "closedform is fitted already: stopping after 1 step instead of 100000" in said
    return output / "checkpoints" / "last" / "pretrained_model"


@pytest.fixture(scope="session")
def demos():
    return load_demos("pusht-embedded")


@pytest.fixture(scope="session")
def dataset(demos, tmp_path_factory):
    """Push-T as our writer writes it."""
    path = tmp_path_factory.mktemp("written") / "pusht"
    save_demos(demos, path, "lerobot")
    return path


@pytest.fixture(scope="session")
def trained(dataset, tmp_path_factory):
    """The folder of a policy that `lerobot-train` fitted in one step."""
    return train(dataset, tmp_path_factory.mktemp("trained") / "run")


@pytest.fixture(scope="session")
def weak(dataset, tmp_path_factory):
    """One with so few demonstrations that it often fails."""
    return train(dataset, tmp_path_factory.mktemp("weak") / "run", f"--policy.episodes={list(range(8))}")
