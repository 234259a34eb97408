"""Server: serves the page and connects it to a session."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hmac
import io
import ipaddress
import json
import re
import secrets
import socket
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from closedform.analysis.stage import rounded
from closedform.demos.demos import Demos
from closedform.demos.load import save_demos
from closedform.errors import ClosedFormError, ConfigError, DataError, MissingExtraError
from closedform.evaluation.drawing import Drawing
from closedform.studio.messages import LONGEST, Claim, Pointer, StudioCommand, Watch, read_message
from closedform.studio.pilot import Pilot
from closedform.studio.session import StudioSession

EXPORTS = ("folder", "zarr", "lerobot", "policy")
_PAGE = Path(__file__).parent / "page"
_POLICY = (
    "default-src 'self'; connect-src 'self' ws://{0} wss://{0}; img-src 'self' data: blob:; object-src 'none'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
_PICTURE = Drawing((0, 1, 1, 0), {})  # a picture's own coordinates, for scenes that cannot be drawn
_N_NOTICES = 20  # that wait for a slow page


class _Client:
    """One open page: what it should know and has not been sent. Of each kind only the newest waits, so that a slow page
    skips frames and memory does not grow."""

    def __init__(self):
        self.waiting: dict[str, str] = {}
        self.notices: list[str] = []
        self.event = asyncio.Event()

    def put(self, kind: str, text: str) -> None:
        if kind == "notice":
            self.notices = [*self.notices[1 - _N_NOTICES :], text]
        else:
            self.waiting[kind] = text
        self.event.set()

    async def take(self) -> list[str]:
        await self.event.wait()
        self.event.clear()
        texts, self.waiting = [*self.waiting.values(), *self.notices], {}
        self.notices = []
        return texts


class Server:
    """Serves a session to pages on this machine.

    The first page drives and others watch; a page can claim the wheel. The page itself is the same for everybody; what
    it connects to needs the token of the printed address, which it keeps for its tab and takes out of the address bar.
    Other origins are refused, and so are names of others that lead to this machine.

    Args:
        pilot: steps the session.
        env: the name of the environment.
        host, port: where to listen; port 0 takes any that is free.
        token: for the address; random by default.
    """

    def __init__(self, pilot: Pilot, env: str, *, host: str = "127.0.0.1", port: int = 0, token: str | None = None):
        self._uvicorn = import_uvicorn()
        self._pilot, self._env = pilot, env
        self._token = token or secrets.token_urlsafe(16)
        self._socket = _bind(host, port)
        self._host, self.port = host, self._socket.getsockname()[1]
        self._clients: list[_Client] = []
        self._driving: _Client | None = None
        self._newest: dict[str, str] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: Any = None

    @property
    def address(self) -> str:
        """The address of the page, with the token."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}/?token={self._token}"

    def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Serves until it is stopped or interrupted; calls `ready` once pages can connect."""
        config = self._uvicorn.Config(
            self._app(), log_level="error", lifespan="off", ws_max_size=4 * LONGEST, timeout_graceful_shutdown=1
        )
        self._server = self._uvicorn.Server(config)

        async def serve() -> None:
            self._loop = asyncio.get_running_loop()
            self._pilot.start(self._publish)
            self._loop.call_soon(ready)
            await self._server.serve([self._socket])

        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-3)  # so that slow jobs do not make steps late
        try:
            asyncio.run(serve())
        finally:
            sys.setswitchinterval(interval)
            self._loop = None
            self._pilot.close()
            self._socket.close()

    def stop(self) -> None:
        """Ends `run` from another thread."""
        if self._server is not None:
            self._server.should_exit = True

    def _app(self) -> Any:
        from starlette.applications import Starlette
        from starlette.routing import Mount, Route, WebSocketRoute
        from starlette.staticfiles import StaticFiles

        routes = [
            Route("/", self._page),
            Route("/export/{format}", self._export),
            WebSocketRoute("/socket", self._socket_route),
            Mount("/page", StaticFiles(directory=_PAGE)),
        ]
        return Starlette(routes=routes)

    def _allowed(self, connection: Any) -> bool:
        given = connection.query_params.get("token", "").encode("utf-8", "replace")
        origin, host = connection.headers.get("origin"), connection.headers.get("host", "")
        same = origin is None or urlsplit(origin).netloc == host
        return hmac.compare_digest(given, self._token.encode()) and same and self._is_ours(host)

    def _is_ours(self, host: str) -> bool:
        """Whether a page asks for this machine by an address, or by a name that nobody else can give it."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
            if not re.fullmatch(r"[\w.:\[\]-]+", host):
                return False
            if name in ("localhost", self._host.lower(), socket.gethostname().lower()):
                return True
            return bool(ipaddress.ip_address(name))
        except ValueError:
            return False

    async def _page(self, request: Any) -> Any:
        from starlette.responses import HTMLResponse, PlainTextResponse

        host = request.headers.get("host", "")
        if not self._is_ours(host):
            return PlainTextResponse("403: open the address that closedform studio printed", 403)
        headers = {**_HEADERS, "Content-Security-Policy": _POLICY.format(host)}
        return HTMLResponse((_PAGE / "index.html").read_text(encoding="utf-8"), headers=headers)

    def _export(self, request: Any) -> Any:
        """Runs in a thread of its own, as starlette does with functions that are not coroutines."""
        from starlette.responses import PlainTextResponse, Response

        if not self._allowed(request):
            return PlainTextResponse("401: open the address that closedform studio printed, with its token", 401)
        chosen = request.path_params["format"]
        try:
            data = export(self._pilot, chosen)
        except ClosedFormError as error:
            return PlainTextResponse(str(error), 400)
        name = f'attachment; filename="studio-{chosen}.zip"'
        return Response(data, media_type="application/zip", headers={**_HEADERS, "Content-Disposition": name})

    async def _socket_route(self, socket: Any) -> None:
        from starlette.websockets import WebSocketDisconnect

        if not self._allowed(socket):
            await socket.close(4401)
            return
        await socket.accept()
        client = _Client()
        client.put("hello", json.dumps({"kind": "hello", **self._hello(self._pilot.session)}))
        for kind, text in self._newest.items():
            client.put(kind, text)
        self._clients.append(client)
        if self._driving is None:
            self._driving = client
        self._tell_roles()
        sending = asyncio.create_task(_send(socket, client))
        try:
            while True:
                self._heard(client, await socket.receive_text())
        except (WebSocketDisconnect, KeyError, RuntimeError):  # gone, or it sent bytes
            pass
        finally:
            sending.cancel()
            self._clients.remove(client)
            if self._driving is client:
                self._pilot.pointer = None
                self._driving = self._clients[0] if self._clients else None
                self._tell_roles()

    def _hello(self, session: StudioSession) -> dict[str, Any]:
        environment, placement = session.environment, session.placement
        bodies = set() if placement is None else set(placement.drawing.bodies) - {placement.hand}
        return {
            "env": self._env,
            "task": "" if placement is None else str(getattr(environment, "task", "")),
            "rate": environment.rate,
            "max_steps": environment.max_steps,
            "drawing": (_PICTURE if placement is None else placement.drawing).to_json(),
            "hand": None if placement is None else placement.hand,
            "frames": ["auto", "world", *sorted(bodies)],
        }

    def _heard(self, client: _Client, text: str) -> None:
        try:
            message = read_message(text)
            if isinstance(message, Claim):
                self._pilot.pointer, self._driving = None, client
                self._tell_roles()
            elif isinstance(message, Watch):
                self._pilot.do(lambda session: self._show_take(client, session, message.take))
            elif client is not self._driving:
                raise DataError("another tab drives: take the wheel first")
            elif isinstance(message, Pointer):
                self._pilot.pointer = message.point
            elif isinstance(message, StudioCommand) and not self._pilot.do(message.do):
                raise DataError("too many commands are waiting: this one was dropped")
        except ClosedFormError as error:
            client.put("notice", json.dumps({"kind": "notice", "text": str(error)}))

    def _show_take(self, client: _Client, session: StudioSession, number: int) -> None:
        take = session.collection.take(number)
        if session.placement is None:
            raise DataError("an episode can be played only where the scene can be drawn; export it to look at it")
        poses = session.placement.poses(take.episode.observations.astype(float))
        content = {body: rounded(values, session.placement.drawing.extent) for body, values in poses.items()}
        text = json.dumps({"kind": "episode", "take": number, "poses": content})
        if self._loop is not None:
            self._loop.call_soon_threadsafe(client.put, "episode", text)

    def _tell_roles(self) -> None:
        for client in self._clients:
            drives, others = client is self._driving, len(self._clients) - 1
            client.put("role", json.dumps({"kind": "role", "drives": drives, "others": others}))

    def _publish(self, kind: str, content: dict[str, Any]) -> None:
        """Called by the pilot's thread."""
        text = json.dumps({"kind": kind, **content})
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop was closed just now
                self._loop.call_soon_threadsafe(self._spread, kind, text)

    def _spread(self, kind: str, text: str) -> None:
        if kind != "notice":
            self._newest[kind] = text
        for client in self._clients:
            client.put(kind, text)


