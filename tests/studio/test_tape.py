"""Recording in the studio: nothing that was finished is lost, and a full disk does not end the session."""

import pytest

from closedform import load_demos
from closedform.demos import recorder
from closedform.demos.recorder import RecordError
from closedform.studio import EditLog, Tape
from closedform.studio.edit_log import read_edits
from tests.studio.toys import ACTIONS, OBSERVATIONS, Table, demonstrate, make_session, until_next


def open_tape(folder):
    return Tape(folder, OBSERVATIONS, ACTIONS, Table.rate)


@pytest.fixture
def taped(tmp_path):
    tape = open_tape(tmp_path / "tape")
    yield make_session(tape=tape, log=tape.log), tape
    tape.close()


def test_every_stretch_is_on_disk_when_it_ends(taped):
    session, tape = taped
    for n in range(1, 4):
        demonstrate(session)
        assert len(load_demos(tape.folder)) == n
        until_next(session)
    assert (tape.folder / "edits.jsonl").read_text() == session.collection.log.text()


def test_deleted_episodes_are_out_of_the_demonstrations_and_undo_brings_them_back(taped):
    session, tape = taped
    for _ in range(3):
        demonstrate(session)
        until_next(session)
    session.delete(1)
    found = load_demos(tape.folder)
    assert [len(episode) for episode in found] == [len(take.episode) for take in session.collection.held]
    session.undo()
    assert len(load_demos(tape.folder)) == 3
    session.undo()  # the last demonstration
    assert len(load_demos(tape.folder)) == 2
    assert len(list((tape.folder / "deleted").iterdir())) == 1


def test_a_deleted_episode_never_replaces_one_that_was_deleted_in_an_earlier_session(tmp_path):
    for _ in range(3):
        tape = open_tape(tmp_path / "tape")
        session = make_session(tape=tape, log=tape.log)
        demonstrate(session)
        session.delete(0)
        tape.close()
    assert len(list((tmp_path / "tape" / "deleted").iterdir())) == 3


def test_a_touch_leaves_nothing(taped):
    session, tape = taped
    demonstrate(session, 1)
    session.step(None)
    assert not [path for path in tape.folder.iterdir() if path.name.startswith("episode")]


def test_a_session_that_was_killed_is_there_again(tmp_path):
    tape = open_tape(tmp_path / "tape")
    session = make_session(tape=tape)
    demonstrate(session)
    until_next(session)
    demonstrate(session, 5)
    tape.close()  # the unfinished stretch is left as a part, as by a kill
    again = open_tape(tmp_path / "tape")
    assert again.before is not None and again.files == [0, 1]
    assert [len(episode) for episode in again.before] == [len(session.collection.takes[0].episode), 5]
    again.close()


def test_a_full_disk_does_not_end_the_session_and_is_made_up_for(taped, monkeypatch):
    session, tape = taped

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(recorder, "write_episode", full)
        demonstrate(session)
        assert session.outcome == "success" and len(session.collection.held) == 1
        assert any("No space left" in notice for notice in session.notices)
    until_next(session)
    demonstrate(session)
    assert len(load_demos(tape.folder)) == 2
    assert {take.file for take in session.collection.takes} == {1, 2}


def test_a_full_disk_is_told_once_in_a_stretch(taped, monkeypatch):
    session, tape = taped

    def full(*_):
        raise RecordError("no space left")

    monkeypatch.setattr(tape, "append", full)
    told = []
    for point in ((50, 50), (51, 50), (52, 50), (53, 50), None):
        session.step(point)
        told += session.notices
        session.notices = []  # as a page takes them
    assert told.count("not recorded: no space left") == 1


def test_an_entry_that_did_not_fit_leaves_the_log_whole(tmp_path):
    resource = pytest.importorskip("resource", reason="limits of files are those of Unix")
    log = EditLog(tmp_path / "edits.jsonl")
    log.begin()
    whole, (soft, hard) = log.text(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 3000, hard))  # a part of the next entry fits, as on a disk
    try:
        log.append("add", numbers=[0.5] * 1400)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert log.problem and (tmp_path / "edits.jsonl").read_text() == whole
    log.append("delete", take=3)
    assert not log.problem and (tmp_path / "edits.jsonl").read_text() == log.text()
    assert [entry["edit"] for entry in read_edits(log.text())] == ["begin", "add", "delete"]


def test_a_log_that_was_cut_off_is_continued(tmp_path):
    path = tmp_path / "edits.jsonl"
    first = EditLog(path)
    first.begin(env="a")
    first.append("add", take=0)
    path.write_text(path.read_text()[:-4])  # killed in the middle of a line
    assert [entry["edit"] for entry in read_edits(path.read_text())] == ["begin"]
    EditLog(path).begin(env="b")
    assert [entry["env"] for entry in read_edits(path.read_text())] == ["b"]
