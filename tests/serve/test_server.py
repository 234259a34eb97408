"""The server over real sockets: openpi's protocol, many robots, and clients that misbehave."""

import contextlib
import http.client
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import numpy as np
import pytest

from closedform import ClosedFormPolicy
from closedform.errors import ConfigError, MissingExtraError, ServeError
from tests.conftest import planar_demos
from tests.serve.held_plans import held_plans

pytest.importorskip("websockets", reason="needs the extra serve")
msgpack = pytest.importorskip("msgpack", reason="needs the extra serve")
from websockets.exceptions import ConnectionClosed, ConnectionClosedError, InvalidStatus  # noqa: E402
from websockets.sync.client import connect  # noqa: E402

from closedform.client import Client  # noqa: E402
from closedform.serve import ServeConfig, serving  # noqa: E402
from closedform.wire import pack, require, unpack  # noqa: E402

DEMOS = planar_demos(np.random.default_rng(0))
HERE = DEMOS.episodes[2].observations[3]


@pytest.fixture(scope="module")
def policy():
    return ClosedFormPolicy(DEMOS, n_diffusion_steps=5)


@pytest.fixture(scope="module")
def address(policy):
    with serving(policy, ServeConfig(port=0, max_megabytes=1)) as address:
        yield address


def get(address, path, **headers):
    url = urlsplit(address)
    connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=30)
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    return response.status, response.read()


def test_openpis_protocol(address):
    """Metadata first, then request and reply, on any path, with timings; as openpi's client does it."""
    with connect(f"{address}/any/path?x=1", compression=None, max_size=None) as connection:
        metadata = msgpack.unpackb(connection.recv())
        assert metadata["observation_keys"] == {"hand_position": 2, "block_position": 2, "block_angle": 1}
        assert metadata["action_horizon"] == 12 and metadata["needs_wrist_camera"] is False
        assert connection.response is not None
        assert "Sec-WebSocket-Extensions" not in connection.response.headers
        for asked in range(3):
            connection.send(pack({"observation": HERE, "prompt": "push it"}))
            message = connection.recv()
            assert isinstance(message, bytes)
            reply = unpack(message)
            assert reply["actions"].shape == (12, 2) and reply["policy_timing"]["infer_ms"] > 0
            assert set(reply["server_timing"]) == ({"infer_ms", "prev_total_ms"} if asked else {"infer_ms"})


def test_an_error_is_a_text_and_then_1011(address):
    with connect(address) as connection:
        connection.recv()
        connection.send(pack({"observation": HERE[:3]}))
        assert connection.recv() == "observation: expected 5 numbers, found shape (3,)"
        with pytest.raises(ConnectionClosedError) as closed:
            connection.recv()
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1011


def test_an_array_as_endpoint_is_a_mistake_of_the_client(address, caplog):
    for endpoint in (np.zeros(3), np.array(["add", "add"]), None):
        with (
            Client(address) as client,
            pytest.raises(ServeError, match="endpoint: expected infer, reset, add or remove"),
        ):
            client.infer(HERE, endpoint=endpoint)
    assert "internal" not in caplog.text


@pytest.mark.parametrize(
    "message", ["text", b"", b"\xc1", msgpack.packb(3), b"\x91" * 9000, pack({"x": "\u00e9" * 500})]
)
def test_malformed_messages_close_one_connection_and_nothing_else(address, message):
    with Client(address) as other, connect(address) as connection:
        connection.recv()
        connection.send(message)
        said = connection.recv()
        assert isinstance(said, str) and "expected" in said and "\n" not in said
        with pytest.raises(ConnectionClosed):
            connection.recv()
        assert other.infer(HERE)["actions"].shape == (12, 2)


def test_a_fault_of_the_server_is_told_and_logged_and_no_end(address, policy, monkeypatch, caplog):
    def broken(*_, **__):
        raise ZeroDivisionError("secret")

    with Client(address) as client:
        client.infer(HERE)
        monkeypatch.setattr(policy, "step_together", broken)
        with pytest.raises(ServeError, match="internal error of the server: ZeroDivisionError") as error:
            client.infer(HERE)
        assert "secret" not in str(error.value) and "secret" in caplog.text
    monkeypatch.undo()
    with Client(address) as client:
        client.infer(HERE)


