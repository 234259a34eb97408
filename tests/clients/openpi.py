"""Run by `scripts/test_clients.py` in an environment with openpi-client and without closedform: port and token."""

import sys

import numpy as np
from openpi_client.action_chunk_broker import ActionChunkBroker
from openpi_client.websocket_client_policy import WebsocketClientPolicy

port, token = int(sys.argv[1]), sys.argv[2]
SEEN = np.array([222.0, 97.0, 222.99, 381.6, 3.008])

policy = WebsocketClientPolicy("127.0.0.1", port, api_key=token)
metadata = policy.get_server_metadata()
assert metadata["observation_keys"] == {"agent_position": 2, "block_position": 2, "block_angle": 1}, metadata

image = np.zeros((224, 224, 3), np.uint8)
reply = policy.infer({"observation": SEEN, "prompt": "push the T", "observation/image": image})
assert reply["actions"].shape == (metadata["action_horizon"], 2), reply
assert reply["ignored_keys"] == ["prompt", "observation/image"], reply
assert reply["policy_timing"]["infer_ms"] > 0 and reply["server_timing"]["infer_ms"] > 0, reply

broker = ActionChunkBroker(policy, metadata["n_execute"])
for _ in range(2 * metadata["n_execute"] + 1):  # three requests; provenance comes through whole
    step = broker.infer({"agent_position": SEEN[:2], "block_position": SEEN[2:4], "block_angle": SEEN[4:]})
    assert step["actions"].shape == (2,), step
    assert len(step["demonstrations"]) == len(step["weights"]) > 0 and abs(sum(step["weights"]) - 1) < 1e-6, step
    assert step["familiarity"]["false_alarm_rate"] == 0.01, step

try:
    policy.infer({"observation": SEEN[:3]})
except RuntimeError as error:
    assert "observation: expected 5 numbers, found shape (3,)" in str(error), error
else:
    raise AssertionError("expected an error for an observation of three numbers")

try:
    WebsocketClientPolicy("127.0.0.1", port, api_key="wrong")
except Exception as error:
    assert "401" in str(error), error
else:
    raise AssertionError("expected an error for a wrong key")
print(f"openpi-client with numpy {np.__version__}: as expected")
