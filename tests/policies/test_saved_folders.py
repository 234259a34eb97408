"""Folders of saved policies: one save is read whole, damage is noticed, and nothing is lost or left behind."""

import functools
import json
import os
import pickle
import shutil
import signal
import tracemalloc
from contextlib import contextmanager, suppress

import numpy as np
import pytest

from closedform import ClosedFormError, ClosedFormPolicy, NearestNeighborPolicy, load_policy
from closedform.cli import main
from closedform.errors import LoadError, SaveError
from closedform.policies import folder as folder_module
from closedform.policies.choice import make_policy, write_config
from closedform.policies.folder import ATTEMPTS, find_folder
from closedform.policies.saving import verify
from closedform.snapshot import Snapshot
from closedform.store import faiss_index
from closedform.store.saved_index import SavedIndex
from tests.conftest import random_demos

fcntl, resource = pytest.importorskip("fcntl"), pytest.importorskip("resource")
KINDS = ["exact", "faiss"]


@functools.cache
def policy_of(index, seed=0, **parameters):
    """A small policy, which no test changes."""
    if index == "faiss":
        pytest.importorskip("faiss", reason="faiss is not installed: pip install 'closedform[ann]'")
    demos = random_demos(np.random.default_rng(seed), 4, 40, 3, 2)
    small = {"n_action_steps": 4, "n_neighbors": 50, "n_diffusion_steps": 3, "n_perturbations": 4}
    return ClosedFormPolicy(demos, index=index, **small, **parameters)


def actions(policy):
    return policy.sample(np.linspace(-1, 1, 6).reshape(2, 3), 1, seed=0)


def flip(path, at):
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << (at % 8)
    path.write_bytes(content)


def strip(folder, *names):
    """Makes it the folder of a version that had no such checksums."""
    path = folder / "config.json"
    content = json.loads(path.read_text())
    for name in ("config_crc32", *names):
        content.pop(name, None)
        content.get("index", {}).pop(name, None)
    path.write_text(json.dumps(content))


@contextmanager
def happening(monkeypatch, what):
    """Calls `what` with the number of each moment of reading a saved policy: before a file is opened or used."""
    moments = []

    def before(owner, name):
        real = getattr(owner, name)

        def hooked(*arguments, **keywords):
            moments.append(name)
            what(len(moments) - 1)
            return real(*arguments, **keywords)

        monkeypatch.setattr(owner, name, hooked)

    with monkeypatch.context():
        before(folder_module, "find_folder")
        for name in ("_open", "json", "arrays", "size"):
            before(Snapshot, name)
        before(faiss_index, "_open")
        before(faiss_index, "name_of")
        yield moments
    monkeypatch.undo()


@pytest.mark.parametrize("index", KINDS)
@pytest.mark.parametrize("same_demonstrations", [False, True])
def test_a_policy_that_is_replaced_while_it_is_read_is_one_of_both(tmp_path, monkeypatch, index, same_demonstrations):
    first = policy_of(index)
    second = policy_of(index, 0 if same_demonstrations else 1, bandwidth=0.3)
    expected = [actions(policy) for policy in (first, second)]
    assert not np.array_equal(expected[0], expected[1])
    moment, n_moments, loaded = 0, 1, set()
    while moment < n_moments:
        first.save(tmp_path / "policy")
        replaced = moment
        with happening(monkeypatch, lambda now: now == replaced and second.save(tmp_path / "policy")) as moments:  # noqa: B023
            found = actions(load_policy(tmp_path / "policy"))
        which = [np.array_equal(found, each) for each in expected]
        assert any(which), f"neither, when it was replaced before {moments[moment]}"
        loaded.add(which.index(True))
        moment, n_moments = moment + 1, len(moments)
    assert n_moments > 5 and loaded == {0, 1}


def test_a_folder_that_keeps_changing_is_read_again_and_a_damaged_one_is_not(tmp_path, monkeypatch):
    policy = policy_of("exact")
    policy.save(tmp_path / "policy")
    looks = []

    class Torn(Snapshot):
        def __init__(self, *arguments, **keywords):
            looks.append(None)
            super().__init__(*arguments, **keywords)
            if len(looks) < ATTEMPTS:  # as where another process is removing the folder that was opened
                shutil.copytree(tmp_path / "policy", tmp_path / "copy")
                shutil.rmtree(tmp_path / "policy")
                (tmp_path / "copy").rename(tmp_path / "policy")
                self.files.pop("policy.safetensors").close()

    with monkeypatch.context() as context:
        context.setattr(folder_module, "Snapshot", Torn)
        assert np.array_equal(actions(load_policy(tmp_path / "policy")), actions(policy))
    assert len(looks) == ATTEMPTS
    flip(tmp_path / "policy" / "policy.safetensors", -9)
    looks = [None] * ATTEMPTS
    with monkeypatch.context() as context:
        context.setattr(folder_module, "Snapshot", Torn)
        with pytest.raises(LoadError, match="the files are damaged"):
            load_policy(tmp_path / "policy")
    assert len(looks) == ATTEMPTS + 1


