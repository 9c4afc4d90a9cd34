"""Write one self-contained HTML page about finished runs: it opens from disk and asks nothing of the network."""

from collections.abc import Sequence
from pathlib import Path

from unbraid.reports import markup, text_sections
from unbraid.reports.canvas import Section
from unbraid.reports.run_results import RunResults, read_results
from unbraid.reports.sections import draw, save_figures
from unbraid.storage.files import write_bytes
from unbraid.storage.runs import Run


def write_report(runs: Sequence[Run], path: Path) -> Path:
    """Write the page, and the figures of a run whose own page it is; refuses a run that is not finished."""
    results = [read_results(run) for run in runs]
    drawn = [draw(one) for one in results]
    for run, parts in zip(runs, drawn, strict=True):
        if path.resolve().parent == run.path.resolve():
            save_figures(parts, run.path / "figures")
    write_bytes(path, page(results, drawn).encode())
    return path


def page(results: Sequence[RunResults], drawn: Sequence[list[Section]]) -> str:
    if len(results) == 1:
        only = results[0]
        return markup.document(f"{only.title} · Unbraid", markup.heading(1, only.title) + _about(only, drawn[0], 2))
    title = f"{len(results)} runs compared"
    names = [f"{one.run.name}: {one.title}" if one.title != one.run.name else one.title for one in results]
    contents = "".join(f"<li>{markup.link(f'run-{number}', name)}</li>" for number, name in enumerate(names, 1))
    body = markup.heading(1, title) + f"<ul>{contents}</ul>" + text_sections.overview(results)
    for number, (one, parts, name) in enumerate(zip(results, drawn, names, strict=True), 1):
        body += f'<section class="run" id="run-{number}">{markup.heading(2, name)}{_about(one, parts, 3)}</section>\n'
    return markup.document(f"{title} · Unbraid", body)


def _about(results: RunResults, parts: Sequence[Section], level: int) -> str:
    """All there is to say about one run, under headings of this level."""
    return "\n".join(
        [
            markup.paragraph(f"run {results.run.name}", "soft"),
            text_sections.summary(results, level),
            *(markup.heading(level, part.heading) + markup.section(part) for part in parts),
            text_sections.surroundings(results),
        ]
    )
