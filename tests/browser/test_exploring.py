"""A person looks around: tiles, features, searches, heads, the cosine matrix by keyboard, and a silenced feature."""

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.explorer.small import folder
from unbraid.storage.files import read_arrays

pytestmark = [pytest.mark.browser, pytest.mark.filterwarnings("default")]
PAGES = (
    "planted/concepts",
    "planted/concepts/1",
    "pipeline/features",
    "pipeline/features/0/0/1",
    "planted/features/0/0/1",
)
PAGES += ("models/heads", "pipeline/heads", "gauge/heads", "planted/directions", "planted/timeline", "planted/try")
PAGES += ("captured", "captured/features", "captured/features/0/0/1", "gauge")
TRIED = ("pipeline/try", "captured/try", "gauge/try")


def test_a_tile_leads_to_the_feature_behind_it(page, address):
    feature = read_arrays(folder() / "planted/stacks/00/tables.safetensors")["best_feature"][0, 2]
    page.goto(f"{address}/runs/planted/concepts?stack=0&member=0")
    page.click('a.tile[aria-label^="concept 2:"]')
    page.click("ul.features li:first-child a")
    assert page.inner_text("h1").startswith(f"Feature {feature}")


def test_features_are_sorted_and_searched(page, address):
    page.goto(f"{address}/runs/pipeline/features")
    page.click("thead a:has-text('precision')")
    shown = [float(text) for text in page.locator("td[data-column=precision]").all_inner_texts() if text != "–"]
    assert shown == sorted(shown, reverse=True)
    page.fill("input[name=search]", "sandra")
    page.press("input[name=search]", "Enter")
    assert "with “sandra”" in page.inner_text("[role=status]")
    assert 0 < page.locator("tbody tr").count() <= 16


def test_a_card_is_saved_and_opens_alone(page, address, tmp_path):
    page.goto(f"{address}/runs/pipeline/features/0/0/1")
    with page.expect_download() as saved:
        page.click("text=Save as one HTML file")
    saved.value.save_as(tmp_path / "card.html")
    card = (tmp_path / "card.html").read_text()
    assert "Feature 1" in card
    assert "<script" not in card
    assert "/static/" not in card


def test_the_matrix_is_moved_by_keyboard(page, address):
    page.goto(f"{address}/runs/planted/directions?stack=0&member=0")
    page.focus("#matrix")
    page.keyboard.press("+")
    page.keyboard.press("ArrowRight")
    assert "zoom=-5" in page.url
    assert "column=4" in page.url
    assert page.get_attribute("#matrix img", "src").endswith("column=4&zoom=-5")
    page.hover("#matrix img", position={"x": 10, "y": 10})
    page.wait_for_selector("#cell a")
    assert "cosine" in page.inner_text("#cell")


def test_a_silenced_feature_changes_the_answer(page, address):
    page.goto(f"{address}/runs/pipeline/try?stack=0&member=0")
    page.wait_for_selector("#answer:not([hidden])", timeout=60_000)
    page.fill("#text", "sandra went to the garden . mary moved to the kitchen . where is sandra ?")
    page.click("#read")
    page.wait_for_selector("#tokens button:nth-of-type(16):last-of-type:enabled")
    page.click("#tokens button:nth-of-type(14)")
    page.click("#firing button:has-text('Silence')")
    page.wait_for_selector("h3:has-text('Edited')")
    before, after = page.locator(".predictions").all_inner_texts()
    assert before != after
    page.click("text=Undo")
    page.wait_for_selector("h3:has-text('Edited')", state="detached")


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("path", PAGES + TRIED)
def test_pages_are_accessible_and_fit(page, address, path, width):
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"{address}/runs/{path}")
    if path in TRIED:
        page.wait_for_selector("#answer:not([hidden])", timeout=60_000)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    serious = [v for v in Axe().run(page).response["violations"] if v["impact"] in ("serious", "critical")]
    assert not serious, [(v["id"], v["nodes"][0]["html"][:200]) for v in serious]