def test_a_huge_message_is_refused_before_it_is_read(address, caplog):
    with Client(address) as client, pytest.raises(ServeError, match=r"1009 .* exceeds limit of 1048576 bytes"):
        client.infer(np.zeros(2**20))
    with Client(address) as client:  # arrays just below are fine, if the observation is
        assert client.infer({"observation": HERE, "image": np.zeros(1000000, np.uint8)})["ignored_keys"] == ["image"]
    assert "more than 1 MiB was refused" in caplog.text


def test_health_and_strangers(address):
    assert get(address, "/healthz") == (200, b"OK\n")
    assert get(address, "/")[0] == 426  # not a WebSocket
    with socket.create_connection(urlsplit(address).netloc.split(":"), timeout=30) as stranger:
        stranger.sendall(b"\x16\x03\x01 this is no HTTP\r\n\r\n")
        while stranger.recv(1000):
            pass
    page = {"Origin": "http://a.page"}  # in a browser on this machine
    with pytest.raises(InvalidStatus) as refused, connect(address, additional_headers=page):
        pass
    assert refused.value.response.status_code == 403
    with Client(address) as client:
        client.infer(HERE)


def test_tokens(policy):
    with serving(policy, ServeConfig(port=0, token="right")) as address:
        for token in (None, "wrong", "right2", "r\u00efght"):
            with pytest.raises(ServeError, match=r"401.*Api-Key|cannot connect"):
                Client(address, token=token)
        assert get(address, "/healthz") == (200, b"OK\n")
        with Client(address, token="right") as client:
            assert client.infer(HERE)["actions"].shape == (12, 2)


def test_abrupt_disconnects_harm_nobody(address, caplog):
    for _ in range(5):
        with connect(address) as connection:
            connection.recv()
            connection.send(pack({"observation": HERE}))
            connection.socket.shutdown(socket.SHUT_RDWR)  # the reply meets a closed socket
    with Client(address) as client:
        client.infer(HERE)
    assert not [record for record in caplog.records if record.name.startswith("closedform")]


