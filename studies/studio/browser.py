"""A person's hands in a real browser: everything that is done goes through the mouse and keys of Chromium."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from closedform import provenance
from closedform.errors import ConfigError, MissingExtraError
from closedform.files import write_file
from studies.studio.person import Person

FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
_MARGIN = 10  # pixels around the scene
_LONGEST = 600  # steps, after which the person gives up
_NEXT_FRAME = """() => new Promise((resolve) => {
  const seen = studio.stage.frame;
  const look = () => studio.stage.frame !== seen ? resolve(studio.stage.frame) : setTimeout(look, 2);
  look();
})"""


def chromium() -> str:
    """The browser of this machine."""
    found = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        raise ConfigError("expected Chromium, found none: apt-get install chromium, or set CHROMIUM to its path")
    return found


@contextmanager
def studio(*options: str) -> Iterator[tuple[str, int]]:
    """The command `closedform studio`, in a process of its own; yields the address of its page and the process's id."""
    command = [sys.executable, "-m", "closedform", "studio", "--no-open", "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        said = process.stdout.readline() if process.stdout is not None else ""
        if not said.startswith("studio: "):
            raise ConfigError(f"expected the address of the studio, found {said!r:.80}")
        yield said.removeprefix("studio: ").strip(), process.pid
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def opened(address: str, **options: Any) -> Iterator[Any]:
    """A page of a browser without a window."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise MissingExtraError(error.name or "playwright", "dev", "the study 'studio'") from error
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        page = browser.new_context(viewport={"width": 1280, "height": 720}, **options).new_page()
        page.goto(address)
        page.wait_for_function("() => window.studio?.stage.frame && studio.state.hello && studio.state.drives")
        yield page
        browser.close()


class Hands:
    """The mouse and the keys of a person at a page of the studio."""

    def __init__(self, page: Any):
        self.page, self._holds = page, False
        left, right, bottom, top = page.evaluate("studio.state.hello.drawing.extent")
        box = page.locator("#scene").bounding_box()
        scale = min((box["width"] - 2 * _MARGIN) / abs(right - left), (box["height"] - 2 * _MARGIN) / abs(top - bottom))
        self._scale, self._left, self._top = scale, min(left, right), min(bottom, top)
        self._x = box["x"] + (box["width"] - scale * abs(right - left)) / 2
        self._y = box["y"] + (box["height"] - scale * abs(top - bottom)) / 2

    def see(self) -> dict[str, Any]:
        """Waits for the next frame."""
        return self.page.evaluate(_NEXT_FRAME)

    def hold(self, point: tuple[float, float] | None) -> None:
        """Moves the pressed mouse to a point of the scene; None lets go."""
        if point is None:
            if self._holds:
                self.page.mouse.up()
            self._holds = False
            return
        self.page.mouse.move(
            self._x + self._scale * (point[0] - self._left), self._y + self._scale * (point[1] - self._top)
        )
        if not self._holds:
            self.page.mouse.down()
            self._holds = True

    def start(self, seed: int, *, holding: bool) -> None:
        """Starts a run, with the hand already held if the person is to drive from its first step."""
        self.hold(None)
        self.pause(True)
        self.page.locator("#seed").fill(str(seed))
        self.page.keyboard.press("Enter")
        frame = self.see()
        while frame["seed"] != seed or frame["step"]:
            frame = self.see()
        if holding:
            self.hold(tuple(frame["poses"]["agent"][:2]))
        self.pause(False)

    def pause(self, paused: bool) -> None:
        """Pauses or goes on."""
        if self.see()["paused"] != paused:
            self.page.keyboard.press("Space")
            while self.see()["paused"] != paused:
                pass


def collect(
    folder: Path, first_seed: int, n: int, *, person: int, patient: bool, given: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Has the person do n episodes in the browser, recorded to a folder, and says what is known of each.

    A JSON file beside the folder lists the complete ones, which are not done again.

    Args:
        folder: to record to.
        first_seed: of the start of the first episode, counted up for the others.
        n: the number of episodes.
        person: which person.
        patient: whether the policy drives first; see `Person`.
        given: files that were in the folder before.
    """
    progress = folder.with_name(folder.name + ".json")
    done: list[dict[str, Any]] = json.loads(progress.read_text()) if progress.exists() else []
    if len(done) >= n:
        return done[:n]
    _forget(folder, done[-1]["files"] if done else given)
    with studio("--record", str(folder)) as (address, _), opened(address) as page:
        hands = Hands(page)
        while len(done) < n:
            seed = first_seed + len(done)
            ended, missed = _episode(hands, seed, Person((person, seed), patient=patient))
            files = sorted(path.name for path in folder.glob("episode_*.safetensors"))
            facts = {"commit": provenance.commit(), "steps": ended["step"], "missed": missed, "files": files}
            done.append({"seed": seed, "outcome": ended["outcome"], **facts})
            write_file(progress, json.dumps(done, indent=1) + "\n")
            print(f"{folder.name} {len(done)} of {n}: seed {seed}, {ended['outcome'] or 'given up'}", flush=True)
    return done


def _episode(hands: Hands, seed: int, person: Person) -> tuple[dict[str, Any], int]:
    """One episode; returns its last frame, and how many steps the person did not see because the machine was busy."""
    hands.start(seed, holding=not person.patient)
    frame, missed = hands.see(), 0
    while not frame["outcome"] and frame["step"] < _LONGEST and frame["seed"] == seed:
        hands.hold(person.point(frame))
        before, frame = frame["step"], hands.see()
        missed += max(0, frame["step"] - before - 1)
    hands.hold(None)
    hands.pause(True)  # the last stretch is an episode by now
    return frame, missed


def _forget(folder: Path, files: Sequence[str]) -> None:
    """Removes what was recorded of an episode that was interrupted."""
    for path in folder.glob("*"):
        if path.is_file() and path.name.startswith("episode_") and path.name not in files:
            path.unlink()
