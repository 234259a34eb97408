"""The studio in a real browser, driven with real mouse events."""

import os
import shutil
import zipfile

import pytest

from closedform.studio import Pilot, Server
from closedform.studio.server import in_thread
from tests.studio.toys import make_session

pytest.importorskip("uvicorn", reason="the extra `studio` is not installed")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium, or set CHROMIUM")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def server():
    server = Server(Pilot(lambda background: make_session(background=background)), "table")
    thread = in_thread(server)
    yield server
    server.stop()
    thread.join(20)


@pytest.fixture
def page(browser, server):
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    problems = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda r: problems.append(r.url) if "127.0.0.1" not in r.url and r.url[:4] == "http" else None)
    opened(page, server)
    yield page
    page.close()
    assert not problems


def opened(page, server):
    page.goto(server.address)
    until(page, "window.studio?.stage.frame && studio.state.takes")


def until(page, condition):
    page.wait_for_function(f"() => {condition}", timeout=30_000)


def at(page, x, y):
    """The place on the screen of a point of the scene."""
    box = page.locator("#scene").bounding_box()
    scale = min(box["width"] - 20, box["height"] - 20) / 100
    left, top = box["x"] + (box["width"] - 100 * scale) / 2, box["y"] + (box["height"] - 100 * scale) / 2
    return left + scale * x, top + scale * y


def drive(page, points, steps=4):
    """Holds the mouse, visits points and lets go."""
    for i, point in enumerate(points):
        page.mouse.move(*at(page, *point))
        if not i:
            page.mouse.down()
        until(page, f"studio.stage.frame.driver == 'person' && studio.stage.frame.recorded > {steps * i}")
    page.mouse.up()


def test_demonstrate_let_go_grab_delete_undo_and_reload(page, server):
    until(page, "studio.stage.frame.waiting")
    drive(page, [(10, 90), (20, 80)])
    until(page, "studio.stage.frame.driver == 'policy' && studio.state.takes.length == 1")
    assert "policy drives" in page.locator("#who").text_content()
    until(page, "studio.stage.plan?.ghosts.length > 0")
    drive(page, [(50, 10), (60, 20)])
    until(page, "studio.state.takes.length == 2")
    assert page.evaluate("studio.state.takes.map((take) => take.kind)") == ["demonstration", "correction"]
    page.locator(".take").first.hover()
    page.locator(".take button").first.click()
    until(page, "studio.state.takes.length == 1")
    page.keyboard.press("z")
    until(page, "studio.state.takes.length == 2")
    page.keyboard.press(" ")
    until(page, "studio.stage.frame.paused")
    opened(page, server)  # reload: everything is there
    until(page, "studio.state.takes.length == 2 && studio.stage.frame.paused && studio.state.drives")
    assert page.locator(".take").count() == 2


def test_the_token_leaves_the_address_bar_and_stays_with_the_tab(page, browser, server):
    assert "token" not in page.url
    page.reload()
    until(page, "window.studio?.stage.frame && studio.state.takes")
    stranger = browser.new_page()
    stranger.goto(page.url)
    until(stranger, "document.getElementById('who').textContent.includes('open the address that')")
    stranger.close()


def test_the_hand_follows_the_mouse(page):
    page.mouse.move(*at(page, 30, 70))
    page.mouse.down()
    until(page, "Math.hypot(...studio.stage.frame.poses.hand.slice(0, 2).map((x, i) => x - [30, 70][i])) < 1")
    page.mouse.up()


def test_a_lost_connection_lets_go_and_comes_back(page):
    page.mouse.move(*at(page, 30, 70))
    page.mouse.down()
    until(page, "studio.stage.frame.recorded >= 4")
    page.evaluate("studio.socket().close()")
    until(page, "studio.state.takes.length == 1 && studio.stage.frame.driver != 'person' && studio.state.drives")
    page.mouse.up()


def test_two_tabs(page, browser, server):
    other = browser.new_page()
    opened(other, server)
    until(other, "!studio.state.drives")
    other.keyboard.press("z")  # which is refused, with a notice
    other.locator("#notices p").first.wait_for()
    scene = other.locator("#stage").bounding_box()
    for name in ("#watching", "#notices p"):  # they cover the scene alone, none of the controls and no legend
        box = other.locator(name).first.bounding_box()
        assert scene["x"] <= box["x"] and box["x"] + box["width"] <= scene["x"] + scene["width"]
        assert scene["y"] <= box["y"] and box["y"] + box["height"] <= scene["y"] + scene["height"]
    other.locator("#claim").click()
    until(other, "studio.state.drives")
    until(page, "!studio.state.drives")
    other.close()
    until(page, "studio.state.drives")


def test_parameters_and_export(page, tmp_path):
    drive(page, [(10, 90), (20, 80)])
    until(page, "studio.state.takes.length == 1")
    page.locator("#n_execute").fill("2")
    page.locator("#n_execute").dispatch_event("change")
    until(page, "studio.stage.plan?.n_execute == 2")
    with page.expect_download() as download:
        page.locator("[data-export=folder]").click()
    download.value.save_as(tmp_path / "demos.zip")
    names = zipfile.ZipFile(tmp_path / "demos.zip").namelist()
    assert "demos/episode_000000.safetensors" in names and "edits.jsonl" in names


def test_an_episode_is_played_and_time_stands_still_meanwhile(page):
    drive(page, [(10, 90), (20, 80)])
    until(page, "studio.state.takes.length == 1")
    page.locator(".take").first.click()
    until(page, "studio.stage.playback && studio.stage.frame.paused")
    until(page, "!studio.stage.playback && !studio.stage.frame.paused")


@pytest.mark.parametrize("size", [(1280, 720), (900, 700), (390, 844), (844, 390)])
def test_the_page_fits(page, size):
    """On a desk, in a small window, and on a phone, upright and on its side: the scene is in sight, and large."""
    width, height = size
    page.set_viewport_size({"width": width, "height": height})
    until(page, f"innerWidth == {width} && document.documentElement.scrollWidth <= innerWidth")
    scene = page.locator("#scene").bounding_box()
    assert scene["x"] >= 0 and scene["x"] + scene["width"] <= width and scene["y"] + scene["height"] <= height
    assert min(scene["width"], scene["height"]) > 0.6 * min(width, height)
    last = page.locator("[data-export=policy]").bounding_box()
    assert last["x"] + last["width"] <= width


def test_a_finger_is_told_to_drive(browser, server):
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    phone = context.new_page()
    opened(phone, server)
    until(phone, "studio.stage.frame.waiting && !document.getElementById('hint').hidden")
    assert "finger" in phone.locator("#task").text_content()
    context.close()
