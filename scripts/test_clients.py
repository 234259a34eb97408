"""Runs other people's clients against `closedform serve`: `make test-clients`.

The argument is a Python with what tests/clients/requirements.txt names; closedform need not be installed there.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

CLIENTS = Path(__file__).parents[1] / "tests" / "clients"
TOKEN = "only-for-this-test"


def main() -> None:
    """Starts a server for each dialect, and its client."""
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for dialect in ("openpi", "gr00t"):
        command = [sys.executable, "-m", "closedform", "serve", "pusht-embedded", "--dialect", dialect, "--port", "0"]
        with subprocess.Popen([*command, "--token", TOKEN], stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                port = re.search(r"port (\d+)", server.stdout.readline())
                if port is None:
                    raise SystemExit(f"expected a server of dialect {dialect} that listens, found none")
                client = [sys.argv[1], str(CLIENTS / f"{dialect}.py"), port[1], TOKEN]
                subprocess.run(client, check=True, env=outside, timeout=300)
            finally:
                server.terminate()
                server.communicate(timeout=60)  # it says that it stopped
        if server.returncode:
            raise SystemExit(f"expected the server of dialect {dialect} to stop, found status {server.returncode}")


if __name__ == "__main__":
    main()
