"""Gr00tServer: serves a policy over ZeroMQ to clients that speak the protocol of Isaac GR00T."""

from __future__ import annotations

import asyncio
import hmac
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from reprlib import repr as brief
from typing import Any

import numpy as np

from closedform.errors import ClosedFormError, DataError, ServeError
from closedform.policies.named_observation import entry_names
from closedform.serve.config import ServeConfig
from closedform.serve.gr00t_wire import Gr00tWire, modality_config
from closedform.serve.service import N_SESSIONS, Service, session_name, whole
from closedform.wire import require

_log = logging.getLogger("closedform.serve")
_AT_ONCE = 256  # requests under way; a client has one
_MOST_ROBOTS = 256  # in a batch
_INSTRUCTION = "annotation.human.task_description"  # clients expect one key of this kind; it is ignored


class Gr00tServer:
    """Serves a policy over ZeroMQ: `ping`, `get_modality_config`, `get_action` and `reset`.

    To clients, which have REQ sockets, it looks like GR00T's REP socket, but it knows them apart, and plans for many at
    once in threads; each has an agent of its own, and so has each robot of a batch. A request that cannot be answered
    is replied to with `error`. Any client could stop GR00T's own server with `kill`, which is refused here.

    Args:
        service: what answers requests.
        config: where to listen.
    """

    def __init__(self, service: Service, config: ServeConfig):
        self._service, self._config = service, config
        self._stopping: asyncio.Event | None = None
        self._actions = entry_names(service.policy.action_layout)
        self._batches: OrderedDict[str, _Batch] = OrderedDict()
        self._lock = threading.Lock()
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
        token, given = self._config.token, request.get("api_token")
        if token is not None and not (isinstance(given, str) and hmac.compare_digest(given.encode(), token.encode())):
            raise DataError("Unauthorized: expected this server's token as api_token, found another or none")
        endpoint, data = request.get("endpoint", "get_action"), request.get("data")
        if not isinstance(endpoint, str) or endpoint not in _ENDPOINTS:
            raise DataError(
                f"endpoint: expected {', '.join(_ENDPOINTS[:-1])} or {_ENDPOINTS[-1]}, found {brief(endpoint)}"
            )
        data = {} if data is None else data
        if not isinstance(data, dict):
            raise DataError(f"data: expected a map of names to values, found {type(data).__name__}")
        if endpoint == "ping":
            return wire.pack({"status": "ok", "message": "Server is running"})
        if endpoint == "get_modality_config":
            return wire.pack(self.modalities())
        options = _map(data, "options")
        request = {name: options[name] for name in _OPTIONS & options.keys()}
        request["session_id"] = session_name(options.get("session_id", f"client {client.hex()}"))
        if endpoint == "reset":
            self._service.answer({**request, "endpoint": "reset"})
            self._batch(request["session_id"], begins=True).seed = whole(request, "seed")
            return wire.pack({})
        return wire.pack(self._get_action(data, request))

    def modalities(self) -> dict[str, Any]:
        """What observations and actions consist of; no video, since GR00T's clients refuse one without keys."""
        config = self._service.policy.config
        return {
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
        replies = self._of_robots(_by_robot(state), request)
        timing = {"infer_ms": 1e3 * (time.perf_counter() - began)}
        chunks = np.stack([reply.pop("actions") for reply in replies]).astype(np.float32)
        ends = np.cumsum(list(self._actions.values()))[:-1]
        parts = dict(zip(self._actions, np.split(chunks, ends, axis=-1), strict=True))
        if flat:
            return {f"action.{n}": np.ascontiguousarray(p if len(replies) > 1 else p[0]) for n, p in parts.items()}
        info = replies[0] if len(replies) == 1 else {"robots": replies}
        return [{name: part.copy() for name, part in parts.items()}, {**info, "server_timing": timing}]

    def _of_robots(self, states: list[dict[Any, Any]], request: dict[str, Any]) -> list[dict[str, Any]]:
        """The replies to the robots of a batch, each with a session of its own, planned together."""
        seed, asked = whole(request, "seed"), []
        batch = self._batch(request["session_id"], begins=seed is not None)
        batch.seed = batch.seed if seed is None else seed
        if len(states) > 1 and "left_over" in request:
            raise DataError(f"left_over: expected with one robot, found a batch of {len(states)}")
        for robot, state in enumerate(states):
            own = {**request, "observation": state}
            if robot:
                own["session_id"] = f"{request['session_id']}, robot {robot}"
                own.pop("seed", None)
                if batch.begun <= robot:
                    own_seed = None if batch.seed is None else batch.seed + robot
                    self._service.answer({"endpoint": "reset", "session_id": own["session_id"], "seed": own_seed})
            asked.append((own, None))
        batch.begun = max(batch.begun, len(states))
        replies: dict[int, Any] = dict(pair for some in self._service.answer_together(asked) for pair in some)
        for robot in range(len(states)):
            if isinstance(replies[robot], DataError) and len(states) > 1:
                raise DataError(f"robot {robot} of the batch: {replies[robot]}")
            if isinstance(replies[robot], Exception):
                raise replies[robot]
        return [replies[robot] for robot in range(len(states))]

    def _batch(self, name: Any, *, begins: bool) -> _Batch:
        """The robots of a client or session, which may begin a new episode."""
        with self._lock:
            batch = self._batches[name] = _Batch() if begins else self._batches.get(name, _Batch())
            self._batches.move_to_end(name)
            while len(self._batches) > N_SESSIONS:
                self._batches.popitem(last=False)
            return batch


@dataclass
class _Batch:
    """The episode of several robots.

    Attributes:
        seed: of the first robot; the next have the next numbers.
        begun: how many of them have begun it.
    """

    seed: int | None = None
    begun: int = 0


_ENDPOINTS = ("ping", "get_modality_config", "get_action", "reset")


_OPTIONS = {"executed", "seed", "left_over", "delay"}


def _map(data: dict[Any, Any], name: str) -> dict[Any, Any]:
    value = data.get(name)
    if value is not None and not isinstance(value, dict):
        raise DataError(f"{name}: expected a map of names to values, found {type(value).__name__}")
    return value or {}


def _by_robot(state: Mapping[Any, Any]) -> list[dict[Any, Any]]:
    """The state of each robot of a batch, (B, T, D) or (T, D) for one: windows (T, D), or (D,) for one step."""
    batched = {key: value for key, value in state.items() if isinstance(value, np.ndarray) and value.ndim == 3}
    sizes = {len(value) for value in batched.values()} or {1}
    n_robots = sizes.pop()
    if sizes or not 1 <= n_robots <= _MOST_ROBOTS or (n_robots > 1 and len(batched) < len(state)):
        shapes = ", ".join(f"{key!s:.50} {getattr(value, 'shape', '')}" for key, value in list(state.items())[:12])
        raise DataError(f"state: expected arrays (B, T, D) of at most {_MOST_ROBOTS} robots, found {shapes}")

    def step(value: Any) -> Any:
        return value[0] if isinstance(value, np.ndarray) and value.ndim == 2 and len(value) == 1 else value

    return [
        {key: step(value[robot] if key in batched else value) for key, value in state.items()}
        for robot in range(n_robots)
    ]
