"""OpenpiServer: serves a policy over WebSockets to clients that speak openpi's protocol."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import http
import logging
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from closedform.errors import ClosedFormError, DataError, ServeError
from closedform.serve.config import ServeConfig
from closedform.serve.planners import Planners
from closedform.serve.service import Service
from closedform.serve.session import Session
from closedform.wire import pack, require, unpack

_log = logging.getLogger("closedform.serve")
_of_websockets = logging.getLogger("closedform.serve.websockets")
_of_websockets.setLevel(logging.CRITICAL)  # it reports every stranger that speaks something else, with a traceback

_GOING_AWAY, _TOO_BIG, _INTERNAL_ERROR = 1001, 1009, 1011
_QUEUED = 4  # requests of one client that are read ahead


class OpenpiServer:
    """Serves a policy over WebSockets: metadata first, then a reply to each request.

    Plans are made in threads, so that the event loop is free for other robots, and together for the requests that wait;
    each connection has one request under way, so that none starves another. A request that cannot be answered is
    replied to with a text that says why, and the connection is closed with code 1011.

    Args:
        service: what answers requests.
        config: where to listen.
    """

    def __init__(self, service: Service, config: ServeConfig):
        self._service, self._config = service, config
        self._busy: set[Any] = set()
        self._stopping: asyncio.Event | None = None
        self.port = config.port  # the real one once it listens

    async def run(self, ready: Any = None) -> None:
        """Serves until `stop` is called.

        Args:
            ready: an object whose `set` is called once it listens, such as a `threading.Event`.
        """
        serve, config = require("websockets.asyncio.server").serve, self._config
        closed = require("websockets.exceptions").ConnectionClosed
        self._stopping = asyncio.Event()
        with (
            contextlib.closing(Planners(self._answer, self._service.settle, config.n_threads)) as planners,
            ThreadPoolExecutor(1, "closedform-learn") as learner,  # new demonstrations must not hold up plans
        ):

            async def handle(connection: Any) -> None:
                try:
                    await self._handle(connection, planners, learner)
                except closed as error:
                    if error.sent is not None and error.sent.code == _TOO_BIG:
                        _log.warning("a message of more than %d MiB was refused", config.max_megabytes)

            try:
                server = await serve(
                    handle,
                    config.host,
                    config.port,
                    compression=None,
                    max_size=config.max_megabytes * 2**20,
                    max_queue=_QUEUED,
                    process_request=self._process_request,
                    origins=[None],  # robots send none; a page in a browser of this machine does
                    ping_timeout=60,
                    close_timeout=config.grace,
                    logger=_of_websockets,
                )
            except (OSError, UnicodeError) as error:
                raise ServeError(f"cannot listen on {config.host} port {config.port}: {error}") from error
            self.port = next(iter(server.sockets)).getsockname()[1]
            if ready is not None:
                ready.set()
            await self._stopping.wait()
            server.close(close_connections=False)
            leaving = [connection.close(_GOING_AWAY, "the server stops") for connection in self._idle(server)]
            await asyncio.gather(*leaving)
            try:
                await asyncio.wait_for(server.wait_closed(), config.grace)
            except TimeoutError:
                for connection in server.connections:
                    connection.transport.abort()  # it does not read its reply

    def stop(self) -> None:
        """Stops once the requests under way are answered; only from the event loop."""
        if self._stopping is not None:
            self._stopping.set()

    def _idle(self, server: Any) -> list[Any]:
        return [connection for connection in server.connections if connection not in self._busy]

    def _process_request(self, connection: Any, request: Any) -> Any:
        if request.path.partition("?")[0] == "/healthz":
            return connection.respond(http.HTTPStatus.OK, "OK\n")
        if self._config.token is not None:
            given = request.headers.get_all("Authorization")
            expected = f"Api-Key {self._config.token}".encode()
            if len(given) != 1 or not hmac.compare_digest(given[0].encode("utf-8", "replace"), expected):
                said = "expected the header 'Authorization: Api-Key TOKEN' with this server's token, found "
                return connection.respond(http.HTTPStatus.UNAUTHORIZED, f"{said}{'another' if given else 'none'}\n")
        return None

    async def _handle(self, connection: Any, planners: Planners, learner: ThreadPoolExecutor) -> None:
        assert self._stopping is not None
        loop, last = asyncio.get_running_loop(), None
        session: list[Session] = []  # of this connection, once a request needs it
        await connection.send(pack(self._service.metadata()))
        while not self._stopping.is_set():
            message = await connection.recv()
            began = time.perf_counter()
            self._busy.add(connection)
            try:
                reply = await planners.ask(_Asked(message, session, began, last))
                if reply is None:
                    reply = await loop.run_in_executor(learner, self._learn, message)
                await connection.send(reply)
            except ClosedFormError as error:
                return await self._refuse(connection, str(error))
            except Exception as error:
                if isinstance(error, require("websockets.exceptions").ConnectionClosed):
                    raise
                _log.exception("a request failed: %s: %s", type(error).__name__, error)
                return await self._refuse(connection, f"internal error of the server: {type(error).__name__}")
            finally:
                self._busy.discard(connection)
            last = time.perf_counter() - began
        await connection.close(_GOING_AWAY, "the server stops")

    async def _refuse(self, connection: Any, message: str) -> None:
        await connection.send(message)
        await connection.close(_INTERNAL_ERROR, message.encode()[:120].decode("utf-8", "ignore"))

    def _answer(self, asked: Sequence[_Asked]) -> Iterator[list[tuple[int, Any]]]:
        """The packed replies to packed requests, in a thread; None for new demonstrations, which are not yet added."""
        requests: dict[int, tuple[Any, Session]] = {}
        done: list[tuple[int, Any]] = []
        for index, each in enumerate(asked):
            try:
                request = _unpacked(each.message)
                if isinstance(request, dict) and request.get("endpoint") == "add":
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
        return pack(self._service.add(unpack(message)))


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
