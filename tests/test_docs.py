"""Every page is on the map, every link leads somewhere, every score is on a page, and what pages name is there."""

import re
import tomllib
from pathlib import Path

import pytest

from unbraid.config.sweep import scales_of
from unbraid.metrics.catalog import METRICS
from unbraid.pipeline.expand import expand
from unbraid.studies.shipped import shipped

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
INDEX = DOCS / "index.md"
SOURCES = DOCS / "sources.md"
PAGES = sorted(DOCS.rglob("*.md"))
READABLE = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES]
EXISTING = [page for page in READABLE if not page.name.startswith("adding-a-")]
"""Those on adding something also name what a reader is to write."""
COMMAND = re.compile(r"unbraid run ((?:[a-z0-9-]+/)?[a-z0-9-]+)(?: --scale (\w+))?(?![\w/-]|\.\w)")
WHOLE = {"worlds", "stories", "text", "gauge"}
"""Pages whose first TOML block is a whole configuration."""


def each_page(pages: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("page", pages, ids=lambda page: str(page.relative_to(ROOT)))


def prose(path: Path) -> str:
    """A page without its examples, in which brackets mean something else."""
    return re.sub(r"^```.*?^```|`[^`\n]*`", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE)


def links(path: Path) -> list[tuple[Path, str]]:
    """The files a page links to, and the heading in each; not what is on the network."""
    targets = re.findall(r"\]\(([^)\s]*)\)", prose(path))
    parts = [target.partition("#") for target in targets if "://" not in target]
    return [((path.parent / file).resolve() if file else path, heading) for file, _, heading in parts]


def anchors(path: Path) -> set[str]:
    """What headings are called in links: small letters, words joined by hyphens."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_on_the_map():
    linked = {target for target, _ in links(INDEX)}
    assert {page for page in PAGES if page != INDEX} - linked == set()


@each_page(READABLE)
def test_every_link_leads_somewhere(page: Path):
    for target, heading in links(page):
        assert target.exists(), f"{target} is not there"
        assert not heading or heading in anchors(target), f"{target.name} has no heading #{heading}"


def test_every_score_is_on_a_page():
    named = set(re.findall(r"`([\w<>]+)`", "\n".join(page.read_text() for page in PAGES)))
    assert set(METRICS) - named == set()


@each_page(EXISTING)
def test_every_configuration_named_ships(page: Path):
    """As `unbraid run gauge/language --scale small`, or by its file."""
    text = page.read_text()
    for path in re.findall(r"configs/[\w./-]+\.toml", text):
        assert (ROOT / path).is_file(), path
    for name, scale in COMMAND.findall(text):
        assert name in shipped(), name
        assert not scale or scale in scales_of(tomllib.loads(shipped()[name].read_text()), name), f"{name} {scale}"


@each_page(EXISTING)
def test_every_file_of_the_package_named_is_there(page: Path):
    """A name in capitals stands for any."""
    for path in re.findall(r"`((?:unbraid|tests|benchmarks|materials)/[a-z0-9_./-]+)`", page.read_text()):
        assert (ROOT / path).exists(), path


@each_page(READABLE)
def test_the_studies_go_by_their_names(page: Path):
    """Only the page that says where they came from has their old numbers."""
    assert page == SOURCES or not re.findall(r"(?i)\bseeds? 00[0-3]\b", page.read_text())


@each_page([DOCS / f"{name}.md" for name in sorted(WHOLE)])
def test_a_whole_configuration_can_be_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)  # byte pairs are kept in a folder beside
    config = tomllib.loads(blocks(page, "toml")[0])
    if "units" in config["world"]:  # the primer has fewer byte pairs than WikiText-2
        config["world"] |= {"text": "primer", "tokens": 300}
    assert expand(config, page.name).members


def test_the_example_of_training_models_runs(capsys: pytest.CaptureFixture[str]):
    example = blocks(DOCS / "models.md", "python")[0]
    assert "steps=600" in example
    exec(example.replace("steps=600", "steps=2, batch=4"), {})
    assert len(capsys.readouterr().out.splitlines()) >= 2
