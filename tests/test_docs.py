"""Every page is on the map, every link leads somewhere, and every score is on a page."""

import re
from pathlib import Path

import pytest

from unbraid.reports.words import METRICS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
INDEX = DOCS / "index.md"
PAGES = sorted(DOCS.rglob("*.md"))


def prose(path: Path) -> str:
    """A page without its examples, in which brackets mean something else."""
    return re.sub(r"^```.*?^```|`[^`\n]*`", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)


def links(path: Path) -> list[tuple[Path, str]]:
    """The files a page links to, and the heading in each; not what is on the network."""
    found = re.findall(r"\]\(([^)\s]*)\)", prose(path))
    parts = [target.partition("#") for target in found if "://" not in target]
    return [((path.parent / file).resolve() if file else path, heading) for file, _, heading in parts]


def anchors(path: Path) -> set[str]:
    """What headings are called in links: small letters, words joined by hyphens."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_on_the_map():
    linked = {target for target, _ in links(INDEX)}
    assert {page for page in PAGES if page != INDEX} - linked == set()


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path):
    for target, heading in links(page):
        assert target.exists(), f"{target} is not there"
        assert not heading or heading in anchors(target), f"{target.name} has no heading #{heading}"


def test_every_score_is_on_a_page():
    named = set(re.findall(r"`(\w+)`", "\n".join(page.read_text() for page in PAGES)))
    assert set(METRICS) - named == set()
