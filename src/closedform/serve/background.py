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
from closedform.serve.openpi_server import OpenpiServer
from closedform.serve.service import Service


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
    server = (OpenpiServer if dialect == "openpi" else Gr00tServer)(service, config)
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
        yield f"{'ws' if dialect == 'openpi' else 'tcp'}://{config.host}:{server.port}"
    finally:
        with contextlib.suppress(RuntimeError):  # it has stopped by itself
            loop.call_soon_threadsafe(server.stop)
        thread.join()
        loop.close()
    if failed:
        raise failed[0]