@pytest.mark.parametrize("added", [False, True])
def test_another_process_gets_the_policy_that_was_opened_or_none(tmp_path, added):
    policy_of("faiss").save(tmp_path / "policy")
    opened = ClosedFormPolicy.load(tmp_path / "policy")
    if added:
        opened.add(opened.episodes[0])
    content = pickle.dumps(opened)
    assert np.array_equal(actions(pickle.loads(content)), actions(opened))
    policy_of("faiss", 1).save(tmp_path / "policy")  # as many episodes, of the same lengths
    with pytest.raises(LoadError, match="replaced"):
        pickle.loads(content)


def test_an_indexed_policy_that_was_opened_can_be_saved_anywhere(tmp_path):
    policy = policy_of("faiss")
    policy.save(tmp_path / "first")
    for target in ("second", "first"):
        load_policy(tmp_path / "first").save(tmp_path / target)
    (tmp_path / "first").rename(tmp_path / "elsewhere")
    for name in ("second", "elsewhere"):
        assert np.array_equal(actions(load_policy(tmp_path / name)), actions(policy))


@pytest.mark.parametrize("index", KINDS)
def test_a_flipped_bit_anywhere_is_refused_or_changes_nothing(tmp_path, index):
    policy = policy_of(index)
    policy.save(tmp_path / "policy")
    n_refused, n_flipped = 0, 0
    for path in sorted((tmp_path / "policy").iterdir()):
        whole = path.read_bytes()
        for at in np.unique(np.linspace(0, len(whole) - 1, 30).astype(int)):
            flip(path, at)
            n_flipped += 1
            try:
                assert np.array_equal(actions(load_policy(tmp_path / "policy")), actions(policy)), (path, at)
            except ClosedFormError as refused:
                assert "\n" not in str(refused)
                n_refused += 1
            path.write_bytes(whole)
    assert n_refused >= n_flipped - 2  # in the name of the configuration's checksum
    assert verify(tmp_path / "policy") == "all checksums match"


