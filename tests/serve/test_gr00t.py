"""GR00T's protocol over real sockets: both forms of arrays, many robots, and requests that cannot be answered."""

import contextlib
import io
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from closedform import ClosedFormPolicy
from closedform.errors import DataError, ServeError
from tests.conftest import planar_demos

zmq = pytest.importorskip("zmq", reason="needs the extra serve")
msgpack = pytest.importorskip("msgpack", reason="needs the extra serve")
from closedform.serve import ServeConfig, serving  # noqa: E402
from closedform.serve.gr00t_wire import Gr00tWire, read_npy  # noqa: E402

DEMOS = planar_demos(np.random.default_rng(0))
HERE = DEMOS.episodes[2].observations[3].astype(np.float32)


def npy(array):
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return {"__ndarray_class__": True, "as_npy": file.getvalue()}


def mnp(array):
    return {b"nd": True, b"type": array.dtype.str, b"kind": b"", b"shape": list(array.shape), b"data": array.tobytes()}


def state(seen, form=npy):
    parts = {"hand_position": seen[:2], "block_position": seen[2:4], "block_angle": seen[4:]}
    return {name: form(np.ascontiguousarray(part[None, None])) for name, part in parts.items()}


class Robot:
    """A client with a REQ socket, as GR00T's."""

    def __init__(self, address):
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.REQ)
        self._socket.setsockopt(zmq.RCVTIMEO, 60000)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.connect(address)

    def raw(self, message):
        self._socket.send(message)
        return msgpack.unpackb(self._socket.recv(), strict_map_key=False)

    def ask(self, endpoint, data=None, **more):
        return self.raw(msgpack.packb({"endpoint": endpoint, **({} if data is None else {"data": data}), **more}))

    def send_only(self, message):
        self._socket.send(message)

    def answered(self, milliseconds):
        return self._socket.poll(milliseconds)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._socket.close()
        self._context.term()


@pytest.fixture(scope="module")
def policy():
    return ClosedFormPolicy(DEMOS, n_diffusion_steps=5)


@pytest.fixture(scope="module")
def address(policy):
    with serving(policy, ServeConfig(port=0), dialect="gr00t") as address:
        yield address


@pytest.fixture
def robot(address):
    with Robot(address) as robot:
        yield robot


def test_ping_and_modalities(robot):
    assert robot.ask("ping") == {"status": "ok", "message": "Server is running"}
    found = robot.ask("get_modality_config")
    assert list(found) == ["state", "action", "language"]
    assert all(config["as_json"]["modality_keys"] for config in found.values())  # GR00T's clients refuse others
    assert all(config["__ModalityConfig_class__"] is True for config in found.values())
    assert found["state"]["as_json"] == {
        "delta_indices": [0],
        "modality_keys": ["hand_position", "block_position", "block_angle"],
    }
    assert found["action"]["as_json"] == {"delta_indices": list(range(12)), "modality_keys": ["hand_position"]}


@pytest.mark.parametrize("form", [npy, mnp])
def test_actions_are_the_agents_in_the_form_of_the_request(robot, policy, form):
    agent = policy.agent(seed=4)
    assert robot.ask("reset", {"options": {"seed": 4}}) == {}
    for step in (0, 4, 8):
        seen = DEMOS.episodes[1].observations[step].astype(np.float32)
        observation = {"video": {}, "state": state(seen, form), "language": {"task": [["push"]]}}
        actions, info = robot.ask("get_action", {"observation": observation, "options": None})
        expected = agent.plan(seen).actions.astype(np.float32)[None]
        assert actions == {"hand_position": form(expected)}
    assert info["demonstrations"] and sum(info["weights"]) == pytest.approx(1)
    assert info["familiarity"]["alarm"] is False and info["cut_short"] is False and info["server_timing"]


@pytest.mark.parametrize("form", [npy, mnp])
def test_each_robot_of_a_batch_gets_its_own_plans(robot, policy, form):
    """Arrays (B, T, D): robot i plans as an agent of its own, with the seed of the first one and i."""
    agents = [policy.agent(seed=4 + i) for i in range(3)]
    robot.ask("reset", {"options": {"seed": 4}})
    for step in (0, 4, 8):
        seen = np.stack([DEMOS.episodes[i].observations[step] for i in range(3)]).astype(np.float32)[:, None]
        parts = {"hand_position": seen[..., :2], "block_position": seen[..., 2:4], "block_angle": seen[..., 4:]}
        observation = {"state": {name: form(np.ascontiguousarray(part)) for name, part in parts.items()}}
        actions, info = robot.ask("get_action", {"observation": observation})
        expected = [agent.plan(each[0]).actions for agent, each in zip(agents, seen, strict=True)]
        assert actions == {"hand_position": form(np.stack(expected).astype(np.float32))}
    assert [sum(each["weights"]) for each in info["robots"]] == pytest.approx([1, 1, 1])


def test_a_client_of_the_version_before(robot):
    """Keys are flat, arrays (T, D), and the reply is the actions alone."""
    data = {"state.hand_position": npy(HERE[None, :2]), "state.block_position": npy(HERE[None, 2:4])}
    reply = robot.ask("get_action", {**data, "state.block_angle": npy(HERE[None, 4:]), "annotation.task": ["push"]})
    assert list(reply) == ["action.hand_position"]
    assert np.load(io.BytesIO(reply["action.hand_position"]["as_npy"])).shape == (12, 2)


