"""A fleet's table: what is pushed is stored once and whole, whoever pushes too, is killed, or has no room."""

import json
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from closedform import Demos, Layout, load_demos, save_demos
from closedform.cli import main
from closedform.errors import ConfigError, DataError, LoadError, SaveError
from closedform.fleet import FleetTable, Where
from closedform.fleet.fleet_table import live
from tests.conftest import planar_demos, random_demos
from tests.fleet.spoiled import spoil

pytest.importorskip("lancedb", reason="LanceDB is not installed: make test-fleet")

ROOT = Path(__file__).parents[2]
PUSHING = """
import resource, sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from closedform.errors import ClosedFormError
from closedform.fleet import FleetTable
from tests.conftest import random_demos

uri, robot, first, last, options = sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), eval(sys.argv[6])
table = FleetTable.open(uri, options)
print("ready", flush=True)
sys.stdin.readline()
for seed in range(first, last):
    demos = random_demos(np.random.default_rng(seed), 1, 40, 3, 2)
    pushed = table.push(demos, robot=robot)
    print(*pushed.stored, *pushed.known, flush=True)
"""


def pusher(uri, robot, first, last, options=None):
    """A process that pushes an episode for each seed, and prints each once it is acknowledged."""
    arguments = [str(ROOT), str(uri), robot, str(first), str(last), repr(options)]
    process = subprocess.Popen(
        [sys.executable, "-c", PUSHING, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def start(process):
    process.stdin.write("go\n")
    process.stdin.flush()


def episodes_of(seeds):
    return [random_demos(np.random.default_rng(seed), 1, 40, 3, 2)[0] for seed in seeds]


def check_whole(table, seeds):
    """The table has exactly the episodes of these seeds, with all of their numbers."""
    table.refresh()
    found = {bytes(e.observations.data) + bytes(e.actions.data) for e in table.demos()}
    wanted = {bytes(e.observations.data) + bytes(e.actions.data) for e in episodes_of(seeds)}
    assert found == wanted and len(table.demos()) == len(wanted)


@pytest.fixture
def table(tmp_path):
    return FleetTable.create(tmp_path / "fleet")


def same(demos, other):
    assert len(demos) == len(other)
    for one, two in zip(demos, other, strict=True):
        np.testing.assert_array_equal(one.observations, two.observations)
        np.testing.assert_array_equal(one.actions, two.actions)


@pytest.mark.parametrize("target", ["a.zarr", "a.zarr.zip", "a.hdf5", "a", "lerobot"])
def test_every_format_is_pushed_and_pulled(tmp_path, monkeypatch, capsys, target):
    monkeypatch.chdir(tmp_path)
    demos = planar_demos(np.random.default_rng(0))
    demos.rate = 10.0
    to = ["--to", "lerobot"] if target == "lerobot" else []
    save_demos(demos, target, *to[1:])
    main(["fleet", "init", "fleet"])
    main(["fleet", "push", "fleet", target, "--task", "circle"])
    main(["fleet", "pull", "fleet", f"new-{target}", *to])
    assert capsys.readouterr().out.splitlines()[-1] == f"6 episodes, 180 steps: new-{target}"
    again = load_demos(f"new-{target}")
    same(again, load_demos(target))
    assert again.observation_layout == demos.observation_layout and again.action_layout == demos.action_layout


@pytest.mark.parametrize("target", ["a.npz", "a.csv"])
def test_formats_without_layouts_are_pushed_and_pulled(tmp_path, monkeypatch, target):
    monkeypatch.chdir(tmp_path)
    demos = random_demos(np.random.default_rng(0), 3, 40, 3, 2)
    save_demos(demos, target)
    main(["fleet", "init", "fleet"])
    main(["fleet", "push", "fleet", target])
    main(["fleet", "pull", "fleet", f"new-{target}", "--to", target[2:]])
    same(load_demos(f"new-{target}"), demos)


def test_formats_that_are_only_read_are_pushed(tmp_path, monkeypatch):
    h5py = pytest.importorskip("h5py", reason="needs the extra data: make test-fleet")
    monkeypatch.chdir(tmp_path)
    demos = random_demos(np.random.default_rng(0), 2, 40, 3, 2)
    with h5py.File("main_data.hdf5", "w") as file:  # Minari's, with an observation after the last action
        for index, episode in enumerate(demos):
            last = episode.observations[-1:]
            file[f"episode_{index}/observations"] = np.concatenate([episode.observations, last])
            file[f"episode_{index}/actions"] = episode.actions
    steps = np.zeros(40, [("episode", int), ("observation", float, 3), ("action", float, 2)])
    steps["observation"], steps["action"] = demos[1].observations, demos[1].actions
    np.save("steps.npy", steps)
    main(["fleet", "init", "fleet"])
    main(["fleet", "push", "fleet", "main_data.hdf5", "--episodes", "0"])
    main(["fleet", "push", "fleet", "steps.npy"])
    same(FleetTable.open("fleet").demos(), demos)


def test_an_episode_pushed_twice_is_stored_once(table):
    demos = random_demos(np.random.default_rng(1), 3, 40, 3, 2)
    assert len(table.push(demos, robot="one").stored) == 3
    again = table.push(Demos([*demos, *random_demos(np.random.default_rng(2), 1, 40, 3, 2)]), robot="two")
    assert (len(again.stored), len(again.known)) == (1, 3)
    assert table.n_rows() == 4
    changed = Demos([(demos[0].observations + 1e-12, demos[0].actions)])
    assert len(table.push(changed).stored) == 1
    assert len(table.push(Demos([demos[0], demos[0]], rate=10)).stored) == 1  # at another rate it is another episode


def test_two_that_push_the_same_at_the_same_moment_store_it_once_for_every_reader(table, monkeypatch):
    demos = random_demos(np.random.default_rng(3), 1, 40, 3, 2)
    monkeypatch.setattr(FleetTable, "_about", lambda self, names: [])  # neither sees the other's row before its own
    for robot in ("one", "two"):
        assert len(table.push(demos, robot=robot).stored) == 1
    assert table.n_rows() == 2
    assert [row.robot for row in live(table.rows()).values()] == ["one"]
    same(table.demos(), demos)
    monkeypatch.undo()
    table.remove([table.rows()[0].episode])
    assert not live(table.rows())


def test_a_removed_episode_is_gone_until_it_is_pushed_again(table):
    demos = random_demos(np.random.default_rng(4), 3, 40, 3, 2)
    names = table.push(demos).stored
    assert table.remove([names[1][:12]]) == 1
    same(table.demos(), [demos[0], demos[2]])
    with pytest.raises(DataError, match=r"expected one episode \w+, found no such episode"):
        table.remove([names[1]])
    assert table.n_rows() == 4  # nothing was erased
    assert table.push(demos).stored == (names[1],)
    same(table.demos(), [demos[0], demos[2], demos[1]])


@pytest.mark.parametrize("options", [None, "s3"])
def test_two_push_at_once_and_one_is_killed(tmp_path, request, options):
    uri, options = (tmp_path / "fleet", None) if options is None else request.getfixturevalue("s3")
    table = FleetTable.create(uri, options)
    seeds = {"one": (0, 12), "two": (6, 18), "three": (100, 140)}
    pushers = [pusher(uri, robot, *range_, options) for robot, range_ in seeds.items()]
    for process in pushers:
        start(process)
    said = pushers[2].stdout
    assert said is not None
    acknowledged = {said.readline().strip() for _ in range(4)}
    pushers[2].send_signal(signal.SIGKILL)
    acknowledged |= {line.strip() for line in said if line.endswith("\n")}
    for process in pushers[:2]:
        acknowledged |= {line.strip() for line in process.communicate()[0].splitlines()}
        assert process.returncode == 0
    table.refresh()
    there = live(table.rows())
    assert acknowledged <= set(there)  # none that was acknowledged is lost
    killed = [row for row in there.values() if row.robot == "three"]
    check_whole(table, [*range(18), *range(100, 100 + len(killed))])  # none is doubled or cut, and those in order
    numbers = [row.number for row in table.rows()]
    assert numbers == list(range(len(numbers)))


@pytest.fixture
def s3(monkeypatch):
    """An S3-compatible server on this machine, with a bucket."""
    server = pytest.importorskip("moto.server", reason="moto is not installed: make test-fleet")
    boto3 = pytest.importorskip("boto3")
    moto = server.ThreadedMotoServer("127.0.0.1", 0)
    moto.start()
    endpoint = "http://{}:{}".format(*moto.get_host_and_port())
    secrets = {"aws_access_key_id": "key", "aws_secret_access_key": "secret"}
    boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", **secrets).create_bucket(Bucket="fleet")
    yield "s3://fleet/demos", {"endpoint": endpoint, "allow_http": "true", "region": "us-east-1", **secrets}
    moto.stop()


FULL = """
import resource, signal, sys
sys.path.insert(0, sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
import numpy as np
from closedform.errors import ClosedFormError
from closedform.fleet import FleetTable
from tests.conftest import random_demos

table = FleetTable.open("fleet")
table.push(random_demos(np.random.default_rng(0), 1, 40, 3, 2))
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    table.push(random_demos(np.random.default_rng(1), 1, 4000, 3, 2))
except ClosedFormError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="sizes of files cannot be limited")
@pytest.mark.parametrize("room", [0, 100, 20_000])
def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path, table, room):
    arguments = [sys.executable, "-c", FULL, str(ROOT), str(room)]
    done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout.startswith("SaveError ") and "push again" in done.stdout and done.stdout.count("\n") == 1
    check_whole(table, [0])
    assert len(table.push(Demos(episodes_of([2]))).stored) == 1  # there is room again
    check_whole(table, [0, 2])


def test_a_store_that_is_gone_is_one_line_until_it_is_back(tmp_path, table):
    table.push(Demos(episodes_of([0])))
    (tmp_path / "fleet").rename(tmp_path / "away")
    for attempt in (table.refresh, lambda: table.push(Demos(episodes_of([1]))), lambda: FleetTable.open(table.uri)):
        with pytest.raises((LoadError, SaveError), match="expected a fleet"):
            attempt()
    (tmp_path / "away").rename(tmp_path / "fleet")
    table.push(Demos(episodes_of([1])))
    check_whole(table, [0, 1])


def test_clocks_that_differ_change_no_order(table):
    ahead = datetime.now(UTC) + timedelta(days=40_000)
    for seed, time in enumerate([ahead, "1999-01-01T00:00:00", None]):
        table.push(Demos(episodes_of([seed])), time=time)
    same(table.demos(), episodes_of([0, 1, 2]))
    same(Demos([e for _, e in table.episodes(table.rows(start=1))]), episodes_of([1, 2]))
    same(table.demos(Where(until=datetime(2000, 1, 1, tzinfo=UTC))), episodes_of([1]))
    same(table.demos(Where.of({"since": "2100-01-01"})), episodes_of([0]))


@pytest.mark.parametrize("odd", ["it's", "' OR 1 = 1 --", '"; DROP TABLE episodes', "a' OR 'a' = 'a", "%", "_", "\\'"])
def test_labels_are_text_and_never_conditions(table, odd):
    table.push(Demos(episodes_of([0])), task="plain", site="plain", robot="plain")
    table.push(Demos(episodes_of([1])), task=odd, site=odd, robot=odd)
    for name in ("task", "site", "robot"):
        same(table.demos(Where.of({name: odd})), episodes_of([1]))
        assert not table.rows(Where.of({name: odd + "x"}))


def test_choices_add_up(table, monkeypatch, tmp_path):
    for seed, labels in enumerate(["pick lab success", "pick lab failure", "pick hall success", "place lab unknown"]):
        named = dict(zip(("task", "site", "outcome"), labels.split(), strict=True))
        table.push(Demos(episodes_of([seed])), **named, time=f"20{seed}0-01-01")
    monkeypatch.chdir(tmp_path)
    for chosen, seeds in {
        "--outcome success": [0, 2],
        "--outcome failure": [1],
        "--outcome unknown": [3],
        "--task pick --site lab --outcome success": [0],
        "--site lab --since 2010-01-01": [1, 3],
        "--outcome success --until 2010-01-01": [0],
    }.items():
        target = chosen.replace(" ", "").strip("-")
        main(["fleet", "pull", "fleet", target, *chosen.split()])
        same(load_demos(target), episodes_of(seeds))


@pytest.mark.parametrize(
    "wrong",
    [{"task": 3}, {"task": "a\nb"}, {"outcome": "fine"}, {"since": "soon"}, {"tasks": "a"}, {"robot": "r" * 1000}],
)
def test_wrong_choices_are_refused(wrong):
    with pytest.raises(ConfigError, match="expected"):
        Where.of(wrong)


def test_episodes_of_several_layouts_share_a_table_and_are_chosen_by_label(table):
    table.push(planar_demos(np.random.default_rng(0)), task="circle")
    table.push(Demos(episodes_of([0])), task="walk")
    with pytest.raises(DataError, match="found 2 kinds; choose a task, site or robot"):
        table.demos()
    assert table.demos(Where(task="circle")).observation_layout.bodies == ("hand", "block")
    with pytest.raises(DataError, match=r"expected episodes \(task swim\), found none"):
        table.demos(Where(task="swim"))


def test_a_damaged_episode_is_refused(table, monkeypatch):
    table.push(Demos(episodes_of([0])))
    numbers = next(table._numbers(table.rows()))[1]
    damaged = bytearray(numbers["observations"])
    damaged[8] ^= 1
    monkeypatch.setattr(FleetTable, "_numbers", lambda self, rows: [(rows[0], {**numbers, "observations": damaged})])
    with pytest.raises(DataError, match="checksum mismatch"):
        table.demos()


def test_the_episodes_beside_a_damaged_one_are_pulled(table, monkeypatch):
    table.push(Demos(episodes_of([0, 1])))
    read = FleetTable._numbers

    def damaging(self, rows):
        for number, (row, numbers) in enumerate(read(self, rows)):
            yield row, {**numbers, **({"actions": numbers["actions"][::-1]} if not number else {})}

    monkeypatch.setattr(FleetTable, "_numbers", damaging)
    same(table.demos(), episodes_of([1]))
    assert "checksum mismatch" in table.quarantined[0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"time": 2**62},
        {"time": -(2**62)},
        {"time": None},
        {"n_steps": -1},
        {"n_steps": 2**40},
        {"n_bytes": -1},
        {"kind": "other"},
        {"episode": "x"},
        {"episode": None},
        {"rate": -1.0},
        {"layout": "{"},
        {"layout": None},
        {"task": None},
        {"task": "two\nlines"},
    ],
)
def test_rows_that_no_push_writes_are_left_out_by_name(tmp_path, table, wrong, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    table.push(Demos(episodes_of([0])))
    spoil(table, **wrong)
    table.push(Demos(episodes_of([1])))
    for action in (["status"], ["list"], ["pull", "pulled"]):
        main(["fleet", action[0], "fleet", *action[1:]])
        error = capsys.readouterr().err
        assert "left out: row 1, episode" in error and error.count("\n") == 1
    same(load_demos("pulled"), episodes_of([0, 1]))


def test_what_list_shows_is_what_remove_takes(tmp_path, table, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    table.push(Demos(episodes_of([0, 1])), task="walk")
    table.push(Demos(episodes_of([2])), task="swim")
    main(["fleet", "list", "fleet", "--task", "walk"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 and all("walk" in line for line in lines)
    main(["fleet", "remove", "fleet", lines[1].split()[1]])
    capsys.readouterr()
    main(["fleet", "list", "fleet", "--json"])
    assert [json.loads(line)["number"] for line in capsys.readouterr().out.splitlines()] == [0, 2]


def test_merging_files_changes_neither_rows_nor_their_numbers(tmp_path, table, monkeypatch, capsys):
    for seed in range(6):
        table.push(Demos(episodes_of([seed])))
    table.remove([table.rows()[2].episode])
    before = table.rows()
    other = FleetTable.open(table.uri)
    monkeypatch.chdir(tmp_path)
    main(["fleet", "compact", "fleet"])
    assert capsys.readouterr().out.startswith("7 rows in merged files")
    table.push(Demos(episodes_of([6])))  # by one who has not seen it
    for each in (table, other):
        each.refresh()
        assert each.rows()[:7] == before and [row.number for row in each.rows(start=6)] == [6, 7]
    check_whole(table, [0, 1, 3, 4, 5, 6])


def test_another_table_is_refused(tmp_path):
    import lancedb

    lancedb.connect(str(tmp_path)).create_table("episodes", [{"a": 1}])
    with pytest.raises(LoadError, match="expected a fleet of format 1, found another table"):
        FleetTable.open(tmp_path)


def test_status_watch_and_remove(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    save_demos(planar_demos(np.random.default_rng(0)), "demos")
    main(["fleet", "init", "fleet"])
    main(["fleet", "push", "fleet", "demos", "--task", "circle", "--site", "here", "--outcome", "success"])
    capsys.readouterr()
    main(["fleet", "status", "fleet", "--json"])
    facts = json.loads(capsys.readouterr().out)
    assert facts["episodes"] == 6 and facts["steps"] == 180 and facts["task"] == {"circle": 6}
    waits = iter([lambda: main(["fleet", "push", "fleet", "demos", "--episodes", "0"]), another, stop])
    monkeypatch.setattr("closedform.fleet.commands.time.sleep", lambda seconds: next(waits)())
    with pytest.raises(SystemExit):
        main(["fleet", "watch", "fleet"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("version 2: 6 rows so far") and lines[-1].endswith("50 steps, unknown walk")
    name = lines[-1].split()[1]
    main(["fleet", "remove", "fleet", name])
    main(["fleet", "status", "fleet"])
    assert "6 episodes, 180 steps" in capsys.readouterr().out


def another():
    FleetTable.open("fleet").push(random_demos(np.random.default_rng(5), 1, 50, 3, 2), task="walk")


def stop():
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["push", "fleet"], "expected demonstrations to push after the fleet, found nothing"),
        (["pull", "fleet"], "expected where to write"),
        (["pull", "fleet", "new"], "expected episodes (all), found none"),
        (["status", "fleet", "--to", "zarr"], "expected no --to"),
        (["pull", "fleet", "new", "--mask", "a"], "expected no --mask"),
        (["status", "nowhere"], "expected a fleet, found none; create one with: closedform fleet init"),
        (["status", "ftp://host/fleet"], "expected a folder, s3://, gs://, az:// or db://, found ftp://"),
        (["init", "fleet"], "expected no fleet yet, found one"),
        (["remove", "fleet", "x' OR 1=1"], "expected the sha256 of an episode"),
    ],
)
def test_a_mistake_is_one_line(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    FleetTable.create("fleet")
    with pytest.raises(SystemExit) as stop:
        main(["fleet", *arguments])
    said = capsys.readouterr().err
    assert stop.value.code == 2 and message in said and said.count("\n") == 1


def test_layouts_survive(table):
    layout = Layout.of(("hand", "position", 2), ("block", "angle", 1, "mirror_x"))
    episode = np.random.default_rng(6).normal(size=(20, 3)).astype(np.float32)
    table.push(Demos([(episode, episode[:, :2])], layout, Layout.of(("hand", "position", 2)), rate=12.5))
    demos = table.demos()
    assert demos.observation_layout == layout and demos.rate == 12.5
    assert demos[0].observations.dtype == np.float32
