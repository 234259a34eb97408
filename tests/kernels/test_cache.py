"""Compiled code is kept on disk where that works, and planning does not depend on it."""

import errno
import importlib.util
import subprocess
import sys

import numpy as np
import pytest
from numba.core import config
from numba.core.caching import IndexDataCacheFile

from closedform import kernels
from closedform.kernels import cache

SOURCE = """
from closedform.kernels.jit import jit

@jit()
def third(values):
    return values[2]
"""


@pytest.fixture
def module(tmp_path):
    path = tmp_path / "tiny.py"
    path.write_text(SOURCE)

    def load():
        """The module as a new process sees it: nothing is compiled yet."""
        spec = importlib.util.spec_from_file_location("tiny", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.third

    return load


VALUES = np.array([0.0, 1.0, 4.0])


def hits(function):
    """Whether its code was read from disk."""
    assert function(VALUES) == 4.0
    return bool(function.stats.cache_hits)


def files(tmp_path, pattern):
    return sorted((tmp_path / "__pycache__").glob(pattern))


def test_it_is_compiled_once(tmp_path, module):
    assert not hits(module())
    assert hits(module()) and hits(module())
    assert len(files(tmp_path, "*.nbi")) == len(files(tmp_path, "*.nbc")) == 1


def test_compiling_is_announced_when_something_compiles_and_only_then(module, monkeypatch):
    started, said = [], []

    class Timer:  # one whose patience has no end; whether it starts is what matters
        def __init__(self, seconds, call):
            self.start = lambda: started.append(seconds) or call()

        def cancel(self):
            pass

    monkeypatch.setattr("threading.Timer", Timer)
    monkeypatch.setattr(kernels, "_announce", lambda: said.append("compiling"))
    for expected in (1, 1, 1):  # compiled, then read from disk however long that takes
        function = module()
        for _ in range(2):
            with kernels.announced(function):
                assert function(VALUES) == 4.0
        assert len(started) == len(said) == expected
    function = module()
    function._cache = None  # there is no folder for a cache
    with kernels.announced(function):
        assert len(said) == 2


@pytest.mark.parametrize("pattern", ["*.nbi", "*.nbc"])
@pytest.mark.parametrize("damage", ["emptied", "truncated", "a flipped bit", "something else", "a folder"])
def test_damaged_files_are_dropped_and_written_again(tmp_path, module, pattern, damage):
    assert not hits(module())
    (path,) = files(tmp_path, pattern)
    content = path.read_bytes()
    if damage == "a folder":
        path.unlink()
        path.mkdir()
    else:
        flipped = bytearray(content)
        flipped[len(content) // 2] ^= 1
        damaged = {"emptied": b"", "truncated": content[: len(content) // 2], "a flipped bit": bytes(flipped)}
        path.write_bytes(damaged.get(damage, b"\x80\x04cos\nabort\n(tR."))  # what a pickle that ends the process says
    assert not hits(module())
    if damage != "a folder":
        assert hits(module())


def test_a_full_disk_is_said_once_and_nothing_else(tmp_path, module, monkeypatch, caplog):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(IndexDataCacheFile, "_open_for_write", full)
    cache._say_once.cache_clear()
    assert not hits(module()) and not hits(module())
    said = [record.getMessage() for record in caplog.records if record.name == "closedform"]
    assert len(said) == 1 and "could not be cached" in said[0] and "No space left on device" in said[0]
    monkeypatch.undo()
    assert not hits(module()) and hits(module())


def test_a_disk_that_is_full_after_the_first_file_leaves_nothing_wrong(tmp_path, module, monkeypatch):
    write, written = cache._CheckedFile._save_index, []

    def full(self, overloads):
        written.append(files(tmp_path, "*.nbc"))
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(cache._CheckedFile, "_save_index", full)
    assert not hits(module()) and written[0]
    monkeypatch.setattr(cache._CheckedFile, "_save_index", write)
    assert not hits(module()) and hits(module())


def test_code_with_bounds_checks_is_kept_apart(module, monkeypatch):
    assert not hits(module())
    monkeypatch.setattr(config, "BOUNDSCHECK", 1)
    checked = module()
    assert not hits(checked)
    with pytest.raises(IndexError):
        checked(VALUES[:2])
    again = module()
    assert hits(again)
    monkeypatch.setattr(config, "BOUNDSCHECK", None)
    plain = module()
    assert hits(plain)


def test_code_of_another_version_of_any_kernel_is_not_used(module, monkeypatch):
    assert not hits(module())
    monkeypatch.setattr(cache, "_digest_of_sources", lambda: "another")
    assert not hits(module()) and hits(module())


NEAREST = """
import numpy as np
from closedform.kernels.records import Metric
from closedform.kernels.search import retrieve
rng = np.random.default_rng(0)
for n, k in ((100, 30), (700, 30), (5000, 2000)):
    for bad in (np.nan, np.inf, -np.inf, 1e200):
        for which in ("query", "some rows", "all rows"):
            columns, query = rng.normal(size=(3, n)), np.zeros(3)
            if which == "query":
                query[1] = bad
            else:
                columns[1, :: 1 if which == "all rows" else 7] = bad
            rows, squared = retrieve(columns, n, query, k, Metric(np.empty((0, 0)), 1e-3, 0.0, 1.0))
            assert len(rows) == len(squared) == k and 0 <= rows.min() and rows.max() < n, (n, bad, which)
print("searched")
"""


def test_the_search_ends_whatever_the_numbers_are():
    """In a process of its own, which is what a search that does not end, or reads elsewhere, would take along."""
    done = subprocess.run([sys.executable, "-c", NEAREST], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, "searched\n"), done.stderr