def test_of_a_large_policy_what_is_small_is_checked_at_once_and_the_rest_by_info(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(SavedIndex, "WHOLE_UP_TO", 0)
    policy = policy_of("faiss")
    policy.save(tmp_path / "policy")
    head = len((tmp_path / "policy" / "index.faiss").read_bytes()) - 160 * (3 + 8)
    main(["info", str(tmp_path / "policy")])
    assert "checked: all checksums match; loading verifies only its small parts" in capsys.readouterr().out
    n_later = 0
    for path in sorted((tmp_path / "policy").iterdir()):
        whole = path.read_bytes()
        for at in np.unique(np.linspace(0, len(whole) - 1, 24).astype(int)):
            flip(path, at)
            with pytest.raises(ClosedFormError):
                verify(tmp_path / "policy")
            small = path.name in ("config.json", "summary.safetensors") or (path.name == "index.faiss" and at < head)
            try:
                found = actions(load_policy(tmp_path / "policy"))
                assert not small and found.shape == (2, 1, 4, 2)
                n_later += 1
            except ClosedFormError:
                pass
            path.write_bytes(whole)
    assert n_later


def test_a_row_that_is_not_there_is_an_error_of_ours_and_not_a_crash(tmp_path, monkeypatch):
    monkeypatch.setattr(SavedIndex, "WHOLE_UP_TO", 0)
    policy_of("faiss").save(tmp_path / "policy")
    path = tmp_path / "policy" / "index.faiss"
    for wrong in (160, 2**62, -7):
        content = bytearray(path.read_bytes())
        content[-8:] = wrong.to_bytes(8, "little", signed=True)
        path.write_bytes(content)
        policy = load_policy(tmp_path / "policy")
        with pytest.raises(LoadError, match=r"index\.faiss: expected 160 rows, found row"):
            policy.model.index.query(np.zeros(3), 160)  # pyright: ignore[reportAttributeAccessIssue]


def test_a_policy_of_an_earlier_version_loads_and_info_says_what_is_not_checked(tmp_path, monkeypatch):
    policy = policy_of("faiss")
    policy.save(tmp_path / "policy")
    strip(tmp_path / "policy", "seal", "summary_crc32", "episodes_crc32")
    assert np.array_equal(actions(load_policy(tmp_path / "policy")), actions(policy))
    assert "an older version saved the index without any" in verify(tmp_path / "policy")
    monkeypatch.setattr(SavedIndex, "WHOLE_UP_TO", 0)
    for name in ("index.faiss", "summary.safetensors"):
        path = tmp_path / "policy" / name
        whole = path.read_bytes()
        for at in np.unique(np.linspace(0, len(whole) - 1, 30).astype(int)):
            flip(path, at)
            with suppress(ClosedFormError):  # it may not be noticed, but nothing else than our errors comes of it
                actions(load_policy(tmp_path / "policy"))
            path.write_bytes(whole)


def test_a_configuration_that_was_changed_on_purpose_can_be_used(tmp_path):
    policy_of("exact").save(tmp_path / "policy")
    path = tmp_path / "policy" / "config.json"
    path.write_text(path.read_text().replace('"bandwidth": 0.09', '"bandwidth": 0.3'))
    with pytest.raises(LoadError, match="checksum mismatch; if you changed it on purpose, remove the line"):
        load_policy(tmp_path / "policy")
    strip(tmp_path / "policy")
    assert np.array_equal(actions(load_policy(tmp_path / "policy")), actions(policy_of("exact", bandwidth=0.3)))


def test_after_a_crash_between_two_renames_everything_finds_the_old_policy(tmp_path, capsys):
    policy = policy_of("exact")
    policy.save(tmp_path / "policy")
    (tmp_path / "policy").rename(tmp_path / ".policy.old")
    assert find_folder(tmp_path / "policy") == (tmp_path / ".policy.old").resolve()
    verify(tmp_path / "policy")
    main(["info", str(tmp_path / "policy")])
    assert "ClosedFormPolicy of 4 episodes" in capsys.readouterr().out
    assert np.array_equal(actions(make_policy(str(tmp_path / "policy"), None)), actions(policy))
    policy.save(tmp_path / "policy")
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]


def test_what_killed_processes_left_goes_and_what_others_are_writing_stays(tmp_path):
    left, alive, other = (tmp_path / name for name in (".policy.new-dead", ".policy.new-alive", ".policy2.new-dead"))
    for folder in (left, alive, other):
        (folder / "policy").mkdir(parents=True)
        (folder / "policy" / "policy.safetensors").write_bytes(b"half")
    descriptor = os.open(alive, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    policy_of("exact").save(tmp_path / "policy")
    assert {path.name for path in tmp_path.iterdir()} == {"policy", alive.name, other.name}
    assert (alive / "policy" / "policy.safetensors").exists()
    os.close(descriptor)
    policy_of("exact").save(tmp_path / "policy")
    assert {path.name for path in tmp_path.iterdir()} == {"policy", other.name}


def test_whether_a_folder_may_be_replaced_is_not_asked_while_another_process_replaces_it(tmp_path, monkeypatch):
    policy_of("exact").save(tmp_path / "policy")
    held = []

    def replaceable(*_):
        descriptor = os.open(tmp_path, os.O_RDONLY)
        with pytest.raises(BlockingIOError):  # nobody else holds the lock with which folders are exchanged
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)
        held.append(True)
        return True

    monkeypatch.setattr("closedform.policies.saving.holds_only", replaceable)
    policy_of("exact", 1).save(tmp_path / "policy")
    assert held


@contextmanager
def full_disk(n_bytes):
    """No file can grow beyond some size, as on a disk that is full."""
    handler, limits = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("n_bytes", [0, 700, 2500])
@pytest.mark.parametrize("index", KINDS)
def test_on_a_full_disk_the_old_policy_stays_and_nothing_half_written(tmp_path, index, n_bytes):
    old, new = policy_of(index), policy_of(index, 1)
    old.save(tmp_path / "policy")
    with (
        full_disk(n_bytes),
        pytest.raises(SaveError, match=r"policy: expected to write it, .*nothing was changed"),
    ):
        new.save(tmp_path / "policy")
    with full_disk(n_bytes), pytest.raises(SaveError, match="nothing was changed"):
        new.save(tmp_path / "another")
    with full_disk(0), pytest.raises(SaveError, match="nothing was changed"):
        write_config(new.config, ClosedFormPolicy, tmp_path / "tuned.json")
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]
    assert np.array_equal(actions(load_policy(tmp_path / "policy")), actions(old))


