"""Recording: nothing is lost, the loop never waits, and readers see whole episodes only."""

import os
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from safetensors import SafetensorError

from closedform import ClosedFormError, ClosedFormWarning, Layout, load_demos
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


def wait_until(condition):
    """Waits for what a thread does now and then, however busy the machine is."""
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen within a minute")


def test_appending_does_not_wait_for_the_disk(tmp_path, monkeypatch):
    waiting, go_on, synchronize = threading.Event(), threading.Event(), os.fsync

    def stuck(descriptor):
        waiting.set()
        go_on.wait()
        synchronize(descriptor)

    with Recorder(tmp_path / "demos", OBSERVATIONS, ACTIONS) as recorder:
        monkeypatch.setattr("os.fsync", stuck)
        recorder.begin()
        recorder.append(*step(0))
        assert waiting.wait(60)  # a thread has begun to write
        for i in range(1, 1000):
            recorder.append(*step(i))  # would never return if it waited for the disk
        go_on.set()
        recorder.end()
    assert len(load_demos(tmp_path / "demos")[0]) == 1000


KILLED = """
import sys
from closedform.demos.recorder import Recorder
with Recorder(sys.argv[1]) as recorder:
    for _ in range(3):
        recorder.begin()
        for i in range(50):
            recorder.append([i, 2.0 * i], [3.0 * i])
        recorder.end()
    recorder.begin()
    i = 0
    while True:
        recorder.append([i, 2.0 * i], [3.0 * i])
        i += 1
        if i % 100 == 0:
            print(i, flush=True)
            sys.stdin.readline()
"""


