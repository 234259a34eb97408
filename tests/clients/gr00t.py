"""Run by `scripts/test_clients.py` in an environment with msgpack-numpy and without closedform: port and token."""

import sys

import msgpack
import msgpack_numpy
import numpy as np
import zmq

port, token = int(sys.argv[1]), sys.argv[2]
SEEN = np.array([222.0, 97.0, 222.99, 381.6, 3.008], np.float32)[None, None]
socket = zmq.Context().socket(zmq.REQ)
socket.setsockopt(zmq.RCVTIMEO, 60000)
socket.connect(f"tcp://127.0.0.1:{port}")


def ask(endpoint, data=None):
    """Asks as the client of GR00T N1.7 does."""
    request = {"endpoint": endpoint, "data": data, "api_token": token}
    packed = msgpack.packb(request, default=msgpack_numpy.encode)
    assert isinstance(packed, bytes)
    socket.send(packed)
    return msgpack.unpackb(socket.recv(), object_hook=msgpack_numpy.decode, raw=False)


assert ask("ping")["status"] == "ok"
keys = ask("get_modality_config")["state"]["as_json"]["modality_keys"]
assert keys == ["agent_position", "block_position", "block_angle"], keys
state = dict(zip(keys, np.split(SEEN, [2, 4], axis=-1), strict=True))
actions, info = ask("get_action", {"observation": {"video": {}, "state": state, "language": {}}, "options": None})
assert actions["agent_position"].shape[0] == 1 and actions["agent_position"].shape[2] == 2, actions
assert abs(sum(info["weights"]) - 1) < 1e-6, info
assert "error" in ask("get_action", {"observation": {"state": {}}})
assert ask("reset", {"options": None}) == {}
print("msgpack-numpy as GR00T's clients use it: as expected")
