"""WebSocketServer: listens, checks tokens, and stops without interrupting a request."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import http
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from closedform.errors import ServeError
from closedform.serve.config import ServeConfig
from closedform.wire import require

LOG = logging.getLogger("closedform.serve")
_of_websockets = logging.getLogger("closedform.serve.websockets")
_of_websockets.setLevel(logging.CRITICAL)  # it reports every stranger that speaks something else, with a traceback

GOING_AWAY, TOO_BIG, INTERNAL_ERROR = 1001, 1009, 1011
_QUEUED = 4  # requests of one client that are read ahead


class WebSocketServer(ABC):
    """Accepts connections on any path, without compression; `GET /healthz` answers `OK`.

    Args:
        config: where to listen, and to whom.

    Attributes:
        port: the real one once it listens.
    """

    def __init__(self, config: ServeConfig):
        self._config = config
        self._busy: set[Any] = set()
        self._stopping: asyncio.Event | None = None
        self.port = config.port

    async def run(self, ready: Any = None) -> None:
        """Serves until `stop` is called.

        Args:
            ready: an object whose `set` is called once it listens, such as a `threading.Event`.
        """
        serve, config = require("websockets.asyncio.server").serve, self._config
        self._stopping = asyncio.Event()
        with self._working():
            try:
                server = await serve(
                    self._accept,
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
            idle = [connection for connection in server.connections if connection not in self._busy]
            await asyncio.gather(*(connection.close(GOING_AWAY, "the server stops") for connection in idle))
            try:
                await asyncio.wait_for(server.wait_closed(), config.grace)
            except TimeoutError:
                for connection in server.connections:
                    connection.transport.abort()  # it does not read its reply

    def stop(self) -> None:
        """Stops once the requests under way are answered; only from the event loop."""
        if self._stopping is not None:
            self._stopping.set()

    @property
    def stopping(self) -> bool:
        """Whether it answers no further requests."""
        return self._stopping is None or self._stopping.is_set()

    @contextlib.contextmanager
    def busy(self, connection: Any) -> Iterator[None]:
        """A request of a connection, which is answered even if the server stops."""
        self._busy.add(connection)
        try:
            yield
        finally:
            self._busy.discard(connection)

    @contextlib.contextmanager
    def _working(self) -> Iterator[None]:
        """What is needed while it runs."""
        yield

    @abstractmethod
    async def _handle(self, connection: Any) -> None:
        """Serves a connection for as long as it lasts."""

    async def _accept(self, connection: Any) -> None:
        try:
            await self._handle(connection)
        except require("websockets.exceptions").ConnectionClosed as error:
            if error.sent is not None and error.sent.code == TOO_BIG:
                LOG.warning("a message of more than %d MiB was refused", self._config.max_megabytes)

    async def _refuse(self, connection: Any, message: str, code: int = INTERNAL_ERROR) -> None:
        """Says why in a text, and closes the connection."""
        await connection.send(message)
        await connection.close(code, message.encode()[:120].decode("utf-8", "ignore"))

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
