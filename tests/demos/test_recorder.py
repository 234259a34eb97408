"""Recording: nothing is lost, the loop never waits, and readers see whole episodes only."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from closedform import ClosedFormError, Layout, load_demos
from closedform.demos import recorder as recorder_module
from closedform.demos.recorder import Recorder, RecordError, read_part, recover

OBSERVATIONS, ACTIONS = Layout.of(("hand", "position", 2), ("hand", "angle")), Layout.of(("hand", "position", 2))


def step(i):
    return np.array([i, i + 0.5, 0.1]), np.array([-i, 2.0 * i])


def record(recorder, n, first=0):
    recorder.begin()
    for i in range(first, first + n):
        recorder.append(*step(i))
    return recorder.end()


def test_what_was_recorded_is_read(tmp_path):
    with Recorder(tmp_path / "demos", OBSERVATIONS, ACTIONS, rate=20) as recorder:
        assert record(recorder, 5) == 0
        recorder.begin()
        recorder.append(*step(0))
        recorder.discard()
        recorder.begin()
        recorder.append(*step(0))
        assert recorder.end(keep=False) is None
        assert record(recorder, 7, first=100) == 3
        demos = load_demos(tmp_path / "demos")  # while recording goes on
    assert [len(episode) for episode in demos] == [5, 7]
    np.testing.assert_array_equal(demos[1].observations[2], step(102)[0])
    np.testing.assert_array_equal(demos[1].actions[2], step(102)[1])
    assert (demos.observation_layout, demos.action_layout, demos.rate) == (OBSERVATIONS, ACTIONS, 20)
    assert not list((tmp_path / "demos").glob("*.part"))


def test_a_folder_is_continued(tmp_path):
    for _ in range(2):
        with Recorder(tmp_path / "demos", OBSERVATIONS, ACTIONS) as recorder:
            record(recorder, 3)
    assert len(load_demos(tmp_path / "demos")) == 2
    with pytest.raises(RecordError, match=r"expected the action layout of demos\.json, found another"):
        Recorder(tmp_path / "demos", OBSERVATIONS, OBSERVATIONS)


def test_without_layouts_the_first_step_says_how_wide_they_are(tmp_path):
    with Recorder(tmp_path / "demos") as recorder:
        recorder.begin()
        recorder.append([1, 2, 3], [4])
        with pytest.raises(ClosedFormError, match=r"observation: expected 3 numbers, found shape \(2,\)"):
            recorder.append([1, 2], [4])
        with pytest.raises(ClosedFormError, match="action: expected finite numbers, found nan"):
            recorder.append([1, 2, 3], [np.nan])
        recorder.end()
    assert len(load_demos(tmp_path / "demos")[0]) == 1


def test_calls_in_the_wrong_order_are_refused(tmp_path):
    with Recorder(tmp_path / "demos", OBSERVATIONS, ACTIONS) as recorder:
        with pytest.raises(RecordError, match="begin one first"):
            recorder.append(*step(0))
        with pytest.raises(RecordError, match="begin one first"):
            recorder.end()
        recorder.begin()
        with pytest.raises(RecordError, match="end or discard it first"):
            recorder.begin()
        with pytest.raises(RecordError, match="at least one step"):
            recorder.end()
        with pytest.raises(RecordError, match="another process is recording"):
            Recorder(tmp_path / "demos", OBSERVATIONS, ACTIONS)
    with pytest.raises(RecordError, match="closed"):
        recorder.begin()


def test_appending_is_quick_and_does_not_wait_for_a_slow_disk(tmp_path, monkeypatch):
    with Recorder(tmp_path / "demos", OBSERVATIONS, ACTIONS) as recorder:
        monkeypatch.setattr(recorder_module.os, "fsync", lambda _: time.sleep(0.3))
        recorder.begin()
        observation, action = step(1)
        times = []
        end = time.perf_counter() + 1.5
        while time.perf_counter() < end:
            start = time.perf_counter()
            recorder.append(observation, action)
            times.append(time.perf_counter() - start)
            time.sleep(0.0005)
        monkeypatch.undo()
        recorder.end()
    assert np.quantile(times, 0.25) < 50e-6  # what it costs, where the machine is not busy with something else
    assert max(times) < 0.25  # a thread may be switched away from, but it never waits for the disk, 0.3 s
    assert len(load_demos(tmp_path / "demos")[0]) == len(times)


KILLED = """
import sys, time, numpy as np
from closedform.demos.recorder import Recorder
with Recorder(sys.argv[1]) as recorder:
    for _ in range(3):
        recorder.begin()
        for i in range(50):
            recorder.append([i, 2.0 * i], [3.0 * i])
        recorder.end()
    recorder.begin()
    i = 0
    start = time.time()
    while True:
        recorder.append([i, 2.0 * i], [3.0 * i])
        i += 1
        print(i, time.time(), flush=True)
        time.sleep(0.002)
