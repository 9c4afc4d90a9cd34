"""Write one self-contained HTML page about finished runs: it opens from disk and asks nothing of the network."""

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

from unbraid.config import JsonDict
from unbraid.figures import Cell, Table, draw
from unbraid.figures.words import MISSING, describe, estimate, number, seconds
from unbraid.report.charts import Charts, environment, own_file, vega_bundle
from unbraid.report.summary import best_setting, details, headline, what_was_run
from unbraid.results import RunResults
from unbraid.storage.files import write_bytes
from unbraid.storage.runs import Run


def write_report(runs: Sequence[Run], path: Path, figures: str | None = None) -> Path:
    """Write the page; with `figures` ("png" or "svg") also each figure of each run into its folder `figures`."""
    chapters = [_chapter(RunResults(run), f"run-{number}") for number, run in enumerate(runs, 1)]
    for chapter in chapters if figures is not None else []:
        for figure in [figure for section in chapter["sections"] for figure in section.figures]:
            figure.save(chapter["results"].run.path / "figures" / f"{figure.name}.{figures}")
    write_bytes(path, page(chapters).encode())
    return path


def _chapter(results: RunResults, anchor: str) -> JsonDict:
    """One run of a page, as its template shows it."""
    results.check_finished()
    return {
        "anchor": anchor,
        "results": results,
        "sections": draw(results),
        "headline": [headline(results), *details(results)],
        "what_was_run": Table(("what", "as run"), what_was_run(results), words=("as run",)),
        "config": (results.run.path / "config.toml").read_text(encoding="utf-8"),
        "environment": _environment(results.run),
    }


def _environment(run: Run) -> Table:
    """What the result may depend on beyond its configuration."""
    found = run.environment()
    rows = [
        ("run", run.name),
        ("began", str(run.facts()["began"]).replace("T", " ").replace("+00:00", " UTC")),
        ("worked", seconds(run.status()["seconds"])),
        ("commit", found["commit"] or "not from a checkout"),
        ("Python", found["python"]),
        ("packages", ", ".join(f"{name} {version}" for name, version in found["packages"].items())),
        ("threads", str(found["threads"])),
        ("machine", str(found.get("machine", ""))),
    ]
    return Table(("environment", "found"), rows, "Environment", words=("found",), folded=True)


def page(chapters: Sequence[JsonDict]) -> str:
    several = len(chapters) > 1
    title = f"{len(chapters)} runs compared" if several else chapters[0]["results"].title
    overview = _overview(chapters) if several else None
    return standalone("report.html.jinja", title=title, chapters=chapters, overview=overview)


def standalone(template: str, **context: object) -> str:
    """A page with style, charts and scripts inside, which the browser itself keeps off the network."""
    scripts = {"vega": vega_bundle(), "charts_js": own_file("charts.js")}
    allowed = " ".join(f"'sha256-{_hash(text)}'" for text in scripts.values())
    # Vega sets styles of single elements as it draws; a page that allows nothing else from outside may allow that.
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {allowed}"
    shared = {"charts": Charts(), "policy": policy, "style": own_file("style.css"), **scripts}
    return environment().get_template(template).render({**shared, **context})


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _overview(chapters: Sequence[JsonDict]) -> Table:
    """A row a run: its best setting and the score it is best by."""
    rows = []
    for chapter in chapters:
        results, best = chapter["results"], best_setting(chapter["results"])
        cells = [MISSING] * 5
        if best is not None:
            score = estimate(results.leading, best["value"], best["low"], best["high"])
            levels = [number(results.leading, best[which]) for which in ("chance", "ceiling")]
            cells = [best["label"], describe(results.leading).label, score, *levels]
        rows.append([Cell(results.run.name, f"#{chapter['anchor']}"), *cells])
    columns = ("run", "best setting", "score", "value", "chance", "ceiling")
    return Table(columns, rows, words=columns[1:3])