def test_robots_are_apart(address, policy):
    def run(number):
        agent = policy.agent(seed=number)
        with Robot(address) as robot:
            robot.ask("reset", {"options": {"seed": number}})
            together.wait(60)
            for step in (0, 4, 8):
                seen = DEMOS.episodes[number % 6].observations[step].astype(np.float32)
                actions, _ = robot.ask("get_action", {"observation": {"state": state(seen)}})
                if actions != {"hand_position": npy(agent.plan(seen).actions.astype(np.float32)[None])}:
                    return False
        return True

    together = threading.Barrier(8)
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(run, range(8))) == [True] * 8


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"endpoint": "kill"}, "expected ping, get_modality_config, get_action or reset, found 'kill'"),
        ({"endpoint": []}, "endpoint: expected"),
        ({"endpoint": None}, "endpoint: expected"),
        ({"endpoint": npy(np.zeros(3))}, "endpoint: expected"),
        ({"endpoint": mnp(np.array(["ping", "ping"]))}, "endpoint: expected"),
        ({"endpoint": {b"nd": True, b"type": "|S0", b"kind": b"", b"shape": [2**31], b"data": b""}}, "of no width"),
        ({"endpoint": "reset", "data": {"options": {"session_id": npy(np.zeros(3))}}}, "session_id: expected"),
        ([], "a map of names to values"),
        ({"endpoint": "get_action", "data": 3}, "data: expected a map"),
        ({"endpoint": "get_action", "data": {"observation": 3}}, "observation: expected a map"),
        ({"endpoint": "get_action", "data": {"observation": {"state": []}}}, "state: expected a map"),
        (
            {"endpoint": "get_action"},
            "or the keys hand_position (2), block_position (2), block_angle (1); found nothing",
        ),
        (
            {"endpoint": "get_action", "data": {"observation": {"state": {"hand_position": npy(np.zeros((2, 1, 2)))}}}},
            "robot 0 of the batch: expected 'observation', an array of 5 numbers",
        ),
        (
            {"endpoint": "get_action", "data": {"observation": {"state": {"a": npy(np.zeros((2, 1, 2))), "b": [1]}}}},
            "state: expected arrays (B, T, D) of at most 256 robots, found a (2, 1, 2), b",
        ),
        (
            {"endpoint": "get_action", "data": {"observation": {"state": {"a": npy(np.zeros((0, 1, 2)))}}}},
            "state: expected arrays (B, T, D)",
        ),
        ({"endpoint": "reset", "data": {"options": {"seed": -1}}}, "seed: expected"),
        (
            {"endpoint": "ping", "data": {"nd": True, "kind": "O", "type": "|O", "data": b"\x80\x04]\x94."}},
            "of kind 'O'",
        ),
        ({"endpoint": "ping", "data": {"__ndarray_class__": True, "as_npy": b"PK"}}, "bytes of an npy file"),
    ],
)
def test_what_cannot_be_answered_is_an_error_in_one_line(robot, request_, message):
    said = robot.raw(msgpack.packb(request_))["error"]
    assert message in said and "\n" not in said
    assert robot.ask("ping")["status"] == "ok"


def test_malformed_messages(robot):
    for message in (b"", b"\xc1", b"\x91" * 9000):
        assert "msgpack" in robot.raw(message)["error"]


def test_a_huge_message_is_not_read(policy):
    """ZeroMQ drops the client that sent it, and others are served."""
    with contextlib.ExitStack() as stack:
        address = stack.enter_context(serving(policy, ServeConfig(port=0, max_megabytes=1), dialect="gr00t"))
        robot, huge = stack.enter_context(Robot(address)), stack.enter_context(Robot(address))
        huge.send_only(msgpack.packb({"endpoint": "ping", "data": {"x": bytes(2**21)}}))
        assert robot.ask("ping")["status"] == "ok"
        assert not huge.answered(500)


def test_tokens(policy):
    with serving(policy, ServeConfig(port=0, token="right"), dialect="gr00t") as address, Robot(address) as robot:
        for token in ({}, {"api_token": "wrong"}, {"api_token": None}, {"api_token": 1}):
            assert "Unauthorized" in robot.ask("ping", **token)["error"]
        assert robot.ask("ping", api_token="right")["status"] == "ok"
    with serving(policy, ServeConfig(port=0, token="None"), dialect="gr00t") as address, Robot(address) as robot:
        for token in ({}, {"api_token": None}):  # a token may be any text, also that of nothing
            assert "Unauthorized" in robot.ask("ping", **token)["error"]
        assert robot.ask("ping", api_token="None")["status"] == "ok"


def test_a_port_in_use_is_one_line(address, policy):
    port = int(address.rpartition(":")[2])
    with (
        pytest.raises(ServeError, match=f"cannot listen on 127.0.0.1 port {port}"),
        serving(policy, ServeConfig(port=port), dialect="gr00t"),
    ):
        pass


@pytest.mark.parametrize(
    "array",
    [np.arange(6.0).reshape(2, 3), np.asfortranarray(np.arange(6).reshape(2, 3)), np.zeros((0, 3)), np.array(2.5)],
)
def test_npy_files_are_read(array):
    found = read_npy(npy(array)["as_npy"])
    assert found.dtype == array.dtype and np.array_equal(found, array) and found.shape == array.shape
    wire = Gr00tWire()
    assert np.array_equal(wire.unpack(wire.pack({"x": array}))["x"], array)


def test_npy_files_that_lie_are_refused_without_taking_memory():
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (2**40,)})
    with pytest.raises(DataError, match="expected 8796093022208 bytes"):
        read_npy(file.getvalue() + bytes(16))
    for header in (b"{[]: 1}", b"[" * 500, b"{'descr': ((),), 'fortran_order': 0, 'shape': ()}", b"\xff", b"x" * 9000):
        with pytest.raises(DataError, match="npy file"):
            read_npy(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "|O", "fortran_order": False, "shape": (1,)})
    with pytest.raises(DataError, match=r"found dtype '\|O'"):
        read_npy(file.getvalue() + b"\x80\x04]\x94.")