def test_an_index_that_does_not_fit_on_the_disk_is_told_and_leaves_nothing(tmp_path):
    policy = policy_of("faiss", n_obs_steps=20)  # whose index is larger than its demonstrations
    with full_disk(9000), pytest.raises(SaveError, match=r"policy: expected to write it, .*nothing was changed"):
        policy.save(tmp_path / "policy")
    assert not list(tmp_path.iterdir())
    policy.save(tmp_path / "policy")
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "policy").iterdir()}
    assert sizes.pop("index.faiss") > 9000 > max(sizes.values())


DEEP = "[" * 100_000 + "]" * 100_000
HOSTILE = [
    ("n_steps", "1" + "0" * 400),
    ("n_steps", "9" * 5000),
    ("n_steps", "Infinity"),
    ("n_steps", "1e400"),
    ("n_steps", '"160"'),
    ("n_episodes", "NaN"),
    ("n_episodes", "0"),
    ("n_episodes", "-4"),
    ("n_episodes", "true"),
    ("next_episode_id", "9223372036854775808"),
    ("next_episode_id", "4.0"),
    ("next_episode_id", "3"),
    ("observation_layout", '[{"kind": "other", "size": 1000000000000000000, "body": null}]'),
    ("observation_layout", "[" + ", ".join(['{"kind": "other", "size": 1, "body": "b"}'] * 5000) + "]"),
    ("action_layout", '{"kind": "other"}'),
    ("action_layout", "[[]]"),
    ("action_layout", DEEP),
    ("parameters", "[]"),
    ("parameters", DEEP),
    ("parameters", '{"bandwidth": 1' + "0" * 4000 + "}"),
    ("policy", "[]"),
    ("crc32", "null"),
    ("format", "{}"),
    ("format_version", DEEP),
]


@pytest.mark.parametrize(("key", "text"), HOSTILE, ids=[f"{key} {text[:20]}" for key, text in HOSTILE])
def test_a_hostile_configuration_is_refused_before_anything_is_allocated(tmp_path, key, text):
    policy_of("exact").save(tmp_path / "policy")
    strip(tmp_path / "policy")
    path = tmp_path / "policy" / "config.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, key: "PLACE"}).replace('"PLACE"', text))
    tracemalloc.start()
    try:
        with pytest.raises(ClosedFormError) as refused:
            load_policy(tmp_path / "policy")
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 5000


@pytest.mark.parametrize(
    "change",
    [
        {"n_indexed": 10**18},
        {"n_indexed": None},
        {"recall": {"n_lists": 10**12}},
        {"recall": {"weighty": "much"}},
        {"recall": {"n_probes": 0}},
        {"recall": {"seconds": float("nan")}},
        {"seal": {"size": 1}},
        {"seal": []},
        {"summary_crc32": 5},
        {"identity": None},
    ],
)
def test_hostile_facts_about_an_index_are_refused(tmp_path, change):
    policy_of("faiss").save(tmp_path / "policy")
    strip(tmp_path / "policy")
    path = tmp_path / "policy" / "config.json"
    content = json.loads(path.read_text())
    for name, value in change.items():
        content["index"][name] = {**content["index"][name], **value} if name == "recall" else value
    path.write_text(json.dumps(content))
    with pytest.raises(LoadError):
        load_policy(tmp_path / "policy")


def test_a_pipe_in_place_of_a_file_is_refused_and_not_waited_for(tmp_path):
    policy_of("exact").save(tmp_path / "policy")
    for name in ("policy.safetensors", "config.json"):
        (tmp_path / "policy" / name).unlink()
        os.mkfifo(tmp_path / "policy" / name)
        with pytest.raises(LoadError, match="expected a regular file, found a device, pipe or socket"):
            load_policy(tmp_path / "policy")


@pytest.mark.parametrize("path", ["~nobody-of-this-name/policy", "a\0b", "x" * 5000])
def test_paths_that_cannot_be_are_refused(path):
    for call in (load_policy, verify, NearestNeighborPolicy.load, policy_of("exact").save):
        with pytest.raises(ClosedFormError):
            call(path)
