"""MonitorServer: a proxy in front of a policy server that speaks openpi's protocol."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from closedform.errors import ClosedFormError
from closedform.serve.config import ServeConfig
from closedform.serve.monitor import KEY, ConnectionMonitor, Monitor
from closedform.serve.websocket_server import GOING_AWAY, INTERNAL_ERROR, LOG, WebSocketServer
from closedform.wire import require, with_key

_PARTING = 1.0  # seconds that a policy behind the monitor is given to close its connection


class MonitorServer(WebSocketServer):
    """Passes everything on between clients and the policy behind it, and adds what the monitor says to replies.

    Each client has a connection of its own to the policy behind it, on the same path. While that policy plans, the
    monitor judges the same observation in a thread.

    Args:
        monitor: what judges.
        upstream: the address of the policy, such as `ws://127.0.0.1:8000`.
        config: where to listen.
        token: what the policy behind it wants; by default what the client sends.
    """

    def __init__(self, monitor: Monitor, upstream: str, config: ServeConfig, token: str | None = None):
        super().__init__(config)
        self._monitor, self._upstream, self._token = monitor, upstream.rstrip("/"), token

    @contextlib.contextmanager
    def _working(self) -> Iterator[None]:
        with ThreadPoolExecutor(self._config.n_threads, "closedform-monitor") as self._threads:
            yield

    async def _handle(self, connection: Any) -> None:
        """Serves a connection until either side ends it; what the policy behind it is still doing is not waited for."""
        serving = asyncio.ensure_future(self._serve(connection))
        leaving = asyncio.ensure_future(connection.wait_closed())
        try:
            await asyncio.wait((serving, leaving), return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
        finally:
            serving.cancel()
            leaving.cancel()
            await asyncio.wait((serving,))  # until the connection behind it is closed

    async def _serve(self, connection: Any) -> None:
        try:
            async with contextlib.AsyncExitStack() as stack:
                behind = await stack.enter_async_context(_Upstream(await self._connect(connection), self._upstream))
                metadata = await behind.receive()
                added = isinstance(metadata, bytes)
                await connection.send(with_key(metadata, KEY, self._monitor.metadata()) if added else metadata)
                watch = self._monitor.open()
                while not self.stopping:
                    message = await behind.while_open(connection.recv())
                    with self.busy(connection):
                        await self._pass_on(message, connection, behind, watch)
            await connection.close(GOING_AWAY, "the server stops")
        except _GoneError as gone:
            if gone.message:
                await connection.send(gone.message)
            await connection.close(gone.code, gone.reason)
        except ClosedFormError as error:
            await self._refuse(connection, str(error))
        except Exception as error:
            if isinstance(error, require("websockets.exceptions").ConnectionClosed):
                raise
            LOG.exception("a request failed: %s: %s", type(error).__name__, error)
            await self._refuse(connection, f"internal error of the monitor: {type(error).__name__}")

    async def _pass_on(self, message: Any, connection: Any, behind: _Upstream, watch: ConnectionMonitor) -> None:
        loop = asyncio.get_running_loop()
        judging = loop.run_in_executor(self._threads, watch.look, message)
        if self._monitor.then == "stop":
            verdict = await judging
            if verdict.due:
                raise _GoneError(watch.stopped(verdict), INTERNAL_ERROR, "stopped by the monitor")
        await behind.send(message)
        reply, verdict = await asyncio.gather(behind.receive(), judging)
        await connection.send(await loop.run_in_executor(self._threads, watch.reply, reply, verdict))

    async def _connect(self, connection: Any) -> Any:
        connect, errors = require("websockets.asyncio.client").connect, require("websockets.exceptions")
        given = connection.request.headers.get_all("Authorization")
        headers = {"Authorization": given[0]} if given and self._config.token is None else {}
        if self._token is not None:
            headers = {"Authorization": f"Api-Key {self._token}"}
        try:
            return await connect(
                f"{self._upstream}{connection.request.path}",
                compression=None,
                max_size=None,
                additional_headers=headers,
                close_timeout=_PARTING,
                ping_interval=None,  # a server that plans in its event loop does not answer meanwhile
            )
        except (OSError, TimeoutError, errors.WebSocketException) as error:
            said = f"{self._upstream}: expected a policy server behind this monitor, found {error}"
            raise _GoneError(said, INTERNAL_ERROR, "no policy behind the monitor") from error


class _Upstream:
    """The connection to the policy behind the monitor."""

    def __init__(self, connection: Any, address: str):
        self._connection, self._address = connection, address
        self._closed = require("websockets.exceptions").ConnectionClosed

    async def __aenter__(self) -> _Upstream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._connection.close()

    async def send(self, message: Any) -> None:
        """Sends a message; if the connection is closed, `receive` says so."""
        with contextlib.suppress(self._closed):
            await self._connection.send(message)

    async def while_open(self, receiving: Coroutine[Any, Any, Any]) -> Any:
        """What is received from a client, unless the policy closes its connection first, as after an error."""
        arriving = asyncio.ensure_future(receiving)
        closing = asyncio.ensure_future(self._connection.wait_closed())
        try:
            await asyncio.wait((arriving, closing), return_when=asyncio.FIRST_COMPLETED)
            return arriving.result() if arriving.done() else await self.receive()
        finally:
            arriving.cancel()
            closing.cancel()

    async def receive(self) -> Any:
        """The next message."""
        try:
            return await self._connection.recv()
        except self._closed as error:
            received = error.rcvd
            if received is None:
                said = f"{self._address}: the policy behind this monitor is gone"
                raise _GoneError(said, INTERNAL_ERROR, "the policy behind the monitor is gone") from error
            raise _GoneError(None, received.code, received.reason) from error


class _GoneError(Exception):
    """The connection ends: a text to say before, if any, and the code and reason to close with."""

    def __init__(self, message: str | None, code: int, reason: str):
        super().__init__(message or reason)
        self.message, self.code, self.reason = message, code, reason
