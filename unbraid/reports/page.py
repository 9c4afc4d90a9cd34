"""Write one self-contained HTML page about finished runs: it opens from disk and asks nothing of the network."""

from collections.abc import Sequence
from pathlib import Path

from unbraid.reports import markup, sections
from unbraid.reports.canvas import Plate
from unbraid.reports.equal_accuracy import equal_accuracy
from unbraid.reports.figures import draw, keep
from unbraid.reports.findings import Findings, read_findings
from unbraid.storage.files import write_bytes
from unbraid.storage.runs import Run


def write_report(runs: Sequence[Run], path: Path) -> Path:
    """Write the page, and the figures of a run whose own page it is; refuses a run that is not finished."""
    findings = [read_findings(run) for run in runs]
    drawn = [draw(one) for one in findings]
    for run, plates in zip(runs, drawn, strict=True):
        if path.resolve().parent == run.path.resolve():
            keep(plates, run.path / "figures")
    write_bytes(path, page(findings, drawn).encode())
    return path


def page(findings: Sequence[Findings], drawn: Sequence[list[Plate]]) -> str:
    if len(findings) == 1:
        only = findings[0]
        return markup.document(f"{only.title} · Unbraid", markup.heading(1, only.title) + _about(only, drawn[0], 2))
    title = f"{len(findings)} runs compared"
    names = [f"{one.run.name}: {one.title}" if one.title != one.run.name else one.title for one in findings]
    contents = "".join(f"<li>{markup.link(f'run-{place}', name)}</li>" for place, name in enumerate(names, 1))
    body = markup.heading(1, title) + f"<ul>{contents}</ul>" + sections.overview(findings)
    for place, (one, plates, name) in enumerate(zip(findings, drawn, names, strict=True), 1):
        body += f'<section class="run" id="run-{place}">{markup.heading(2, name)}{_about(one, plates, 3)}</section>\n'
    return markup.document(f"{title} · Unbraid", body)


def _about(findings: Findings, plates: list[Plate], level: int) -> str:
    """All there is to say about one run, under headings of this level."""
    first, *others = [markup.heading(level, plate.heading) + markup.figure(plate) for plate in plates]
    top = [markup.paragraph(f"run {findings.run.name}", "soft"), sections.told(findings, level), first]
    scores = [sections.scored(findings), sections.compared(findings, level)]
    if findings.is_line:
        all_scores = [markup.heading(level, "All scores"), *scores]
        parts = [*top, equal_accuracy(findings, level), *others, *all_scores]
    else:
        parts = [*top, *scores, *others]
    return "\n".join([*parts, sections.surroundings(findings)])
