"""The page of a report in a real browser, opened as a file: it moves, opens a rollout, and asks nobody for anything."""

import os
import shutil
from typing import Any

import pytest

from closedform import ClosedFormPolicy
from closedform.analysis import write_report
from closedform.evaluation.study import Study
from tests.evaluation.toy import Reach, reach_demos

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium, or set CHROMIUM")
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]


class Pointed(Reach):
    """A scene that cannot be rendered: its bodies are shown as points."""

    render: Any = None


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    ClosedFormPolicy(reach_demos(), bandwidth=50, frames="world").save(folder / "policy")
    env = "tests.analysis.test_report_browser:Pointed"
    results = Study.make(env, None, str(folder / "policy"), n_episodes=5).run(None, 1)
    write_report({"bad": results}, folder / "report.html", env=env)
    return folder / "report.html"


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [(1280, 720), (390, 844)])
def test_a_report_moves_and_opens_a_rollout(browser, report, size, scheme):
    page = browser.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
    problems = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: problems.append(request.url) if request.url[:4] == "http" else None)
    page.goto(report.as_uri())
    page.wait_for_function("viewer.views[0].t > 3")
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    page.click(".cell >> nth=1")
    page.wait_for_function("viewer.detail.rollout === viewer.groups[0].rollouts[1]")
    page.wait_for_selector(".behind li")
    assert page.inner_text(".behind").count("episode") == len(page.query_selector_all(".behind li")) > 0
    page.evaluate("viewer.detail.play(false); viewer.detail.seek(0)")
    page.wait_for_function("viewer.detail.slider.value === '0'")
    page.locator("dialog input[type=range]").press("ArrowRight")
    page.wait_for_function("document.querySelector('.time output').innerText.startsWith('step 1 of')")
    made = page.evaluate("viewer.detail.rollout.plans[1].t")
    page.evaluate("viewer.detail.seek(viewer.detail.rollout.plans[1].t)")  # a plan is shown from the step it is made at
    page.wait_for_function("viewer.detail.shown === viewer.detail.rollout.plans[1]")
    assert f"made at step {made}" in page.inner_text("dialog")
    page.click("dialog header button >> text=Close")
    page.wait_for_function("!document.querySelector('dialog').open")
    page.click("[data-open] >> nth=-1")
    page.wait_for_function("viewer.detail.t === viewer.detail.rollout.scores.length && viewer.detail.t > 0")
    page.close()
    assert not problems
