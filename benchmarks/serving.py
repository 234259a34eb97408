"""Time of a reply of `closedform serve` to many robots at once: `python benchmarks/serving.py`, half a minute."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import time
from typing import Any

import numpy as np
from websockets.asyncio.client import connect

from closedform import load_demos, provenance
from closedform.serve.wire import pack, unpack


def main() -> None:
    """Starts a server, asks it, and prints what was measured."""
    parser = argparse.ArgumentParser(description="Many clients of one server on this machine.")
    parser.add_argument("--clients", type=int, default=32, help="how many robots")
    parser.add_argument("--rate", type=float, default=10.0, help="requests of each in a second")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long")
    parser.add_argument("--together", action="store_true", help="all ask at the same moments, instead of in turn")
    arguments = parser.parse_args()
    command = [sys.executable, "-m", "closedform", "serve", "pusht", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            said = server.stdout.readline()
            port = re.search(r"port (\d+)", said)
            if port is None:
                raise SystemExit(f"expected a server that listens, found {said!r}")
            found = asyncio.run(measure(f"ws://127.0.0.1:{port[1]}", arguments))
        finally:
            server.terminate()
    print(json.dumps({"machine": provenance.machine(), "commit": provenance.commit(), **found}, indent=2))


async def measure(address: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds from a request to its reply, over all clients and for the one that waited longest."""
    episodes = load_demos("pusht").episodes
    before = os.getloadavg()[0]
    began = time.perf_counter() + 1.0
    robots = [robot(address, episodes[i].observations, began, i, arguments) for i in range(arguments.clients)]
    each = await asyncio.gather(*robots)
    together = 1e3 * np.concatenate(each)
    return {
        "clients": arguments.clients,
        "requests a second of each": arguments.rate,
        "at the same moments": arguments.together,
        "replies": len(together),
        "median ms": round(float(np.median(together)), 2),
        "p99 ms": round(float(np.quantile(together, 0.99)), 2),
        "max ms": round(float(together.max()), 2),
        "p99 ms of the slowest client": round(max(float(np.quantile(1e3 * times, 0.99)) for times in each), 2),
        "fewest replies of a client": min(map(len, each)),
        "load before, and at the end": [round(before, 2), round(os.getloadavg()[0], 2)],
    }


async def robot(
    address: str, observations: np.ndarray, began: float, number: int, arguments: argparse.Namespace
) -> np.ndarray:
    """Asks at fixed times; the times until the replies in seconds."""
    times = []
    async with connect(address, compression=None, max_size=None) as connection:
        await connection.recv()
        start = began if arguments.together else began + number / arguments.clients / arguments.rate
        for step in range(int(arguments.seconds * arguments.rate)):
            due = start + step / arguments.rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            asked = time.perf_counter()
            await connection.send(pack({"observation": observations[step % len(observations)], "executed": 1}))
            reply = unpack(await connection.recv())  # pyright: ignore[reportArgumentType]
            times.append(time.perf_counter() - asked)
            assert reply["actions"].ndim == 2
    return np.array(times)


if __name__ == "__main__":
    main()
