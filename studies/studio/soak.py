"""`python -m studies.studio.soak`: how punctual the studio is with its page open, and whether it leaks.

The scripted person demonstrates and lets go for some minutes in Chromium, all on this machine.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from closedform import provenance
from closedform.cli import run
from closedform.files import write_file
from studies.studio.browser import Hands, opened, studio
from studies.studio.person import Person

_LISTEN = """() => {
  window.latencies = [];
  const channel = new MessageChannel(), waiting = [];
  channel.port1.onmessage = () => latencies.push(performance.now() - waiting.shift());
  document.getElementById("scene").addEventListener("pointermove", (event) => requestAnimationFrame(() => {
    waiting.push(event.timeStamp);
    channel.port2.postMessage(0); // after this frame is drawn
  }));
  window.lateness = { late: 0, steps: 0 };
  studio.socket().addEventListener("message", (event) => {
    const { kind, late, steps } = JSON.parse(event.data);
    if (kind === "clock") window.lateness = { late, steps };
  });
}"""
_EPISODE = 40  # steps that the person drives, and then watches


@dataclass(frozen=True)
class Soak:
    """Measure lateness, mouse to screen, memory and handles of the studio while a scripted person uses it."""

    minutes: float = 60.0
    """How long."""
    output: Path | None = None
    """JSON file for the measurements; printed if None."""

    def run(self) -> None:
        """Runs the person, and reports."""
        with studio("--demos", "pusht-embedded") as (address, pid), opened(address) as page:
            found = self._watch(page, pid)
        text = json.dumps(found, indent=2) + "\n"
        if self.output is not None:
            write_file(self.output, text)
        print(text, end="")

    def _watch(self, page: Any, pid: int) -> dict[str, Any]:
        page.evaluate(_LISTEN)
        hands, began, seed = Hands(page), time.monotonic(), 0
        used, rows = _seconds(pid), [_sizes(page, pid, 0.0)]
        while time.monotonic() - began < 60 * self.minutes:
            person, frame = Person((1, seed), patient=False), hands.see()
            for step in range(2 * _EPISODE):
                hands.hold(person.point(frame) if step < _EPISODE else None)
                frame = hands.see()
            seed += 1
            if seed % 3 == 0:
                page.keyboard.press("z")  # takes back the last episode, so that the session does not grow by itself
            minute = (time.monotonic() - began) / 60
            if minute - rows[-1]["minute"] >= min(1.0, self.minutes / 10):
                rows.append(_sizes(page, pid, minute))
        latencies, lateness = page.evaluate("latencies"), page.evaluate("lateness")
        elapsed = time.monotonic() - began
        return {
            "command": "python -m studies.studio.soak",
            "commit": provenance.commit(),
            "machine": provenance.machine(),
            "load_average": os.getloadavg()[0],
            "minutes": round(elapsed / 60, 2),
            "late_by_10_ms": round(lateness["late"] / max(1, lateness["steps"]), 4),
            "steps_counted": lateness["steps"],
            "mouse_to_screen_ms": {f"p{q}": round(float(np.quantile(latencies, q / 100)), 1) for q in (50, 99)},
            "server_cpu": round((_seconds(pid) - used) / elapsed, 3),
            "sizes": rows,
        }


def _sizes(page: Any, pid: int, minute: float) -> dict[str, Any]:
    """Memory and handles of the server, and memory of the page."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {
        "minute": round(minute, 2),
        "server_mb": round(int(status["VmRSS"].split()[0]) / 1024, 1),
        "handles": len(list(Path(f"/proc/{pid}/fd").iterdir())),
        "threads": int(status["Threads"]),
        "page_mb": round(page.evaluate("performance.memory.usedJSHeapSize") / 2**20, 1),
        "episodes": page.evaluate("studio.state.takes.length"),
    }


def _seconds(pid: int) -> float:
    """The processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    run(lambda: tyro.cli(Soak, prog="python -m studies.studio.soak"))
