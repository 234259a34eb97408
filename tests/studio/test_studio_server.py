"""The studio's server: who may connect, who drives, and that nothing that is sent ends it."""

import contextlib
import gc
import io
import json
import re
import threading
import urllib.error
import urllib.request
import weakref
import zipfile

import pytest

from closedform import load_demos, load_policy
from closedform.cli import main
from closedform.errors import ConfigError
from closedform.studio import Pilot, Server
from closedform.studio.pilot import parameters_of
from closedform.studio.server import export, in_thread
from tests.studio.toys import Table, demonstrate, make_session, until_next

pytest.importorskip("uvicorn", reason="the extra `studio` is not installed")
connect = pytest.importorskip("websockets.sync.client").connect
ConnectionRefused = pytest.importorskip("websockets.exceptions").InvalidStatus


@pytest.fixture
def server():
    session = make_session()
    for _ in range(2):
        demonstrate(session)
        until_next(session)
    pilot = Pilot(lambda background: session)
    server = Server(pilot, "table")
    thread = in_thread(server)
    yield server
    server.stop()
    thread.join(20)
    assert not thread.is_alive()


def page(server, path="/", token=True):
    address = server.address.replace("/?", f"{path}?")
    return urllib.request.urlopen(address if token else address.split("?")[0], timeout=20)


def socket(server, **options):
    return connect(server.address.replace("http", "ws", 1).replace("/?", "/socket?"), **options)


def wait_for(connection, kind, holds=lambda message: True):
    """The next message of a kind for which something holds."""
    while True:
        message = json.loads(connection.recv(timeout=30))
        if message["kind"] == kind and holds(message):
            return message


def say(connection, kind, **content):
    connection.send(json.dumps({"type": kind, **content}))


def test_without_the_token_nothing_of_the_session_is_served(server):
    """The page without it is the same for everybody; a tab that has it may be loaded again."""
    assert page(server).read() == page(server, token=False).read()
    for wrong in ("", "?token=", "?token=wrong", "?token=%ff"):
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(server.address.split("/?")[0] + "/export/folder" + wrong, timeout=20)
    with pytest.raises(ConnectionRefused):
        connect(server.address.replace("http", "ws", 1).split("/?")[0] + "/socket?token=wrong")


def test_other_origins_are_refused(server):
    with pytest.raises(ConnectionRefused):
        socket(server, origin="http://example.com")
    with socket(server, origin=server.address.split("/?")[0]) as connection:
        wait_for(connection, "hello")


def test_names_of_others_that_lead_here_are_refused(server):
    """A page of an attacker whose name resolves to 127.0.0.1 is of the same origin, for the browser."""
    for path in ("/", "/export/folder"):
        for host, status in (("attacker.example", 403 if path == "/" else 401), (f"localhost:{server.port}", 200)):
            asked = urllib.request.Request(server.address.replace("/?", f"{path}?"), headers={"Host": host})
            try:
                found = urllib.request.urlopen(asked, timeout=20).status
            except urllib.error.HTTPError as error:
                found = error.code
            assert found == status
    with pytest.raises(ConnectionRefused):
        socket(server, origin="http://attacker.example", additional_headers={"Host": "attacker.example"})


def test_the_page_may_only_speak_to_its_own_origin_and_is_in_no_frame(server):
    said = page(server).headers["Content-Security-Policy"]
    own = f"127.0.0.1:{server.port}"
    assert f"connect-src 'self' ws://{own} wss://{own};" in said and "frame-ancestors 'none'" in said


def test_the_page_needs_no_other_host(server):
    html = page(server).read().decode()
    for name in ("studio.css", "studio.js", "stage.js", "drawing.js", "icon.svg"):
        assert page(server, f"/page/{name}", token=False).status == 200
    assert "http://" not in html and "https://" not in html


def test_what_a_page_does_arrives_in_the_session(server):
    with socket(server) as connection:
        hello = wait_for(connection, "hello")
        assert hello["hand"] == "hand" and hello["rate"] == Table.rate
        n = len(wait_for(connection, "takes")["takes"])
        say(connection, "pointer", point=[50, 50])
        wait_for(connection, "frame", lambda m: m["driver"] == "person" and m["recorded"] >= 5)
        say(connection, "pointer", point=None)
        takes = wait_for(connection, "takes", lambda m: len(m["takes"]) == n + 1)
        wait_for(connection, "frame", lambda m: m["driver"] == "policy")
        say(connection, "command", name="delete", take=takes["takes"][-1]["number"])
        wait_for(connection, "takes", lambda m: len(m["takes"]) == n)
        say(connection, "watch", take=0)
        assert set(wait_for(connection, "episode")["poses"]) == {"hand", "puck"}


def test_one_page_drives_and_others_watch_until_they_take_the_wheel(server):
    with socket(server) as first:
        assert wait_for(first, "role")["drives"]
        with socket(server) as second:
            assert not wait_for(second, "role")["drives"]
            say(second, "command", name="pause", paused=True)
            assert "another tab" in wait_for(second, "notice")["text"]
            say(second, "claim")
            wait_for(second, "role", lambda m: m["drives"])
            wait_for(first, "role", lambda m: not m["drives"])
        wait_for(first, "role", lambda m: m["drives"])  # the second is gone


def test_a_page_that_goes_away_while_it_drives_lets_go(server):
    with socket(server) as watcher_first:
        wait_for(watcher_first, "role")
        with socket(server) as driver:
            say(driver, "claim")
            wait_for(driver, "role", lambda m: m["drives"])
            say(driver, "pointer", point=[50, 50])
            wait_for(watcher_first, "frame", lambda m: m["driver"] == "person")
        wait_for(watcher_first, "frame", lambda m: m["driver"] != "person")


