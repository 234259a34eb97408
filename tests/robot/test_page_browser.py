"""The page of a run in a real browser, driven with real mouse events."""

import os
import shutil
import threading

import numpy as np
import pytest

from closedform.robot.page import Page
from tests.robot.test_view import step

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium, or set CHROMIUM")
LONG = 120.0  # seconds; a busy machine does not matter


class Gray:
    """Draws nothing."""

    def draw(self, step):
        return np.full((480, 640, 3), 120, np.uint8)


class Listener:
    """An operator that notes what it is told."""

    def __init__(self):
        self.heard, self._news = [], threading.Condition()

    def __getattr__(self, name):
        def told(*numbers):
            with self._news:
                self.heard.append((name, *numbers))
                self._news.notify_all()

        return told

    def until(self, expected):
        """Waits until something was told."""
        with self._news:
            assert self._news.wait_for(lambda: expected in self.heard, LONG), self.heard


def test_the_tool_is_led_by_the_mouse_and_released_in_order():
    listener = Listener()
    shown = Page(Gray(), listener)  # pyright: ignore[reportArgumentType]
    try:
        with playwright.sync_playwright() as started:
            browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            assert not shown.wait(0.0)
            page.goto(shown.address, wait_until="domcontentloaded")
            assert shown.wait(LONG)  # as a run does before it begins
            assert "token" not in page.url
            page.reload(wait_until="domcontentloaded")  # as often as one likes
            shown.show(step())
            page.wait_for_function("document.getElementById('picture').naturalWidth === 640", timeout=1e3 * LONG)
            for name in ("#stop", "#pause", "#picture"):
                box = page.locator(name).bounding_box()
                assert box["y"] >= 0 and box["y"] + box["height"] <= 800  # all of it without scrolling
            scale = min(box["width"] / 640, box["height"] / 480)  # the picture is whole, in the middle of its box
            x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
            page.mouse.move(x, y)
            page.mouse.down()
            listener.until(("lead", 320.0, 240.0))
            page.mouse.move(x - 220 * scale, y - 190 * scale)
            listener.until(("lead", 100.0, 50.0))  # sent again and again while the mouse is held
            page.mouse.up()
            listener.until(("release",))
            page.keyboard.press("p")
            listener.until(("pause",))
            page.click("#resume")
            listener.until(("resume",))
            page.click("#stop")
            listener.until(("stop",))
            browser.close()
    finally:
        shown.close()
    kinds = [name for name, *_ in listener.heard]
    assert kinds == ["lead"] * kinds.count("lead") + ["release", "pause", "resume", "stop"]