"""


@pytest.mark.parametrize("seconds", [0.3, 1.7])
def test_a_killed_recorder_loses_at_most_a_second(tmp_path, seconds):
    folder = tmp_path / "demos"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines, begun = [], None
    for line in process.stdout:
        lines.append(line.split())
        begun = begun or time.time()
        if time.time() - begun > seconds:
            break
    os.kill(process.pid, signal.SIGKILL)
    lines += [line.split() for line in process.stdout]
    process.wait()
    whole = [line for line in lines if len(line) == 2]
    killed_at = float(whole[-1][1])
    assert len(load_demos(folder)) == 3  # the unfinished one does not disturb
    recovered = recover(folder)
    demos = load_demos(folder)
    safe = sum(float(when) < killed_at - 1.0 for _, when in whole)
    assert recovered == ([3] if len(demos) == 4 else [])
    steps = demos[3].observations[:, 0] if len(demos) == 4 else np.empty(0)
    assert len(steps) >= safe
    np.testing.assert_array_equal(steps, np.arange(len(steps)))
    with Recorder(folder) as recorder:
        recorder.begin()
        recorder.append([0.0, 0.0], [0.0])
        assert recorder.end() == len(demos)


def test_a_part_that_breaks_off_within_a_step_is_read_up_to_it(tmp_path):
    with Recorder(tmp_path / "demos", OBSERVATIONS, ACTIONS) as recorder:
        recorder.begin()
        for i in range(10):
            recorder.append(*step(i))
    part = tmp_path / "demos" / "episode_000000.part"
    whole = part.read_bytes()
    for cut in range(len(whole)):
        part.write_bytes(whole[:cut])
        episode = read_part(part)
        assert len(episode) == max(cut - 16, 0) // 40
        if len(episode):
            np.testing.assert_array_equal(episode.observations[-1], step(len(episode) - 1)[0])


def test_a_full_disk_is_said_and_nothing_is_lost(tmp_path, monkeypatch):
    with Recorder(tmp_path / "demos", OBSERVATIONS, ACTIONS) as recorder:
        record(recorder, 5)
        recorder.begin()
        recorder.append(*step(0))
        time.sleep(0.6)

        def full(_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(recorder_module.os, "fsync", full)
        recorder.append(*step(1))
        time.sleep(0.6)
        with pytest.raises(RecordError, match="No space left on device; what was written before is still there"):
            recorder.append(*step(2))
        with pytest.raises(RecordError, match=r"expected to write 3 steps, found .*No space left.* call end again"):
            recorder.end()
        assert len(read_part(tmp_path / "demos" / "episode_000001.part")) >= 1
        monkeypatch.undo()
        assert recorder.end() == 1
    demos = load_demos(tmp_path / "demos")
    np.testing.assert_array_equal(demos[1].observations, [step(i)[0] for i in range(3)])


def test_a_folder_that_cannot_be_used_is_said(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(RecordError, match="expected a folder that can be written to"):
        Recorder(tmp_path / "file", OBSERVATIONS, ACTIONS)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "thesis.tex").write_text("years of work")
    with pytest.raises(RecordError, match="found others"):
        Recorder(tmp_path / "thesis", OBSERVATIONS, ACTIONS)
