"""A person filters runs, brushes a plot, compares, watches a run at work, and opens a report from disk."""

import subprocess
import sys
import time

import pytest

from tests.explorer.small import folder
from unbraid.report.page import write_report
from unbraid.storage.runs import Run

L1 = "path[aria-label*='setting: l1']"
UNTIL = 60
"""Seconds."""
pytestmark = [pytest.mark.browser, pytest.mark.filterwarnings("default")]
LIVE = """
[world]
kind = "superposition"
dimensions = 32
n_features = 64
[dictionary]
d_sae = 64
[training]
steps = 3000
batch = 256
[checkpoints]
log_every = 50
"""


def until(page, expression: str) -> None:
    """Wait until it is true. Playwright's own way evaluates text in the page, which the policy forbids."""
    end = time.monotonic() + UNTIL
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"never: {expression}"
        time.sleep(0.05)


def centre(page, selector: str) -> tuple[float, float]:
    box = page.locator(selector).first.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_runs_are_filtered_while_typing_and_compared(page, address):
    page.goto(f"{address}/runs")
    page.fill("input[name=q]", "planted")
    until(page, "document.querySelector('#count').textContent.startsWith('1 of')")
    page.fill("input[name=q]", "")
    page.check("input[value=planted]")
    page.check("input[value=pipeline]")
    page.click("text=Compare ticked runs")
    assert page.inner_text("h1") == "Compare"
    assert "under every setting" in page.content()


def test_a_brush_chooses_settings(page, address):
    page.goto(f"{address}/runs/pipeline?x=l0&y=phi")
    page.wait_for_selector(".brushed .chart[data-drawn=done]")
    page.locator("#settings").scroll_into_view_if_needed()
    page.locator(f".brushed .chart svg {L1}").scroll_into_view_if_needed()
    (x, y), (far_x, far_y) = (centre(page, f".brushed .chart svg {what}") for what in ("path.background", L1))
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(far_x + (far_x - x) / 20, far_y + (far_y - y) / 20, steps=5)
    page.mouse.up()
    until(page, "document.querySelector('.brush-count').textContent === '1 of 2 settings'")
    assert page.locator("#settings tbody tr:visible").all_inner_texts()[0].split()[0] == "l1"
    page.click("text=Draw only the ticked")
    page.wait_for_selector(".brushed .chart[data-drawn=done]")
    assert page.locator(".brushed .chart svg path[aria-label*='setting: ']").count() == 1


def test_sections_are_loaded_as_one_scrolls(page, address):
    page.goto(f"{address}/runs/planted")
    page.keyboard.press("End")
    until(page, "document.querySelectorAll('.later .chart svg').length > 0")


def test_a_live_run_is_seen_to_advance(page, address, tmp_path):
    config = tmp_path / "live.toml"
    config.write_text(LIVE)
    command = [sys.executable, "-m", "unbraid", "run", str(config), "--runs", str(folder()), "--name", "live", "-q"]
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + UNTIL
        while not (folder() / "live" / "progress.json").is_file() and time.monotonic() < end:
            time.sleep(0.1)
        page.goto(f"{address}/runs")
        page.wait_for_selector('tr[data-run="live"] progress')
        first = float(page.get_attribute('tr[data-run="live"] progress', "value") or 0)
        until(page, f"Number(document.querySelector('tr[data-run=\"live\"] progress')?.value ?? 2) > {first}")
    finally:
        run.wait(120)
    page.goto(f"{address}/runs/live")
    assert "finished" in page.inner_text(".state")


def test_the_keyboard_reaches_a_run(page, address):
    page.goto(f"{address}/runs")
    page.focus('a[href="/runs/planted"]')
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs/planted")


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("path", ["/runs", "/runs/pipeline", "/compare?run=planted&run=pipeline", "/claims"])
def test_pages_are_accessible_and_fit(page, address, path, width):
    from axe_playwright_python.sync_playwright import Axe

    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"{address}{path}")
    page.wait_for_timeout(500)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    serious = [v for v in Axe().run(page).response["violations"] if v["impact"] in ("serious", "critical")]
    assert not serious, [(v["id"], v["nodes"][0]["html"][:200]) for v in serious]


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", ["planted", "pipeline", "models"])
def test_a_report_opens_from_disk_whole(browser, name, width, tmp_path):
    path = write_report([Run.open(folder() / name)], tmp_path / "report.html")
    opened, problems = browser.new_page(viewport={"width": width, "height": 900}), []
    opened.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    opened.on("pageerror", lambda problem: problems.append(str(problem)))
    opened.on("request", lambda asked: problems.append(asked.url) if asked.url.startswith("http") else None)
    opened.goto(path.as_uri())
    opened.evaluate("window.drawAllCharts()")
    until(opened, "[...document.querySelectorAll('.chart')].every((place) => place.dataset.drawn === 'done')")
    assert opened.locator(".chart").count() > 0
    assert opened.locator(".chart svg").count() == opened.locator(".chart").count()
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    opened.close()
    assert not problems