@pytest.mark.parametrize("n_written", [1, 500])
def test_a_killed_recorder_loses_nothing_that_was_written(tmp_path, n_written):
    folder = tmp_path / "demos"
    command = [sys.executable, "-c", KILLED, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        part, safe = folder / "episode_000003.part", 0
        for _ in range(100):
            process.stdout.readline()
            if part.exists() and (safe := len(read_part(part))) >= n_written:
                break
            time.sleep(recorder_module.PERIOD)  # in which the recorder writes; if it does not, it does so later
            process.stdin.write("\n")
            process.stdin.flush()
        os.kill(process.pid, signal.SIGKILL)
    assert safe >= n_written
    assert len(load_demos(folder)) == 3  # the unfinished one does not disturb
    assert recover(folder) == [3]
    steps = load_demos(folder)[3].observations[:, 0]
    assert len(steps) >= safe
    np.testing.assert_array_equal(steps, np.arange(len(steps)))
    with Recorder(folder) as recorder:
        recorder.begin()
        recorder.append([0.0, 0.0], [0.0])
        assert recorder.end() == 4


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
        assert len(episode) == max(cut - 20, 0) // 44
        if len(episode):
            np.testing.assert_array_equal(episode.observations[-1], step(len(episode) - 1)[0])


def test_a_full_disk_is_said_and_nothing_is_lost(tmp_path, monkeypatch):
    with Recorder(tmp_path / "demos", OBSERVATIONS, ACTIONS) as recorder:
        record(recorder, 5)
        recorder.begin()
        recorder.append(*step(0))
        part = tmp_path / "demos" / "episode_000001.part"
        wait_until(lambda: part.exists() and len(read_part(part)) == 1)

        def full(_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("os.fsync", full)
        recorder.append(*step(1))
        wait_until(lambda: recorder._failure is not None)
        with pytest.raises(RecordError, match="No space left on device; earlier steps are on disk"):
            recorder.append(*step(2))
        with pytest.raises(RecordError, match=r"expected to write 3 steps, found .*No space left.* call end again"):
            recorder.end()
        assert len(read_part(part)) >= 1
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
    with pytest.raises(RecordError, match="found other files"):
        Recorder(tmp_path / "thesis", OBSERVATIONS, ACTIONS)


def unfinished(folder, n_parts=1, n_steps=10):
    """A folder with some parts, as recorders leave them that were killed; part i begins with step 100 i."""
    for number in range(n_parts):
        with Recorder(folder, OBSERVATIONS, ACTIONS) as recorder:
            recorder.begin()
            for i in range(n_steps):
                recorder.append(*step(100 * number + i))
    return [folder / f"episode_{number:06d}.part" for number in range(n_parts)]


def flip(path, at):
    content = bytearray(path.read_bytes())
    content[at] ^= 4
    path.write_bytes(content)


def test_nothing_is_recovered_from_a_folder_that_is_being_recorded_into(tmp_path):
    with Recorder(tmp_path / "demos", OBSERVATIONS, ACTIONS) as recorder:
        recorder.begin()
        recorder.append(*step(0))
        with recorder._disk:  # as the thread does now and then
            recorder._write(recorder._rows)
            recorder._rows = []
        part = tmp_path / "demos" / "episode_000000.part"
        before = part.read_bytes()
        with pytest.raises(RecordError, match="another process is recording"):
            recover(tmp_path / "demos")
        assert part.read_bytes() == before
        recorder.append(*step(1))
        recorder.end()
    assert [len(episode) for episode in load_demos(tmp_path / "demos")] == [2]


def test_a_damaged_part_keeps_no_other_from_being_recovered_and_is_never_removed(tmp_path):
    folder = tmp_path / "demos"
    parts = unfinished(folder, 3)
    flip(parts[1], 10)  # of its widths
    before = parts[1].read_bytes()
    with pytest.warns(ClosedFormWarning, match=r"episode_000001\.part: expected the part .* left unchanged"):
        assert recover(folder) == [0, 2]
    demos = load_demos(folder)
    assert [episode.observations[0, 0] for episode in demos] == [0, 200]
    assert parts[1].read_bytes() == before and not parts[0].exists() and not parts[2].exists()
    with Recorder(folder, OBSERVATIONS, ACTIONS) as recorder:
        assert record(recorder, 2) == 3  # and not over it


@pytest.mark.parametrize("at", [0, 7, 8, 15, 16, 20, 21, 60, 64, 200, 459])
def test_a_flipped_bit_anywhere_in_a_part_is_noticed_and_what_is_before_is_recovered(tmp_path, at):
    folder = tmp_path / "demos"
    (part,) = unfinished(folder)
    flip(part, at)
    before = part.read_bytes()
    with pytest.warns(ClosedFormWarning, match=r"episode_000000\.part"):
        recovered = recover(folder)
    whole = max((at - 20) // 44, 0)
    assert recovered == ([0] if whole else [])
    if whole:
        np.testing.assert_array_equal(load_demos(folder)[0].observations, [step(i)[0] for i in range(whole)])
    kept = [path for path in folder.iterdir() if path.name.startswith("episode_000000.part")]
    assert [path.read_bytes() for path in kept] == [before]
    assert recover(folder) == [] if kept[0].suffix == ".damaged" else True  # and is set aside once
    with Recorder(folder, OBSERVATIONS, ACTIONS) as recorder:
        assert record(recorder, 2) == 1


def test_parts_of_earlier_versions_are_recovered(tmp_path):
    folder = tmp_path / "demos"
    (part,) = unfinished(folder)
    rows = np.array([np.concatenate(step(i)) for i in range(7)])
    old = b"CFPART1\n" + struct.pack("<ii", 3, 2) + rows.tobytes()
    part.write_bytes(old + b"torn")
    assert recover(folder) == [0]
    np.testing.assert_array_equal(load_demos(folder)[0].actions, rows[:, 3:])
    shutil.rmtree(folder)
    (part,) = unfinished(folder)
    for damaged in (
        old[:8] + struct.pack("<ii", 3, 10**6) + rows.tobytes(),
        old[:8] + struct.pack("<ii", 2, 3) + old[16:],
    ):
        part.write_bytes(damaged)
        with pytest.warns(ClosedFormWarning, match=r"episode_000000\.part"):
            assert recover(folder) == []
        kept = next(path for path in folder.iterdir() if path.name.startswith("episode_000000.part"))
        assert kept.read_bytes() == damaged
        kept.unlink()


def test_the_part_of_a_finished_episode_is_removed_only_if_it_is_in_it(tmp_path):
    folder = tmp_path / "demos"
    (part,) = unfinished(folder)
    content = part.read_bytes()
    assert recover(folder) == [0]
    part.write_bytes(content)
    assert recover(folder) == [] and not part.exists()
    part.write_bytes(content)
    flip(folder / "episode_000000.safetensors", -1)
    with pytest.warns(ClosedFormWarning, match="the file is damaged; left unchanged"):
        assert recover(folder) == []
    assert part.read_bytes() == content


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), SafetensorError("No space left on device")])
def test_a_full_disk_at_the_end_of_an_episode_or_while_recovering_loses_nothing(tmp_path, monkeypatch, error):
    folder = tmp_path / "demos"

    def full(*_, **__):
        raise error

    with Recorder(folder, OBSERVATIONS, ACTIONS) as recorder:
        recorder.begin()
        recorder.append(*step(0))
        monkeypatch.setattr("closedform.demos.formats.folder.save_file", full)
        with pytest.raises(RecordError, match=r"No space left on device.*free some space and call end again"):
            recorder.end()
        monkeypatch.undo()
        assert recorder.end() == 0
        recorder.begin()
        recorder.append(*step(1))
    monkeypatch.setattr("closedform.demos.formats.folder.save_file", full)
    with pytest.raises(RecordError, match=r"No space left on device.*free some space and recover again"):
        recover(folder)
    monkeypatch.undo()
    assert recover(folder) == [1]
    assert not [path for path in folder.iterdir() if path.name.startswith(".episode")]


def test_steps_that_cannot_be_written_when_recording_stops_are_told(tmp_path, monkeypatch):
    recorder = Recorder(tmp_path / "demos", OBSERVATIONS, ACTIONS)

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    recorder.begin()
    recorder.append(*step(0))
    with pytest.raises(RecordError, match=r"expected to write the last 1 steps, found .*No space left"):
        recorder.close()
    recorder.close()  # and it is closed