def export(pilot: Pilot, chosen: str) -> bytes:
    """A zip file with the takes in a format, or the policy, and the log of edits."""
    if chosen not in EXPORTS:
        raise ConfigError(f"export: expected one of {', '.join(EXPORTS)}, found {chosen!r:.40}")

    def held(session: StudioSession) -> tuple[Any, Demos, str]:
        collection = session.collection
        if collection.policy is None:
            raise DataError("there is no demonstration to export yet")
        return copy(collection.policy), collection.demos(), collection.log.text()  # all of the same moment

    policy, demos, edits = pilot.ask(held)
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        if chosen == "policy":
            policy.save(root / "policy")
        else:
            save_demos(demos, root / ("demos.zarr" if chosen == "zarr" else "demos"), chosen)
        (root / "edits.jsonl").write_text(edits, encoding="utf-8")
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(root.rglob("*")):
                if path.is_file():
                    archive.write(path, path.relative_to(root))
    return packed.getvalue()


async def _send(socket: Any, client: _Client) -> None:
    with contextlib.suppress(Exception):  # the page is gone, which its other half finds out
        while True:
            for text in await client.take():
                await socket.send_text(text)


def _bind(host: str, port: int) -> socket.socket:
    if not 0 <= port < 65536:
        raise ConfigError(f"port: expected 0 to 65535, found {port}")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        made = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"host: expected an address of this machine, found {host!r} ({error})") from error
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(64)
    except OSError as error:
        made.close()
        if error.errno == errno.EADDRNOTAVAIL:
            raise ConfigError(f"host: expected an address of this machine, found {host!r}") from error
        raise ConfigError(
            f"port: expected a free port on {host}, found {port} ({error.strerror}); choose another with --port"
        ) from error
    return made


def import_uvicorn() -> Any:
    """The module uvicorn; without it or the packages that it is used with, says what to install."""
    try:
        import starlette  # noqa: F401
        import uvicorn
        import websockets  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(error.name or "uvicorn", "studio", "the studio") from error
    return uvicorn


def in_thread(server: Server) -> threading.Thread:
    """Runs a server in a thread and returns once pages can connect."""
    ready = threading.Event()
    thread = threading.Thread(target=server.run, args=(ready.set,), daemon=True)
    thread.start()
    ready.wait(30)
    return thread
