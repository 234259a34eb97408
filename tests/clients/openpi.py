"""Run by `scripts/test_clients.py` with openpi's own client and without closedform: port and token."""

import contextlib
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import websockets.exceptions
import websockets.sync.client
from openpi_client import msgpack_numpy
from openpi_client.action_chunk_broker import ActionChunkBroker
from openpi_client.websocket_client_policy import WebsocketClientPolicy

PORT, TOKEN = int(sys.argv[1]), sys.argv[2]
SEEN = np.array([222.0, 97.0, 222.99, 381.6, 3.008])
MEGABYTE = 2**20
N_CLIENTS = 32


def client():
    """The client as its users make it."""
    return WebsocketClientPolicy("127.0.0.1", PORT, api_key=TOKEN)


@contextlib.contextmanager
def connection():
    """The connection that the client opens, after the metadata."""
    with websockets.sync.client.connect(
        f"ws://127.0.0.1:{PORT}",
        compression=None,
        max_size=None,
        additional_headers={"Authorization": f"Api-Key {TOKEN}"},
    ) as opened:
        opened.recv()
        yield opened


def check_requests(policy):
    """Metadata, a request with keys that are not understood, and the reply."""
    metadata = policy.get_server_metadata()
    assert metadata["observation_keys"] == {"agent_position": 2, "block_position": 2, "block_angle": 1}, metadata
    image = np.zeros((224, 224, 3), np.uint8)
    reply = policy.infer({"observation": SEEN, "prompt": "push the T", "observation/image": image})
    assert reply["actions"].shape == (metadata["action_horizon"], 2), reply
    assert reply["ignored_keys"] == ["prompt", "observation/image"], reply
    assert reply["policy_timing"]["infer_ms"] > 0 and reply["server_timing"]["infer_ms"] > 0, reply


def check_broker(policy):
    """Three requests of the broker, which slices arrays; provenance comes through whole."""
    horizon = policy.get_server_metadata()["n_execute"]
    broker = ActionChunkBroker(policy, horizon)
    for _ in range(2 * horizon + 1):
        step = broker.infer({"agent_position": SEEN[:2], "block_position": SEEN[2:4], "block_angle": SEEN[4:]})
        assert step["actions"].shape == (2,), step
        assert len(step["demonstrations"]) == len(step["weights"]) > 0 and abs(sum(step["weights"]) - 1) < 1e-6, step
        assert step["familiarity"]["false_alarm_rate"] == 0.01, step


def check_errors():
    """An observation of three numbers, and a wrong token."""
    try:
        client().infer({"observation": SEEN[:3]})
    except RuntimeError as error:
        assert "observation: expected 5 numbers, found shape (3,)" in str(error), error
    else:
        raise AssertionError("expected an error for an observation of three numbers")
    for token in ("wrong", f"{TOKEN}2", ""):
        try:
            WebsocketClientPolicy("127.0.0.1", PORT, api_key=token)
        except Exception as error:
            assert "401" in str(error), error
        else:
            raise AssertionError(f"expected an error for the token {token!r}")


def check_malformed():
    """Messages that are no requests: each is told why, and closes its own connection with 1011."""
    packed = msgpack_numpy.packb({"observation": SEEN})
    for message in ("text", b"", b"\xc1", packed[:-3], msgpack_numpy.packb([1, 2]), b"\x91" * 9000):
        with connection() as opened:
            opened.send(message)
            said = opened.recv()
            assert isinstance(said, str) and "expected" in said, said
            with contextlib.suppress(websockets.exceptions.ConnectionClosed):
                opened.recv()
            assert opened.close_code == 1011, opened.close_code


def check_huge(policy):
    """15 MiB of images are fine, and 17 MiB close the connection with 1009."""
    image = np.zeros(15 * MEGABYTE, np.uint8)
    assert policy.infer({"observation": SEEN, "image": image})["ignored_keys"] == ["image"]
    with connection() as opened, contextlib.suppress(websockets.exceptions.ConnectionClosed):
        opened.send(msgpack_numpy.packb({"observation": SEEN, "image": np.zeros(17 * MEGABYTE, np.uint8)}))
        opened.recv()
    assert opened.close_code == 1009, opened.close_code


def check_abrupt():
    """Clients that vanish before their reply."""
    for _ in range(10):
        with connection() as opened:
            opened.send(msgpack_numpy.packb({"observation": SEEN}))
            opened.socket.shutdown(socket.SHUT_RDWR)


HANDSHAKE = (
    "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    f"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nAuthorization: Api-Key {TOKEN}\r\n\r\n"
)


def check_slow(policy):
    """A client that asks for as long as the sockets take it, and never reads; meanwhile others are served."""
    request = msgpack_numpy.packb({"observation": SEEN})
    frame = bytes([0x82, 0x80 | len(request), 0, 0, 0, 0]) + request  # masked with zeros
    assert len(request) < 126

    def ask():
        with contextlib.suppress(OSError):
            for _ in range(100_000):
                slow.sendall(frame)
        return "closed"

    with socket.create_connection(("127.0.0.1", PORT)) as slow, ThreadPoolExecutor(1) as pool:
        slow.sendall(HANDSHAKE.encode())
        assert slow.recv(12) == b"HTTP/1.1 101"
        asking = pool.submit(ask)
        for _ in range(50):
            assert policy.infer({"observation": SEEN})["actions"].shape[1] == 2
        assert not asking.done()
        slow.shutdown(socket.SHUT_RDWR)
        assert asking.result(60) == "closed"


def check_many():
    """32 clients at the same instants: each gets the plans of its own seed."""
    ready = threading.Barrier(N_CLIENTS)

    def run(robot):
        policy = client()
        ready.wait(60)
        first = policy.infer({"observation": SEEN, "seed": robot // 2})["actions"]
        others = [policy.infer({"observation": SEEN})["actions"] for _ in range(9)]
        return np.stack([first, *others])

    with ThreadPoolExecutor(N_CLIENTS) as pool:
        chunks = list(pool.map(run, range(N_CLIENTS)))
    for one, other in zip(chunks[::2], chunks[1::2], strict=True):
        np.testing.assert_array_equal(one, other)
    assert len({chunk.tobytes() for chunk in chunks}) == N_CLIENTS // 2


def main():
    """Runs all of it."""
    policy = client()
    check_requests(policy)
    check_broker(policy)
    check_errors()
    check_malformed()
    check_huge(policy)
    check_abrupt()
    check_slow(policy)
    check_many()
    check_requests(policy)  # after all that
    print(f"openpi-client with numpy {np.__version__}: as expected")


main()
