"""A disk that is full while demonstrations are written: one line, and nothing half-written."""

import subprocess
import sys

import numpy as np
import pytest

from closedform import save_demos
from tests.conftest import random_demos

CODE = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from closedform import load_demos, save_demos, ClosedFormError
import h5py, pyarrow.parquet, zarr
demos = load_demos("source")
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    save_demos(demos, sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
except ClosedFormError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="sizes of files cannot be limited")
@pytest.mark.parametrize(
    "target", [["a.hdf5"], ["a.zarr"], ["a.zarr.zip"], ["a"], ["a", "lerobot"]], ids=lambda target: "-".join(target)
)
def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path, target):
    """No file may grow beyond 1 kB, which writers see as they see a full disk. HDF5 crashes on it with many arrays."""
    demos = random_demos(np.random.default_rng(0), 50, 20, 5, 2)
    demos.rate = 10.0
    save_demos(demos, tmp_path / "source")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CODE, *target], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        done.stdout.startswith(f"SaveError {target[0]}: expected to write it, found ") and done.stdout.count("\n") == 1
    )
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
