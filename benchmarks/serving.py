"""Time of a reply of `closedform serve` to many robots at once: `make bench-serving`, half a minute."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from websockets.asyncio.client import connect

from closedform import load_demos, provenance
from closedform.wire import pack, unpack
from report import table

RESULTS = Path("docs/results/bench")


def main() -> None:
    """Starts a server, asks it in turn and at the same instants, and writes serving.json and serving.md."""
    parser = argparse.ArgumentParser(description="Many clients of one server on this machine.")
    parser.add_argument("--clients", type=int, default=32, help="how many robots")
    parser.add_argument("--rate", type=float, default=10.0, help="requests of each in a second")
    parser.add_argument("--seconds", type=float, default=15.0, help="how long, twice")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of serving.json and serving.md")
    arguments = parser.parse_args()
    command = [sys.executable, "-m", "closedform", "serve", "pusht", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            said = server.stdout.readline()
            port = re.search(r"port (\d+)", said)
            if port is None:
                raise SystemExit(f"expected a server that listens, found {said!r}")
            address = f"ws://127.0.0.1:{port[1]}"
            found = [asyncio.run(measure(address, arguments, together=each)) for each in (False, True)]
        finally:
            server.terminate()
    results = {
        "command": "make bench-serving",
        "commit": provenance.commit(),
        "date": provenance.now(),
        "machine": provenance.machine(),
        "versions": provenance.versions(),
        "clients": arguments.clients,
        "rate": arguments.rate,
        "real_time": os.sched_getscheduler(0) in (os.SCHED_FIFO, os.SCHED_RR),
        "measured": found,
    }
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / "serving.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    (arguments.output / "serving.md").write_text(report(results), encoding="utf-8")
    print(report(results))


def report(results: dict[str, Any]) -> str:
    """The measurements as Markdown."""
    machine = results["machine"]
    names = {
        "replies": "replies",
        "median_ms": "median, ms",
        "p99_ms": "99th percentile, ms",
        "slowest_p99_ms": "of the slowest client, ms",
        "max_ms": "longest, ms",
        "fewest": "fewest replies of a client",
    }
    rows = [
        ["at the same instants" if each["together"] else "in turn", *(f"{each[name]:g}" for name in names)]
        for each in results["measured"]
    ]
    load = ", ".join(f"{each['load']:g}" for each in results["measured"])
    ahead = "; all of this was scheduled ahead of that (chrt)" if results["real_time"] else ""
    return f"""# Many robots at once

Made by `{results["command"]}` at commit {results["commit"] or "unknown"} on {results["date"]}.
Machine: {machine["processor"]}, {machine["cores"]} cores, {machine["system"]}; its load before was {load}{ahead}.

One server of Push-T (206 demonstrations, the default policy) and {results["clients"]} clients, on the same cores, that
each ask {results["rate"]:g} times a second: in turn, or all at the same instants, when the last one waits for the plans
of all. Times are those of a client, from its request to its reply.

{table(["", *names.values()], rows)}
"""


async def measure(address: str, arguments: argparse.Namespace, *, together: bool) -> dict[str, Any]:
    """Milliseconds from a request to its reply, over all clients and for the one that waited longest."""
    episodes = load_demos("pusht").episodes
    load = os.getloadavg()[0]
    began = time.perf_counter() + 1.0
    apart = 0.0 if together else 1 / arguments.clients / arguments.rate
    robots = [
        robot(address, episodes[i].observations, began + i * apart, arguments.rate, arguments.seconds)
        for i in range(arguments.clients)
    ]
    each = [1e3 * times for times in await asyncio.gather(*robots)]
    times = np.concatenate(each)
    return {
        "together": together,
        "replies": len(times),
        "median_ms": round(float(np.median(times)), 2),
        "p99_ms": round(float(np.quantile(times, 0.99)), 2),
        "slowest_p99_ms": round(max(float(np.quantile(some, 0.99)) for some in each), 2),
        "max_ms": round(float(times.max()), 2),
        "fewest": min(map(len, each)),
        "load": round(load, 2),
    }


async def robot(address: str, observations: np.ndarray, start: float, rate: float, seconds: float) -> np.ndarray:
    """Asks at fixed times; the times until the replies in seconds."""
    times = []
    async with connect(address, compression=None, max_size=None) as connection:
        await connection.recv()
        for step in range(int(seconds * rate)):
            await asyncio.sleep(max(0.0, start + step / rate - time.perf_counter()))
            asked = time.perf_counter()
            await connection.send(pack({"observation": observations[step % len(observations)], "executed": 1}))
            reply = unpack(await connection.recv())  # pyright: ignore[reportArgumentType]
            times.append(time.perf_counter() - asked)
            assert reply["actions"].ndim == 2
    return np.array(times)


if __name__ == "__main__":
    main()
