"""Run by `scripts/test_clients.py` in an environment with msgpack-numpy and without closedform: port and token.

GR00T's own package is not on the package index; these are the messages of its client of version N1.7, and its checks.
"""

import sys
from dataclasses import dataclass
from typing import Any

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
    request = {"endpoint": endpoint} if data is None else {"endpoint": endpoint, "data": data}
    request["api_token"] = token
    packed = msgpack.packb(request, default=msgpack_numpy.encode)
    assert isinstance(packed, bytes)
    socket.send(packed)
    return msgpack.unpackb(socket.recv(), object_hook=decode, raw=False)


@dataclass
class ModalityConfig:
    """Refuses what the class of this name in GR00T refuses, whose fields these are."""

    delta_indices: Any
    modality_keys: Any
    sin_cos_embedding_keys: Any = None
    mean_std_embedding_keys: Any = None
    action_configs: Any = None

    def __post_init__(self):
        for name in ("delta_indices", "modality_keys"):
            if not isinstance(getattr(self, name), list):
                raise ValueError(f"{name}: expected a list, found {getattr(self, name)!r}")
        if not self.modality_keys:
            raise ValueError("modality_keys: expected some, found none")


def decode(found):
    """What GR00T's client makes of the maps in a reply."""
    if found.get("__ModalityConfig_class__") or found.get("__ModalityConfig__"):
        return ModalityConfig(**found["as_json"])
    return msgpack_numpy.decode(found)


assert ask("ping")["status"] == "ok"
config = ask("get_modality_config")
keys = config["state"].modality_keys
assert keys == ["agent_position", "block_position", "block_angle"], keys
for n_robots in (1, 3):
    seen = np.repeat(SEEN, n_robots, axis=0)
    state = dict(zip(keys, np.split(seen, [2, 4], axis=-1), strict=True))
    language = {key: [["push the T"]] * n_robots for key in config["language"].modality_keys}
    actions, info = ask(
        "get_action", {"observation": {"video": {}, "state": state, "language": language}, "options": None}
    )
    for name in config["action"].modality_keys:
        shape = (n_robots, len(config["action"].delta_indices), 2)
        assert actions[name].shape == shape and actions[name].dtype == np.float32, actions
    for robot in info["robots"] if n_robots > 1 else [info]:
        assert abs(sum(robot["weights"]) - 1) < 1e-6, info
assert "error" in ask("get_action", {"observation": {"state": {}}})
assert ask("reset", {"options": None}) == {}
print("msgpack-numpy as GR00T's clients use it: as expected")
