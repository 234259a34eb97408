"""`python -m studies.studio.soak`: how punctual the studio is with its page open, and whether it leaks.

The scripted person demonstrates and lets go for some minutes in Chromium, all on this machine.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from tyro.conf import arg

from closedform import provenance
from closedform.cli import run
from closedform.files import check_writable, write_file
from studies.runner import markdown_table
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
    output: Annotated[Path, arg(aliases=["-o"])] = Path("docs/results/studio")
    """Folder for the results."""
    name: str = "soak"
    """Their name, such as soak for soak.json and soak.md."""

    def run(self) -> None:
        """Runs the person, and writes the results."""
        check_writable(self.output / f"{self.name}.json")
        with studio("--demos", "pusht-embedded") as (address, pid), opened(address) as page:
            found = self._watch(page, pid)
        write_file(self.output / f"{self.name}.json", json.dumps(found, indent=1) + "\n")
        write_file(self.output / f"{self.name}.md", page_of(found, self.name))
        print(f"results: {self.output / f'{self.name}.md'}")

    def _watch(self, page: Any, pid: int) -> dict[str, Any]:
        page.evaluate(_LISTEN)
        load = os.getloadavg()[0]
        hands, began, seed = Hands(page), time.monotonic(), 0
        used, rows = _seconds(pid), [_sizes(page, pid, 0.0)]
        while time.monotonic() - began < 60 * self.minutes:
            person, frame = Person((1, seed), patient=False), hands.see()
            for step in range(2 * _EPISODE):
                hands.hold(person.point(frame) if step < _EPISODE else None)
                frame = hands.see()
            seed += 1
            page.keyboard.press("z")  # takes the episode back, so that what grows is a leak
            minute = (time.monotonic() - began) / 60
            if minute - rows[-1]["minute"] >= min(1.0, self.minutes / 10):
                rows.append(_sizes(page, pid, minute))
        latencies, lateness = page.evaluate("latencies"), page.evaluate("lateness")
        elapsed = time.monotonic() - began
        return {
            "command": f"python -m studies.studio.soak --minutes {self.minutes:g} --name {self.name}",
            "commit": provenance.commit(),
            "machine": provenance.machine(),
            "date": provenance.now(),
            "load_average": round(load, 2),
            "real_time": os.sched_getscheduler(0) in (os.SCHED_FIFO, os.SCHED_RR),
            "minutes": round(elapsed / 60, 2),
            "late_by_10_ms": round(lateness["late"] / max(1, lateness["steps"]), 4),
            "steps_counted": lateness["steps"],
            "mouse_to_screen_ms": {f"p{q}": round(float(np.quantile(latencies, q / 100)), 1) for q in (50, 99)},
            "server_cpu": round((_seconds(pid) - used) / elapsed, 3),
            "sizes": rows,
        }


def page_of(found: dict[str, Any], name: str) -> str:
    """The results in words and a table."""
    rows = found["sizes"]
    chosen = [rows[round(i * (len(rows) - 1) / min(6, len(rows) - 1))] for i in range(min(7, len(rows)))]
    names = {
        "minute": "minute",
        "server_mb": "server, MB",
        "handles": "open files",
        "threads": "threads",
        "page_mb": "page, MB",
        "episodes": "episodes",
    }
    table = markdown_table(list(names.values()), [[f"{row[name]:g}" for name in names] for row in chosen])
    ahead = "; all of this was scheduled ahead of other programs (chrt)" if found["real_time"] else ""
    processor, cores = found["machine"]["processor"], found["machine"]["cores"]
    mouse = found["mouse_to_screen_ms"]
    return f"""# The studio for {found["minutes"]:.0f} minutes

Made by `{found["command"]}` (commit {found["commit"]}, {found["date"][:10]}; {processor}, {cores} cores, for the
server and for Chromium; load before: {found["load_average"]:g}{ahead}). Again and again, a scripted person demonstrates
for {_EPISODE} steps, lets the policy drive for as many, and takes the episode back;
[{name}.json]({name}.json) has every minute.

- **Control steps late by more than 10 ms**: {100 * found["late_by_10_ms"]:.2f}% of {found["steps_counted"]:,}.
- **Mouse to screen**: median {mouse["p50"]:g} ms, one of a hundred above {mouse["p99"]:g} ms.
- **The server** uses {100 * found["server_cpu"]:.0f}% of a core.

{table}
"""


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
