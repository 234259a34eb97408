"""OpenpiServer: serves a policy over WebSockets to clients that speak openpi's protocol."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from closedform.errors import ClosedFormError, DataError
from closedform.serve.config import ServeConfig
from closedform.serve.planners import Planners
from closedform.serve.service import Service
from closedform.serve.session import Session
from closedform.serve.websocket_server import GOING_AWAY, LOG, WebSocketServer
from closedform.wire import pack, require, unpack


class OpenpiServer(WebSocketServer):
    """Serves a policy over WebSockets: metadata first, then a reply to each request.

    Plans are made in threads, so that the event loop is free for other robots, and together for the requests that wait;
    each connection has one request under way, so that none starves another. A request that cannot be answered is
    replied to with a text that says why, and the connection is closed with code 1011.

    Args:
        service: what answers requests.
        config: where to listen.
    """

    def __init__(self, service: Service, config: ServeConfig):
        super().__init__(config)
        self._service = service

    @contextlib.contextmanager
    def _working(self) -> Iterator[None]:
        with (
            contextlib.closing(Planners(self._answer, self._config.n_threads)) as self._planners,
            ThreadPoolExecutor(1, "closedform-learn") as self._learner,  # new demonstrations must not hold up plans
        ):
            yield

    async def _handle(self, connection: Any) -> None:
        loop, last = asyncio.get_running_loop(), None
        session: list[Session] = []  # of this connection, once a request needs it
        await connection.send(pack(self._service.metadata()))
        while not self.stopping:
            message = await connection.recv()
            began = time.perf_counter()
            with self.busy(connection):
                try:
                    reply = await self._planners.ask(_Asked(message, session, began, last))
                    if reply is None:
                        reply = await loop.run_in_executor(self._learner, self._learn, message)
                    await connection.send(reply)
                except ClosedFormError as error:
                    return await self._refuse(connection, str(error))
                except Exception as error:
                    if isinstance(error, require("websockets.exceptions").ConnectionClosed):
                        raise
                    LOG.exception("a request failed: %s: %s", type(error).__name__, error)
                    return await self._refuse(connection, f"internal error of the server: {type(error).__name__}")
            last = time.perf_counter() - began
        await connection.close(GOING_AWAY, "the server stops")

    def _answer(self, asked: Sequence[_Asked]) -> Iterator[list[tuple[int, Any]]]:
        """The packed replies to packed requests, in a thread; None for new demonstrations, which are not yet added."""
        requests: dict[int, tuple[Any, Session]] = {}
        done: list[tuple[int, Any]] = []
        for index, each in enumerate(asked):
            try:
                request = _unpacked(each.message)
                endpoint = request.get("endpoint") if isinstance(request, dict) else None
                if isinstance(endpoint, str) and endpoint in ("add", "remove"):  # an array would compare one by one
                    done.append((index, None))
                    continue
                if not each.session:
                    each.session.append(self._service.open())
                requests[index] = request, each.session[0]
            except Exception as error:
                done.append((index, error))
        yield done
        places = list(requests)
        for replies in self._service.answer_together(list(requests.values())):
            yield [(places[at], _packed(reply, asked[places[at]])) for at, reply in replies]

    def _learn(self, message: bytes) -> bytes:
        return pack(self._service.change(unpack(message)))


class _Asked(NamedTuple):
    """A message of a client, the session of its connection, and times in seconds."""

    message: Any
    session: list[Session]
    began: float
    last: float | None


def _unpacked(message: Any) -> Any:
    if isinstance(message, str):
        raise DataError("expected a request packed with msgpack, in a binary frame, found text")
    return unpack(message)


def _packed(reply: dict[str, Any] | Exception, asked: _Asked) -> bytes | Exception:
    if isinstance(reply, Exception):
        return reply
    timing = {"infer_ms": 1e3 * (time.perf_counter() - asked.began)}
    if asked.last is not None:
        timing["prev_total_ms"] = 1e3 * asked.last
    try:
        return pack({**reply, "server_timing": timing})
    except Exception as error:
        return error
