"""The package as a whole."""

import subprocess
import sys

import closedform


def test_importing_is_light():
    heavy = "numba torch h5py matplotlib zarr faiss gymnasium tyro scipy"
    code = f"import sys, closedform; print([m for m in '{heavy}'.split() if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_every_public_name_exists():
    assert len(set(closedform.__all__)) == len(closedform.__all__)
    for name in closedform.__all__:
        assert getattr(closedform, name).__doc__
