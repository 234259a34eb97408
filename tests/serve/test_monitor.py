"""The monitor in front of a policy server: what passes, what is added, and what happens when the alarm lasts."""

import contextlib
import threading

import numpy as np
import pytest

from closedform import ClosedFormPolicy, Demos, NearestNeighborPolicy
from closedform.analysis import measure_familiarity
from closedform.errors import ConfigError, ServeError
from tests.conftest import planar_demos

pytest.importorskip("websockets", reason="needs the extra serve")
msgpack = pytest.importorskip("msgpack", reason="needs the extra serve")
from websockets.exceptions import ConnectionClosed  # noqa: E402
from websockets.sync.client import connect  # noqa: E402
from websockets.sync.server import serve  # noqa: E402

from closedform import wire  # noqa: E402
from closedform.client import Client  # noqa: E402
from closedform.serve import Monitor, ServeConfig, Service, monitoring, serving  # noqa: E402
from closedform.wire import pack, unpack, with_key  # noqa: E402

DEMOS = planar_demos(np.random.default_rng(0))
HERE = DEMOS.episodes[2].observations[3]
FAR = HERE + 5


@pytest.fixture(scope="module")
def policy():
    return ClosedFormPolicy(DEMOS, n_diffusion_steps=5)


@pytest.fixture(scope="module")
def service(policy):
    return Service(policy, false_alarm_rate=0.05)


@pytest.fixture(scope="module")
def upstream(policy):
    with serving(policy, ServeConfig(port=0, token="key")) as address:
        yield address


@contextlib.contextmanager
def watched(service, upstream, **options):
    with (
        monitoring(Monitor(service, **options), upstream) as address,
        Client(address, token="key", session_id="arm") as client,
    ):
        yield client


@pytest.mark.parametrize("n", [0, 1, 14, 15, 16, 65535, 65536])
def test_a_key_is_added_and_nothing_else_changes(n):
    packed = msgpack.packb({i: i for i in range(n)})
    assert unpack_any(with_key(packed, "new", [1.5])) == {**{i: i for i in range(n)}, "new": [1.5]}
    if n > 1:
        assert msgpack.packb(n - 1) + pack("new") + pack([1.5]) in with_key(packed, "new", [1.5])
    for other in (b"", msgpack.packb([1, 2]), b"\xc1"):
        assert with_key(other, "new", 1) == other


def received(connection):
    message = connection.recv()
    assert isinstance(message, bytes)
    return unpack(message)


def unpack_any(packed):
    return msgpack.unpackb(packed, strict_map_key=False)


def test_everything_passes_and_the_monitor_is_added(service, upstream):
    """The reply is byte for byte that of the server, with one more key."""
    requests = [pack({"observation": seen, "seed": 1, "image": np.zeros(9)}) for seen in (HERE, FAR)]
    with monitoring(Monitor(service), upstream) as address, contextlib.ExitStack() as stack:
        key = {"Authorization": "Api-Key key"}
        near, direct = (
            stack.enter_context(connect(f"{place}/any/path", additional_headers=key)) for place in (address, upstream)
        )
        metadata, own = received(near), received(direct)
        assert metadata.pop("monitor")["false_alarm_rate"] == 0.05 and metadata == own
        for request, alarm in zip(requests, (False, True), strict=True):
            for connection in (near, direct):
                connection.send(request)
            reply, own = received(near), received(direct)
            added = reply.pop("monitor")
            assert list(reply) == list(own) and np.array_equal(reply["actions"], own["actions"])
            assert added["alarm"] is alarm and added["familiarity"]["alarm"] is alarm
            rate = 0.05 if alarm else 1 / (len(DEMOS) + 1)  # the smallest that so few starts can keep
            assert added["familiarity"]["false_alarm_rate"] == rate and added["acting"] == "upstream"
            assert sum(added["weights"]) == pytest.approx(1) and len(added["demonstrations"]) == len(added["steps"])
            assert not any(isinstance(value, np.ndarray) for value in added.values())


def test_errors_of_the_policy_pass(service, upstream):
    with monitoring(Monitor(service), upstream) as address:
        with pytest.raises(ServeError, match=r"401.*|refused|behind this monitor"):
            Client(address, token="wrong")
        with Client(address, token="key") as client, pytest.raises(ServeError, match="expected 5 numbers"):
            client.infer(HERE[:3])
        with connect(address, additional_headers={"Authorization": "Api-Key key"}) as connection:
            connection.recv()
            connection.send(b"\xc1")
            assert "msgpack" in str(connection.recv())
            with pytest.raises(ConnectionClosed) as closed:
                connection.recv()
            assert closed.value.rcvd is not None and closed.value.rcvd.code == 1011


