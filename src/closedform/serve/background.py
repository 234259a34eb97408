"""Serving from a thread of the running program: for notebooks and tests."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Any, Literal

from closedform.policies.policy import Policy
from closedform.serve.config import ServeConfig
from closedform.serve.gr00t_server import Gr00tServer
from closedform.serve.monitor import Monitor
from closedform.serve.monitor_server import MonitorServer
from closedform.serve.openpi_server import OpenpiServer
from closedform.serve.service import Service
from closedform.serve.websocket_server import WebSocketServer


@contextlib.contextmanager
def serving(
    policy: Policy[Any],
    config: ServeConfig | None = None,
    *,
    dialect: Literal["openpi", "gr00t"] = "openpi",
    learn: bool = False,
    false_alarm_rate: float = 0.01,
) -> Iterator[str]:
    """Serves a policy from a thread, by default on any free port of this machine, and yields the address.

        with serving(policy) as address, Client(address) as client:
            client.infer(observation)["actions"]

    Args:
        policy: what plans.
        config: where to listen.
        dialect: the protocol of openpi, or that of Isaac GR00T.
        learn: whether clients may add demonstrations.
        false_alarm_rate: the fraction of familiar observations that may raise an alarm.
    """
    config = config or ServeConfig(port=0)
    service = Service(policy, learn=learn, false_alarm_rate=false_alarm_rate)
    with running((OpenpiServer if dialect == "openpi" else Gr00tServer)(service, config)) as port:
        yield f"{'ws' if dialect == 'openpi' else 'tcp'}://{config.host}:{port}"


@contextlib.contextmanager
def monitoring(
    monitor: Monitor, upstream: str, config: ServeConfig | None = None, *, token: str | None = None
) -> Iterator[str]:
    """Puts a monitor in front of a policy server, from a thread, and yields the address that clients connect to.

    Args:
        monitor: what judges.
        upstream: the address of the policy server.
        config: where to listen; by default on any free port of this machine.
        token: what the policy server wants; by default what the client sends.
    """
    config = config or ServeConfig(port=0)
    with running(MonitorServer(monitor, upstream, config, token)) as port:
        yield f"ws://{config.host}:{port}"


@contextlib.contextmanager
def running(server: WebSocketServer | Gr00tServer) -> Iterator[int]:
    """Runs a server in a thread, and yields its port."""
    ready, failed = threading.Event(), []
    loop = asyncio.new_event_loop()

    def run() -> None:
        try:
            loop.run_until_complete(server.run(ready))
        except BaseException as error:
            failed.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="closedform-serve")
    thread.start()
    ready.wait()
    try:
        if failed:
            raise failed[0]
        yield server.port
    finally:
        with contextlib.suppress(RuntimeError):  # it has stopped by itself
            loop.call_soon_threadsafe(server.stop)
        thread.join()
        loop.close()
    if failed:
        raise failed[0]
