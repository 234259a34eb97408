"""The commands `serve`, a policy for robots on the network, and `monitor`, an alarm for one that is served."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from closedform import Policy
from closedform.cli.policy import Choosing
from closedform.demos.options import ChoosingLayouts, DemosName, Reading, progress_bar
from closedform.device import limit_threads
from closedform.errors import ConfigError
from closedform.policies.choice import make_policy
from closedform.policies.folder import SHIPPED, find_folder

if TYPE_CHECKING:
    from closedform.serve import ServeConfig, Service


@dataclass(frozen=True, kw_only=True)
class Listening:
    """Where to listen, and to whom."""

    host: Annotated[str, arg(metavar="ADDRESS")] = "127.0.0.1"
    """Address to listen on; 0.0.0.0 serves other machines, which needs a --token."""
    port: int = 8000
    """Port to listen on; 0 for any free one."""
    token: Annotated[str | None, arg(metavar="TOKEN")] = None
    """What clients have to send as Authorization: Api-Key TOKEN, or as api_token to gr00t; by default everybody on this
    machine is served."""
    insecure: bool = False
    """Do without a --token beyond this machine, or where clients may add demonstrations."""
    false_alarm_rate: float = 0.01
    """False-alarm rate: the fraction of familiar observations that may be called out of range."""
    max_megabytes: int = 16
    """The largest message that is accepted, in MiB."""

    @property
    def config(self) -> ServeConfig:
        """The same for a server."""
        from closedform.serve import ServeConfig

        return ServeConfig(
            host=self.host,
            port=self.port,
            token=self.token,
            insecure=self.insecure,
            max_megabytes=self.max_megabytes,
        )


@dataclass(frozen=True, kw_only=True)
class Serve(Listening, Reading, Choosing, ChoosingLayouts):
    """Serve a policy to robots over the network; clients of openpi connect as they are. See docs/serving.md.

    Ctrl-C stops it once the requests under way are answered.
    """

    source: Positional[Annotated[str, arg(metavar="SOURCE")]]
    """A saved policy's folder or name, a fleet as in docs/fleet.md, or demonstrations: a path, or the name of a dataset
    (`closedform data list`)."""
    dialect: Literal["openpi", "gr00t"] = "openpi"
    """The protocol: that of openpi, over WebSockets, or that of Isaac GR00T, over ZeroMQ."""
    learn: bool = False
    """Let clients add demonstrations, for all robots; needs a --token."""
    keys: Annotated[tuple[str, ...], arg(metavar="KEY ...")] = ()
    """Keys of a request whose numbers, in this order, are an observation; by default observation, state, or the names
    of the layout."""
    any_actions: bool = False
    """Also serve actions far outside the demonstrated range, which are refused while the alarm is raised."""

    def run(self) -> None:
        """Builds the policy, calibrates the alarm, and serves until it is interrupted."""
        from closedform.serve import Gr00tServer, OpenpiServer, Service
        from closedform.wire import require

        config = self.config
        for package in ("websockets" if self.dialect == "openpi" else "zmq", "msgpack"):  # before the work
            require(package)
        if self.learn and self.dialect == "gr00t":
            raise ConfigError("--learn: expected with --dialect openpi, since that of GR00T cannot add demonstrations")
        if self.learn and self.token is None and not self.insecure:
            raise ConfigError(
                "--learn: expected a --token, found none: whoever reaches the server could add demonstrations, for all "
                "robots; where that is meant, add --insecure"
            )
        policy = self._policy()
        limit_threads(1)
        with progress_bar() as say:
            say("leave-one-out distances", 0.0)
            options = {"learn": self.learn, "keys": self.keys, "any_actions": self.any_actions}
            service = Service(policy, false_alarm_rate=self.false_alarm_rate, **options)
        server = (OpenpiServer if self.dialect == "openpi" else Gr00tServer)(service, config)
        asyncio.run(_serve(server, lambda: f"{policy} at {self.host} port {server.port}; Ctrl-C stops it"))

    def _policy(self) -> Policy[Any]:
        if self.is_opened(self.source):
            if self.policy != "default" or self.learn:
                found = "--learn" if self.learn else f"--policy {self.policy}"
                raise ConfigError(f"{self.source}: expected neither --policy nor --learn with a fleet, found {found}")
            return self.open_policy(self.source)
        if not is_saved(self.source):
            with progress_bar() as say:
                return make_policy(self.policy, self.settle(self.read(self.source)), self.settings, progress=say)
        if self.policy != "default":
            raise ConfigError(
                f"{self.source} is a saved policy: expected no --policy, which chooses one for demonstrations, found "
                f"{self.policy!r}"
            )
        return make_policy(self.source, None, self.settings)


@dataclass(frozen=True, kw_only=True)
class MonitorCommand(Listening, Reading, ChoosingLayouts):
    """Put an alarm in front of anyone's policy server that speaks openpi's protocol. See docs/serving.md.

    Clients connect to the monitor instead. Requests and replies pass through unchanged; to replies it adds whether the
    observation is familiar, and the nearest demonstrations.
    """

    upstream: Annotated[str, arg(metavar="ADDRESS")]
    """Address of the policy server, such as ws://127.0.0.1:8000."""
    demos: DemosName
    """The demonstrations that are familiar, such as those that the policy was trained on: a path, or the name of a
    dataset (`closedform data list`)."""
    port: int = 8001
    """Port to listen on; 0 for any free one."""
    keys: Annotated[tuple[str, ...], arg(metavar="KEY ...")] = ()
    """Keys of a request whose numbers, in this order, are an observation; by default observation, state, or the names
    of the layout."""
    upstream_token: Annotated[str | None, arg(metavar="TOKEN")] = None
    """What the policy server wants as Authorization: Api-Key TOKEN; by default what the client sends."""
    then: Literal["tell", "stop", "fallback"] = "tell"
    """What happens once the alarm has lasted: nothing but to tell, refuse to go on (stop), or act with the policy of
    --fallback until the alarm is over."""
    after: int = 3
    """For how many observations in a row the alarm has to last."""
    fallback: Annotated[str | None, arg(metavar="POLICY")] = None
    """What acts instead: a saved policy's folder or name, or demonstrations; by default those of --demos."""

    def run(self) -> None:
        """Calibrates the alarm, and serves until it is interrupted."""
        from closedform.serve import Monitor as Judge
        from closedform.serve import MonitorServer, Service
        from closedform.wire import require

        config = self.config
        for package in ("websockets", "msgpack"):  # before the work
            require(package)
        if not self.upstream.startswith(("ws://", "wss://")):
            raise ConfigError(f"--upstream: expected an address such as ws://127.0.0.1:8000, found {self.upstream!r}")
        if self.fallback is not None and self.then != "fallback":
            raise ConfigError(f"--fallback: expected with --then fallback, found --then {self.then}")
        policy = make_policy("default", self.settle(self.read(self.demos)))
        with progress_bar() as say:
            say("leave-one-out distances", 0.0)
            service = Service(policy, false_alarm_rate=self.false_alarm_rate)
        acting = self._fallback(service) if self.then == "fallback" else None
        judge = Judge(service, then=self.then, after=self.after, fallback=acting, keys=self.keys)
        server = MonitorServer(judge, self.upstream, config, self.upstream_token)
        place = f"monitor of {self.upstream} at {self.host} port"
        asyncio.run(_serve(server, lambda: f"{place} {server.port}, {policy}; Ctrl-C stops it"))

    def _fallback(self, service: Service) -> Service:
        from closedform.serve import Service

        if self.fallback is None:
            return service
        if is_saved(self.fallback):
            return Service(make_policy(self.fallback, None), false_alarm_rate=self.false_alarm_rate)
        return Service(make_policy("default", self.settle(self.read(self.fallback))))


def is_saved(source: str) -> bool:
    """Whether a source is a saved policy, and not demonstrations."""
    return source in SHIPPED or (find_folder(source) / "config.json").is_file()


async def _serve(server: Any, line: Callable[[], str]) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # on Windows, Ctrl-C interrupts instead
            loop.add_signal_handler(number, server.stop)
    await server.run(_Said(line))
    print("stopped")


class _Said:
    """Prints a line once it is `set`."""

    def __init__(self, line: Callable[[], str]):
        self._line = line

    def set(self) -> None:
        """Prints the line."""
        print(self._line(), flush=True)