def test_no_policy_behind_it_is_one_line(service):
    with (
        monitoring(Monitor(service), "ws://127.0.0.1:9") as address,
        pytest.raises(ServeError, match="expected a policy server behind this monitor"),
    ):
        Client(address)


def test_how_long_the_alarm_lasts(service, upstream):
    with watched(service, upstream) as client:
        lasted = [client.infer(seen)["monitor"]["lasted"] for seen in (FAR, FAR, HERE, FAR)]
        assert lasted == [1, 2, 0, 1]
        client.infer(FAR, session_id="another robot")
        assert client.infer(FAR)["monitor"]["lasted"] == 2
        client.reset(0)
        assert client.infer(FAR)["monitor"]["lasted"] == 1


def test_the_first_observation_is_compared_with_starts(service, upstream):
    """Those of a connection, of a robot on it, and after a reset; the server says the same of its own plans."""
    usual, starts = service.familiarity, service.familiarity.at(first=True)
    assert usual.threshold != starts.threshold

    def thresholds(client, **options):
        reply = client.infer(HERE, **options)
        assert reply["familiarity"]["distance"] == reply["monitor"]["familiarity"]["distance"]
        return [reply["monitor"]["familiarity"]["threshold"], reply["familiarity"]["threshold"]]

    with watched(service, upstream) as client:
        assert thresholds(client)[0] == starts.threshold
        of_upstream = measure_familiarity(service.policy, 0.01).at(first=True).threshold
        assert [thresholds(client)[0] for _ in range(2)] == [usual.threshold] * 2
        assert thresholds(client, session_id="a new robot") == [starts.threshold, of_upstream]
        client.reset(0)
        assert thresholds(client) == [starts.threshold, of_upstream]
        assert thresholds(client)[0] == usual.threshold


def test_it_stops_when_the_alarm_has_lasted(service, upstream):
    with watched(service, upstream, then="stop", after=2) as client:
        for seen in (FAR, HERE, FAR):
            client.infer(seen)
        with pytest.raises(ServeError, match="stopped: out of the range of the demonstrations for 2 observations"):
            client.infer(FAR)


@pytest.mark.parametrize("then", ["tell", "stop"])
def test_a_request_that_only_the_policy_can_read_raises_the_alarm(service, monkeypatch, then):
    """Such as one with more elements than the monitor unpacks."""
    watch = Monitor(service, then=then, after=1).open()
    with monkeypatch.context() as patched:
        patched.setattr(wire, "LARGEST", 10)
        verdict = watch.look(pack({"observation": HERE, "prompt": ["word"] * 20}))
    assert verdict is not None and verdict.due is (then == "stop") and "max_array_len" in watch.stopped(verdict)
    added = unpack(watch.reply(pack({"actions": 1}), verdict))["monitor"]
    assert added["alarm"] is True and added["lasted"] == 1 and "max_array_len" in added["problem"]


def test_it_falls_back_and_returns(service, upstream):
    """The fallback acts from the second alarm in a row on; afterwards the policy behind it goes on."""
    few = NearestNeighborPolicy(Demos(DEMOS.episodes[3:5], DEMOS.observation_layout, DEMOS.action_layout))
    with watched(service, upstream, then="fallback", after=2, fallback=Service(few)) as client:
        replies = [client.infer(seen) for seen in (FAR, FAR, FAR, HERE)]
    assert [reply["monitor"]["acting"] for reply in replies] == ["upstream", "fallback", "fallback", "upstream"]
    np.testing.assert_array_equal(replies[1]["actions"], few.plan(FAR).actions)
    assert not np.array_equal(replies[0]["actions"], replies[1]["actions"])


def test_observations_that_cannot_be_read_raise_the_alarm(service, policy):
    """The policy behind it may understand keys that the monitor does not."""
    with serving(policy) as address, watched(service, address, keys=("arm", "block")) as client:
        reply = client.infer(HERE)
        assert reply["monitor"]["alarm"] is True and "expected the keys arm, block" in reply["monitor"]["problem"]
        reply = client.infer(HERE, arm=np.stack([FAR[:2], HERE[:2]]), block=HERE[2:])  # the newest of two
        assert reply["monitor"]["alarm"] is False


