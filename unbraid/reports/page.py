"""Write one self-contained HTML page about finished runs: it opens from disk and asks nothing of the network."""

from collections.abc import Sequence
from pathlib import Path

from unbraid.reports import markup, sections
from unbraid.reports.canvas import Section
from unbraid.reports.equal_accuracy import equal_accuracy
from unbraid.reports.sections import draw, keep
from unbraid.reports.run_results import RunResults, read_results
from unbraid.storage.files import write_bytes
from unbraid.storage.runs import Run


def write_report(runs: Sequence[Run], path: Path) -> Path:
    """Write the page, and the figures of a run whose own page it is; refuses a run that is not finished."""
    results = [read_results(run) for run in runs]
    drawn = [draw(one) for one in results]
    for run, sections in zip(runs, drawn, strict=True):
        if path.resolve().parent == run.path.resolve():
            keep(sections, run.path / "figures")
    write_bytes(path, page(results, drawn).encode())
    return path


def page(results: Sequence[RunResults], drawn: Sequence[list[Section]]) -> str:
    if len(results) == 1:
        only = results[0]
        return markup.document(f"{only.title} · Unbraid", markup.heading(1, only.title) + _about(only, drawn[0], 2))
    title = f"{len(results)} runs compared"
    names = [f"{one.run.name}: {one.title}" if one.title != one.run.name else one.title for one in results]
    contents = "".join(f"<li>{markup.link(f'run-{place}', name)}</li>" for place, name in enumerate(names, 1))
    body = markup.heading(1, title) + f"<ul>{contents}</ul>" + sections.overview(results)
    for place, (one, sections, name) in enumerate(zip(results, drawn, names, strict=True), 1):
        body += f'<section class="run" id="run-{place}">{markup.heading(2, name)}{_about(one, sections, 3)}</section>\n'
    return markup.document(f"{title} · Unbraid", body)


def _about(results: RunResults, sections: list[Section], level: int) -> str:
    """All there is to say about one run, under headings of this level."""
    first, *others = [markup.heading(level, section.heading) + markup.figure(section) for section in sections]
    top = [markup.paragraph(f"run {results.run.name}", "soft"), sections.described(results, level), first]
    scores = [sections.scored(results), sections.compared(results, level)]
    if results.is_line:
        all_scores = [markup.heading(level, "All scores"), *scores]
        parts = [*top, equal_accuracy(results, level), *others, *all_scores]
    else:
        parts = [*top, *scores, *others]
    return "\n".join([*parts, sections.surroundings(results)])