HANDSHAKE = (
    "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


def test_a_client_that_does_not_read_holds_up_nobody(address):
    """It sends requests for as long as the sockets take them; the others are served meanwhile."""
    request = pack({"observation": HERE})
    frame = bytes([0x82, 0x80 | len(request), 0, 0, 0, 0]) + request  # masked with zeros

    def flood():
        with contextlib.suppress(OSError):
            for _ in range(100_000):  # far more than the buffers on the way hold
                slow.sendall(frame)
        return "closed"

    assert len(request) < 126
    url = urlsplit(address)
    with socket.create_connection((url.hostname, url.port)) as slow, ThreadPoolExecutor(1) as pool:
        slow.sendall(HANDSHAKE.encode())
        assert slow.recv(12) == b"HTTP/1.1 101"
        flooding = pool.submit(flood)
        with Client(address) as client:
            for _ in range(50):
                assert client.infer(HERE)["actions"].shape == (12, 2)
        assert not flooding.done()
        slow.shutdown(socket.SHUT_RDWR)
        assert flooding.result(60) == "closed"


def test_planning_does_not_block_the_event_loop(policy, monkeypatch):
    """While a plan takes its time, the server says that it is healthy, and greets others."""
    with contextlib.ExitStack() as stack:
        address = stack.enter_context(serving(policy, ServeConfig(port=0, n_threads=1)))
        pool, client = stack.enter_context(ThreadPoolExecutor(1)), stack.enter_context(Client(address))
        client.infer(HERE)
        held = stack.enter_context(held_plans(policy, monkeypatch))
        reply = pool.submit(client.infer, HERE)
        assert held.began.wait(60)
        assert get(address, "/healthz")[0] == 200
        with Client(address) as other:
            assert other.metadata["action_horizon"] == 12
        assert not reply.done()
        held.go_on.set()
        assert reply.result(60)["actions"].shape == (12, 2)


def test_a_client_does_not_wait_for_ever(policy, monkeypatch):
    with (
        serving(policy) as address,
        Client(address, timeout=0.2) as client,
        held_plans(policy, monkeypatch) as held,
    ):
        with pytest.raises(ServeError, match=r"expected a reply within 0.2 s, found none"):
            client.infer(HERE)
        held.go_on.set()
        with pytest.raises(ServeError, match="closed"):  # a late reply is not taken for that of the next request
            client.infer(HERE)


def test_many_robots_at_once_each_get_their_own_plans(address, policy):
    """32 clients at once: each gets what an agent of its own would have planned."""

    def run(robot):
        seen = DEMOS.episodes[robot % 6].observations[robot % 5 :: 4][:5]
        agent = policy.agent(seed=robot)
        with Client(address, session_id=f"robot {robot}" if robot % 2 else None) as client:
            client.reset(robot)
            together.wait(60)
            return all(np.array_equal(client.infer(each)["actions"], agent.plan(each).actions) for each in seen)

    together = threading.Barrier(32)
    with ThreadPoolExecutor(32) as pool:
        assert list(pool.map(run, range(32))) == [True] * 32


def test_a_named_session_goes_on_after_reconnecting(address, policy):
    agent = policy.agent(seed=5)
    with Client(address, session_id="arm") as client:
        client.reset(5)
        np.testing.assert_array_equal(client.infer(HERE)["actions"], agent.plan(HERE).actions)
    with Client(address, session_id="arm") as client:
        np.testing.assert_array_equal(client.infer(HERE + 0.01)["actions"], agent.plan(HERE + 0.01).actions)


def test_demonstrations_over_the_wire(address):
    new = DEMOS.episodes[5]
    few = ClosedFormPolicy(DEMOS[:3], n_diffusion_steps=5)
    with serving(few, learn=True) as learning, Client(learning) as client, Client(learning) as other:
        assert client.metadata["learn"] is True
        assert client.add(new.observations, new.actions) == 3
        assert set(other.infer(new.observations[2])["demonstrations"]) == {3}
    with Client(address) as client, pytest.raises(ServeError, match="without --learn"):
        client.add(new.observations, new.actions)


def test_requests_under_way_are_answered_before_the_server_stops(policy, monkeypatch):
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(2))
        server = stack.enter_context(contextlib.ExitStack())
        address = server.enter_context(serving(policy, ServeConfig(port=0, grace=60)))
        busy, idle = stack.enter_context(Client(address)), stack.enter_context(connect(address))
        idle.recv()
        busy.infer(HERE)
        held = stack.enter_context(held_plans(policy, monkeypatch))
        reply = pool.submit(busy.infer, HERE)
        assert held.began.wait(60)
        stopped = pool.submit(server.close)
        with pytest.raises(ConnectionClosed) as closed:
            idle.recv()
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1001
        held.go_on.set()
        assert reply.result(60)["actions"].shape == (12, 2)
        stopped.result(60)
        with pytest.raises(ServeError, match="closed the connection: 1001"):
            busy.infer(HERE)
        with pytest.raises(ServeError, match="cannot connect"):
            Client(address)


def test_a_port_in_use_is_one_line(address, policy):
    port = urlsplit(address).port
    assert port
    with (
        pytest.raises(ServeError, match=f"cannot listen on 127.0.0.1 port {port}"),
        serving(policy, ServeConfig(port=port)),
    ):
        pass


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", -1),
        ("port", 70000),
        ("token", ""),
        ("token", "a\nb"),
        ("max_megabytes", 0),
        ("host", ""),
        ("n_threads", 0),
        ("host", "0.0.0.0"),  # without a token
        ("host", "::"),
    ],
)
def test_configurations_that_cannot_be(name, value):
    with pytest.raises(ConfigError, match=f"{name}: expected"):
        ServeConfig(**{name: value})


def test_missing_packages_are_named():
    with pytest.raises(MissingExtraError, match=r"closedform\[serve\]"):
        require("no_such_package")