@pytest.mark.parametrize(
    ("options", "message"), [({"after": 0}, "after: expected"), ({"then": "fallback"}, "a policy to fall back to")]
)
def test_monitors_that_cannot_be(service, options, message):
    with pytest.raises(ConfigError, match=message):
        Monitor(service, **options)


@contextlib.contextmanager
def behind(answer):
    """A policy server that packs what `answer` makes of each request; bytes as they are."""

    def handle(connection):
        connection.send(pack({"policy": "another"}))
        for message in connection:
            reply = answer(unpack(message))
            connection.send(reply if isinstance(reply, bytes) else pack(reply))

    with serve(handle, "127.0.0.1", 0, compression=None) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("endpoint", [None, "act", 3, np.zeros(2)])
def test_every_request_is_judged_whatever_it_asks_for(service, endpoint):
    """The policy behind the monitor may answer all of them with actions."""
    with (
        behind(lambda request: {"actions": np.zeros((2, 2))}) as address,
        monitoring(Monitor(service), address) as monitored,
        Client(monitored) as client,
    ):
        assert client.infer(FAR, endpoint=endpoint)["monitor"]["alarm"] is True


def test_actions_in_reply_to_a_request_that_is_not_judged_are_refused(service):
    """openpi's own server takes every request for one of actions."""
    with behind(lambda request: {"actions": np.zeros((2, 2))}) as address:
        for endpoint in ("reset", "add"):
            with (
                monitoring(Monitor(service), address) as monitored,
                Client(monitored) as client,
                pytest.raises(ServeError, match=f"expected no actions in the reply to '{endpoint}'"),
            ):
                client.infer(FAR, endpoint=endpoint)


def test_actions_that_are_not_finite_raise_the_alarm(service, policy):
    replies = {"actions": np.full((2, 2), np.nan)}, {"actions": {"arm": np.zeros((2, 1)), "hand": [np.inf]}}
    for reply in replies:
        with behind(lambda request, reply=reply: reply) as address, contextlib.ExitStack() as stack:
            client = stack.enter_context(watched(service, address))
            said = client.infer(HERE)["monitor"]
            assert said["alarm"] is True and "not finite" in said["problem"]
            client = stack.enter_context(watched(service, address, then="stop"))
            with pytest.raises(ServeError, match=r"stopped: the actions .* are not finite"):
                client.infer(HERE)
    with (
        behind(lambda request: replies[0]) as address,
        watched(service, address, then="fallback", fallback=Service(policy)) as client,
    ):
        reply = client.infer(HERE)
        assert np.isfinite(reply["actions"]).all() and reply["monitor"]["acting"] == "fallback"


def test_a_reply_that_cannot_be_read_is_not_passed_on(service):
    with (
        behind(lambda request: b"\xdf\xff\xff\xff\xff") as address,
        watched(service, address) as client,
        pytest.raises(ServeError, match="the reply of the policy behind this monitor: expected a msgpack"),
    ):
        client.infer(HERE)


def test_a_new_name_does_not_end_an_alarm(service, upstream):
    with watched(service, upstream, then="stop", after=3) as client:
        for name in ("a", "b"):
            client.infer(FAR, session_id=name)
        with pytest.raises(ServeError, match="stopped: out of the range of the demonstrations for 3 observations"):
            client.infer(FAR, session_id="c")


def test_clients_that_leave_while_the_policy_hangs_leave_no_connections(service):
    asked, left = threading.Semaphore(0), threading.Semaphore(0)

    def handle(connection):
        connection.send(pack({}))
        connection.recv()
        asked.release()
        with pytest.raises(ConnectionClosed):
            connection.recv(timeout=60)
        left.release()

    with serve(handle, "127.0.0.1", 0, compression=None) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            with monitoring(Monitor(service), f"ws://127.0.0.1:{server.socket.getsockname()[1]}") as address:
                with contextlib.ExitStack() as stack:
                    clients = [stack.enter_context(connect(address)) for _ in range(5)]
                    for client in clients:
                        client.recv()
                        client.send(pack({"observation": HERE}))
                    assert all(asked.acquire(timeout=60) for _ in clients)
                assert all(left.acquire(timeout=60) for _ in clients)  # while the monitor goes on
        finally:
            server.shutdown()
