"""Gr00tServer: serves a policy over ZeroMQ to clients that speak the protocol of Isaac GR00T."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from closedform.errors import ClosedFormError, DataError, ServeError
from closedform.serve.config import ServeConfig
from closedform.serve.gr00t_wire import Gr00tWire, modality_config
from closedform.serve.observations import entry_names
from closedform.serve.service import Service
from closedform.wire import require

_log = logging.getLogger("closedform.serve")
_AT_ONCE = 256  # requests under way; a client has one
_INSTRUCTION = "annotation.human.task_description"  # clients expect one key of this kind; it is ignored


class Gr00tServer:
    """Serves a policy over ZeroMQ: `ping`, `get_modality_config`, `get_action` and `reset`.

    To clients, which have REQ sockets, it looks like GR00T's REP socket, but it knows them apart, and plans for many at
    once in threads; each has an agent of its own. A request that cannot be answered is replied to with `error`. Any
    client could stop GR00T's own server with `kill`, which is refused here.

    Args:
        service: what answers requests.
        config: where to listen.
    """

    def __init__(self, service: Service, config: ServeConfig):
        self._service, self._config = service, config
        self._stopping: asyncio.Event | None = None
        self._actions = entry_names(service.policy.action_layout)
        self.port = config.port  # the real one once it listens

    async def run(self, ready: Any = None) -> None:
        """Serves until `stop` is called.

        Args:
            ready: an object whose `set` is called once it listens, such as a `threading.Event`.
        """
        zmq, config = require("zmq"), self._config
        context = require("zmq.asyncio").Context()
        self._stopping = asyncio.Event()
        stopped = asyncio.ensure_future(self._stopping.wait())
        tasks: set[asyncio.Task[None]] = set()
        with ThreadPoolExecutor(config.n_threads, "closedform-plan") as planners:
            socket = context.socket(zmq.ROUTER)
            try:
                socket.setsockopt(zmq.MAXMSGSIZE, config.max_megabytes * 2**20)
                socket.setsockopt(zmq.LINGER, int(1e3 * config.grace))
                try:
                    socket.bind(f"tcp://{config.host}:{config.port or '*'}")
                except zmq.ZMQError as error:
                    raise ServeError(
                        f"cannot listen on {config.host} port {config.port}: {error}; expected the address of a "
                        "network interface of this machine, and a free port"
                    ) from error
                self.port = int(socket.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2])
                if ready is not None:
                    ready.set()
                while not self._stopping.is_set():
                    arriving = asyncio.ensure_future(socket.recv_multipart())
                    await asyncio.wait((arriving, stopped), return_when=asyncio.FIRST_COMPLETED)
                    if not arriving.done():
                        arriving.cancel()
                        break
                    task = asyncio.create_task(self._reply(socket, arriving.result(), planners))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
                    if len(tasks) >= _AT_ONCE:
                        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                if tasks:
                    await asyncio.wait(tasks, timeout=config.grace)
            finally:
                stopped.cancel()
                socket.close()
                context.term()

    def stop(self) -> None:
        """Stops once the requests under way are answered; only from the event loop."""
        if self._stopping is not None:
            self._stopping.set()

    async def _reply(self, socket: Any, frames: list[bytes], planners: ThreadPoolExecutor) -> None:
        if len(frames) != 3 or frames[1]:  # not from a REQ socket
            return
        wire = Gr00tWire()
        try:
            loop = asyncio.get_running_loop()
            reply = await loop.run_in_executor(planners, self._answer, frames[2], frames[0], wire)
        except ClosedFormError as error:
            reply = wire.pack({"error": str(error)})
        except Exception as error:
            _log.exception("a request failed: %s: %s", type(error).__name__, error)
            reply = wire.pack({"error": f"internal error of the server: {type(error).__name__}"})
        await socket.send_multipart([*frames[:2], reply])

    def _answer(self, message: bytes, client: bytes, wire: Gr00tWire) -> bytes:
        """The packed reply to a packed request; in a thread."""
        request = wire.unpack(message)
        if not isinstance(request, dict):
            raise DataError(f"expected a request that is a map of names to values, found {type(request).__name__}")
        token = self._config.token
        if token is not None and not hmac.compare_digest(str(request.get("api_token")).encode(), token.encode()):
            raise DataError("Unauthorized: expected this server's token as api_token, found another or none")
        endpoint, data = request.get("endpoint", "get_action"), request.get("data")
        data = {} if data is None else data
        if not isinstance(data, dict):
            raise DataError(f"data: expected a map of names to values, found {type(data).__name__}")
        if endpoint == "ping":
            return wire.pack({"status": "ok", "message": "Server is running"})
        if endpoint == "get_modality_config":
            return wire.pack(self.modalities())
        options = _map(data, "options")
        request = {
            "session_id": f"client {client.hex()}",
            **{name: options[name] for name in _OPTIONS & options.keys()},
        }
        if endpoint == "reset":
            self._service.answer({**request, "endpoint": "reset"})
            return wire.pack({})
        if endpoint == "get_action":
            return wire.pack(self._get_action(data, request))
        raise DataError(f"endpoint: expected ping, get_modality_config, get_action or reset, found {endpoint!r:.50}")

    def modalities(self) -> dict[str, Any]:
        """What observations and actions consist of."""
        config = self._service.policy.config
        return {
            "video": modality_config([], []),
            "state": modality_config(self._service.reader.keys, list(range(1 - config.n_obs_steps, 1))),
            "action": modality_config(self._actions, list(range(config.n_action_steps))),
            "language": modality_config([_INSTRUCTION], [0]),
        }

    def _get_action(self, data: dict[Any, Any], request: dict[str, Any]) -> Any:
        """`[actions, info]`, or just the actions for a client of version N1.5, whose keys are `state.NAME`."""
        began = time.perf_counter()
        flat = "observation" not in data
        if flat:
            state = {
                key[len("state.") :]: data[key] for key in data if isinstance(key, str) and key.startswith("state.")
            }
        else:
            state = _map(_map(data, "observation"), "state")
        state = {key: _of_one_robot(value, key) for key, value in state.items()}
        reply = self._service.answer({**request, "observation": state})
        timing = {"infer_ms": 1e3 * (time.perf_counter() - began)}
        chunk = np.asarray(reply.pop("actions"), np.float32)
        ends = np.cumsum(list(self._actions.values()))[:-1]
        parts = dict(zip(self._actions, np.split(chunk, ends, axis=-1), strict=True))
        if flat:
            return {f"action.{name}": np.ascontiguousarray(part) for name, part in parts.items()}
        return [{name: part[None].copy() for name, part in parts.items()}, {**reply, "server_timing": timing}]


_OPTIONS = {"session_id", "executed", "seed", "left_over", "delay"}


def _map(data: dict[Any, Any], name: str) -> dict[Any, Any]:
    value = data.get(name)
    if value is not None and not isinstance(value, dict):
        raise DataError(f"{name}: expected a map of names to values, found {type(value).__name__}")
    return value or {}


def _of_one_robot(value: Any, key: Any) -> Any:
    """An array (1, T, D) or (T, D) of GR00T as a window (T, D), or (D,) for one step."""
    if not isinstance(value, np.ndarray):
        return value
    if value.ndim == 3:
        if len(value) != 1:
            raise DataError(f"{key!s:.50}: expected a batch of one robot, (1, T, D), found shape {value.shape}")
        value = value[0]
    return value[0] if value.ndim == 2 and len(value) == 1 else value
