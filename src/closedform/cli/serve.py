"""The command `serve`: a policy for robots on the network."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tyro.conf import Positional

from closedform import Policy
from closedform.cli import streams
from closedform.cli.data import ChoosingLayouts, Reading, progress_bar
from closedform.cli.policy import Choosing
from closedform.errors import ConfigError
from closedform.policies.choice import make_policy
from closedform.policies.folder import SHIPPED, find_folder

if TYPE_CHECKING:
    from closedform.serve import Service


@dataclass(frozen=True, kw_only=True)
class Serve(Reading, Choosing, ChoosingLayouts):
    """Serve a policy to robots over the network; clients of openpi connect as they are. See docs/serving.md.

    Ctrl-C stops it once the requests under way are answered.
    """

    source: Positional[str]
    """A saved policy's folder or name, or demonstrations: a path, or the name of a dataset (`closedform data list`)."""
    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 serves other machines, which needs a --token or a network you trust."""
    port: int = 8000
    """Port to listen on; 0 for any free one."""
    token: str | None = None
    """What clients have to send as Authorization: Api-Key TOKEN, or as api_token to gr00t; by default everybody is
    served."""
    dialect: Literal["openpi", "gr00t"] = "openpi"
    """The protocol: that of openpi, over WebSockets, or that of Isaac GR00T, over ZeroMQ."""
    learn: bool = False
    """Let clients add demonstrations."""
    false_alarm_rate: float = 0.01
    """False-alarm rate: the fraction of familiar observations that may be called out of range."""
    max_megabytes: int = 16
    """The largest message that is accepted, in MiB."""

    def run(self) -> None:
        """Builds the policy, calibrates the alarm, and serves until it is interrupted."""
        from closedform.serve import Gr00tServer, OpenpiServer, ServeConfig, Service
        from closedform.wire import require

        config = ServeConfig(host=self.host, port=self.port, token=self.token, max_megabytes=self.max_megabytes)
        for package in ("websockets" if self.dialect == "openpi" else "zmq", "msgpack"):  # before the work
            require(package)
        if self.learn and self.dialect == "gr00t":
            raise ConfigError("--learn: expected with --dialect openpi, since that of GR00T cannot add demonstrations")
        policy = self._policy()
        with progress_bar() as say:
            say("leave-one-out distances", 0.0)
            service = Service(policy, learn=self.learn, false_alarm_rate=self.false_alarm_rate)
        server = (OpenpiServer if self.dialect == "openpi" else Gr00tServer)(service, config)
        self._warn()
        asyncio.run(self._serve(server, service))

    def _policy(self) -> Policy[Any]:
        folder = find_folder(self.source)
        if self.source not in SHIPPED and not (folder / "config.json").is_file():
            with progress_bar() as say:
                return make_policy(self.policy, self.settle(self.read(self.source)), self.settings, progress=say)
        if self.policy != "default":
            raise ConfigError(
                f"{self.source} is a saved policy: expected no --policy, which chooses one for demonstrations, found "
                f"{self.policy!r}"
            )
        return make_policy(self.source, None, self.settings)

    def _warn(self) -> None:
        local = self.host == "localhost"
        with contextlib.suppress(ValueError):
            local = ipaddress.ip_address(self.host).is_loopback
        if self.token is None and not local:
            what = "ask for actions and add demonstrations" if self.learn else "ask for actions"
            streams.complain(f"note: without --token, everybody who reaches {self.host} can {what}")

    async def _serve(self, server: Any, service: Service) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(NotImplementedError):  # on Windows, Ctrl-C interrupts instead
                loop.add_signal_handler(number, server.stop)
        await server.run(_Said(lambda: f"{service.policy} at {self.host} port {server.port}; Ctrl-C stops it"))
        print("stopped")


class _Said:
    """Prints a line once it is `set`."""

    def __init__(self, line: Callable[[], str]):
        self._line = line

    def set(self) -> None:
        """Prints the line."""
        print(self._line(), flush=True)