def test_malformed_messages_and_floods_are_answered_and_the_session_goes_on(server):
    with socket(server) as connection:
        for text in ("", "{", "[]", '{"type": "pointer", "point": "x"}', "x" * 5000):
            connection.send(text)
            wait_for(connection, "notice")
        for i in range(5000):
            say(connection, "pointer", point=[i % 100, 50])
        say(connection, "pointer", point=[20, 30])
        wait_for(connection, "frame", lambda m: m["target"] == [20, 30])
        with contextlib.suppress(Exception):  # it may hang up on bytes and on very long messages
            connection.send(b"\x00\xff")
            connection.send("x" * 100_000)
    with socket(server) as connection:
        wait_for(connection, "frame")


@pytest.mark.parametrize("chosen", ["folder", "zarr", "lerobot", "policy"])
def test_exports_can_be_read(server, chosen, tmp_path):
    if chosen in ("zarr", "lerobot"):
        pytest.importorskip({"zarr": "zarr", "lerobot": "pyarrow"}[chosen], reason="the extra `data` is not installed")
    zipfile.ZipFile(io.BytesIO(page(server, f"/export/{chosen}").read())).extractall(tmp_path)
    assert (tmp_path / "edits.jsonl").read_text().count('"add"') == 2
    if chosen == "policy":
        assert len(load_policy(tmp_path / "policy").episodes) == 2  # pyright: ignore[reportAttributeAccessIssue]
    else:
        assert len(load_demos(tmp_path / ("demos.zarr" if chosen == "zarr" else "demos"))) == 2


def test_an_unknown_export_is_refused(server):
    with pytest.raises(urllib.error.HTTPError, match="400"):
        page(server, "/export/pickle")


def test_a_taken_port_is_one_clear_line(server):
    with pytest.raises(ConfigError, match=f"found {server.port} .*--port"):
        Server(Pilot(lambda background: make_session()), "table", port=server.port)


def test_an_environment_that_fails_pauses_the_session(server, monkeypatch):
    with socket(server) as connection:
        with monkeypatch.context() as patched:
            patched.setattr(Table, "step", lambda self, action: 1 / 0)
            wait_for(connection, "notice", lambda m: "ZeroDivisionError" in m["text"])
            wait_for(connection, "frame", lambda m: m["paused"])
        say(connection, "command", name="pause", paused=False)
        wait_for(connection, "frame", lambda m: m["driver"] == "policy")


def test_an_export_is_of_one_moment(monkeypatch, tmp_path):
    session, asked = make_session(), []
    demonstrate(session)
    until_next(session)
    pilot = Pilot(lambda background: session)

    def ask(question):
        asked.append(question)
        answer = question(session)
        demonstrate(session)  # before the files are written
        until_next(session)
        return answer

    monkeypatch.setattr(pilot, "ask", ask)
    for chosen in ("policy", "folder"):
        n = len(session.collection.held)
        zipfile.ZipFile(io.BytesIO(export(pilot, chosen))).extractall(tmp_path / chosen)
        read = load_policy if chosen == "policy" else load_demos
        episodes = read(tmp_path / chosen / ("policy" if chosen == "policy" else "demos")).episodes  # pyright: ignore[reportAttributeAccessIssue]
        assert len(episodes) == (tmp_path / chosen / "edits.jsonl").read_text().count('"add"') == n
    assert len(asked) == 2 and len(session.collection.held) == 3
    pilot.close()


class Large:
    """Something to forget."""


def test_what_a_failed_job_held_is_forgotten_at_once():
    """Without the garbage collector, which comes rarely: a job holds a model, and an edit makes it fail."""
    held, answered, backgrounds = [], threading.Event(), []

    def job():
        large = Large()
        held.append(weakref.ref(large))
        raise IndexError("an episode was removed meanwhile")

    session = make_session()
    pilot = Pilot(lambda background: backgrounds.append(background) or session)
    pilot.start(lambda kind, content: None)
    gc.disable()
    try:
        backgrounds[0](job, lambda found: None)
        backgrounds[0](lambda: None, lambda found: answered.set())  # jobs run one after the other
        assert answered.wait(30)
        assert held[0]() is None
    finally:
        gc.enable()
        pilot.close()


def test_too_many_waiting_commands_are_refused():
    pilot = Pilot(lambda background: make_session())  # not started, so nothing is done
    accepted = sum(pilot.do(lambda session: None) for _ in range(1000))
    assert 1 <= accepted < 1000
    pilot.close()


def test_only_parameters_that_the_policy_has_are_offered():
    assert set(parameters_of(make_session())["values"]) == {"bandwidth", "tau", "n_execute", "frames"}


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["--env", "nothing"], "nothing"),
        (["--policy", "pusht-dit"], "made of demonstrations|torch"),
        (["--port", "70000"], "65535"),
        (["--host", "192.0.2.1", "--port", "0"], "host: expected an address of this machine, found '192.0.2.1'"),
        (["--demos", "/nowhere"], "/nowhere"),
    ],
)
def test_what_cannot_be_opened_is_one_clear_line(arguments, found, capsys):
    pytest.importorskip("gym_pusht", reason="the extra `pusht` is not installed")
    with pytest.raises(SystemExit):
        main(["studio", "--no-open", *arguments])
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert re.search(found, error)
