"""Page: the view of a run in a browser, where a person can also pause, stop and take over."""

from __future__ import annotations

import contextlib
import hmac
import http.server
import json
import secrets
import threading
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np

from closedform.errors import ConfigError
from closedform.robot.journal import png
from closedform.robot.operator import Operator
from closedform.robot.runner import RunStep
from closedform.robot.view import Overlay

_HTML = Path(__file__).with_name("page.html")
_NEXT = b"--picture\r\nContent-Type: image/png\r\n\r\n"
_MOST = 200  # bytes of a request


class Page:
    """Shows the newest picture in a browser on this machine, at `address`, and obeys what is done there.

    Only whoever has the address, with its token, sees the pictures or moves the arm: other pages in the same browser
    cannot. The token stays with its tab, and leaves the address bar.

    Args:
        drawing: makes the pictures.
        operator: is told what is done on the page; None for a page that only shows.
        port: of the page; 0 takes any that is free.
    """

    def __init__(self, drawing: Overlay, operator: Operator | None = None, port: int = 0):
        self._drawing, self._operator, self._picture, self._number = drawing, operator, b"", 0
        self._condition, self._closed, self._token = threading.Condition(), False, secrets.token_urlsafe(16)
        self._looked, page = threading.Event(), self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page._show(self)

            def do_POST(self) -> None:
                page._obey(self)

            def log_message(self, format: str, *args: Any) -> None:
                return

        try:
            self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        except OSError as error:
            raise ConfigError(f"the view: expected a free port, found {port} taken ({error.strerror})") from error
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self.address = f"http://127.0.0.1:{self.port}/?token={self._token}"
        self._thread = threading.Thread(target=self._server.serve_forever, name="closedform-view", daemon=True)
        self._thread.start()

    def show(self, step: RunStep) -> None:
        """Shows a picture to everybody who looks."""
        with self._condition:
            self._picture, self._number = png(self._drawing.draw(step)), self._number + 1
            self._condition.notify_all()

    def wait(self, seconds: float) -> bool:
        """Waits until somebody looks; returns whether somebody does."""
        return self._looked.wait(seconds)

    def close(self) -> None:
        """Ends the page."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()
        self._server.shutdown()
        self._server.server_close()

    def _show(self, request: http.server.BaseHTTPRequestHandler) -> None:
        path = self._path(request)
        if path == "/":
            self._answer(request, HTTPStatus.OK, _HTML.read_bytes(), "text/html; charset=utf-8")
        elif path == "/stream":
            self._stream(request)
        elif path is not None:
            self._answer(request, HTTPStatus.NOT_FOUND, b"expected / or /stream")

    def _obey(self, request: http.server.BaseHTTPRequestHandler) -> None:
        path = self._path(request)
        if path is None:
            return
        length = request.headers.get("Content-Length", "")
        body = request.rfile.read(int(length)) if length.isdecimal() and int(length) <= _MOST else b""
        said = "" if self._operator is None else obey(self._operator, path, body)
        self._answer(request, HTTPStatus.BAD_REQUEST if said else HTTPStatus.NO_CONTENT, said.encode())

    def _path(self, request: http.server.BaseHTTPRequestHandler) -> str | None:
        """What is asked for; None, and a refusal, if it is asked by somebody else."""
        asked = urlsplit(request.path)
        given = parse_qs(asked.query).get("token", [""])[0].encode("utf-8", "replace")
        here = request.headers.get("Host") == f"127.0.0.1:{self.port}"
        alike = request.command == "GET" and asked.path == "/"  # the page itself, which a tab may load again
        if here and (alike or hmac.compare_digest(given, self._token.encode())):
            return asked.path
        self._answer(request, HTTPStatus.FORBIDDEN, b"open the address that closedform run printed, with its token")
        return None

    @staticmethod
    def _answer(
        request: http.server.BaseHTTPRequestHandler, status: HTTPStatus, content: bytes, kind: str = "text/plain"
    ) -> None:
        with contextlib.suppress(OSError):  # whoever asked went away
            request.send_response(status)
            request.send_header("Content-Type", kind)
            request.send_header("Referrer-Policy", "no-referrer")
            request.send_header("X-Frame-Options", "DENY")  # nobody presses a button that they do not see
            request.send_header("Content-Length", str(len(content)))
            request.end_headers()
            request.wfile.write(content)

    def _stream(self, request: http.server.BaseHTTPRequestHandler) -> None:
        seen = 0
        self._looked.set()
        with contextlib.suppress(OSError):  # whoever looked went away
            request.send_response(HTTPStatus.OK)
            request.send_header("Content-Type", "multipart/x-mixed-replace; boundary=picture")
            request.end_headers()
            request.wfile.write(_NEXT)
            while True:
                with self._condition:
                    self._condition.wait_for(lambda seen=seen: self._closed or self._number > seen)
                    if self._closed:
                        return
                    picture, seen = self._picture, self._number
                request.wfile.write(picture + b"\r\n" + _NEXT)  # browsers show a picture once the next one begins


def obey(operator: Operator, path: str, body: bytes) -> str:
    """Does what a page asks for; returns what is wrong with it, or "".

    Args:
        operator: to do it.
        path: `/lead`, `/release`, `/pause`, `/resume` or `/stop`.
        body: for `/lead`, the pixel as JSON, such as `[320, 240]`.
    """
    if path == "/lead":
        try:
            pixel = np.asarray(json.loads(body), float)
        except (ValueError, TypeError, RecursionError):
            pixel = np.zeros(0)
        if pixel.shape != (2,) or not np.isfinite(pixel).all():
            return "expected a pixel such as [320, 240]"
        operator.lead(*map(float, pixel))
        return ""
    actions = {
        "/release": operator.release,
        "/pause": operator.pause,
        "/resume": operator.resume,
        "/stop": operator.stop,
    }
    if path not in actions:
        return "expected /lead, /release, /pause, /resume or /stop"
    actions[path]()
    return ""
