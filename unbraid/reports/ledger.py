"""The page of the ledger: what the source studies claim, what we measured, and which claims hold."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from unbraid.config import JsonDict
from unbraid.reports import markup
from unbraid.reports.canvas import Figure, Section
from unbraid.reports.markup import Group, Link
from unbraid.reports.words import MISSING, count, interval, number
from unbraid.storage.files import read_bytes, write_bytes

VERDICTS = {
    "holds": "✓ holds",
    "no effect": "≈ no effect",
    "opposite": "✗ opposite",
    "fails": "✗ fails",
    "undecided": "○ undecided",
    "not run": "– not run",
}
"""With `fails`, as ledgers of format 1 have it."""
HEAD = ("claim", "published", "ours", "95 % interval", "chance", "p", "q", "verdict", "figure")
PART_HEAD = ("measured", "ours", "95 % interval", "chance", "pairs", "p", "verdict", "rule")
DECIDED = ("holds", "opposite")
MOST_FALSE = 0.1
"""A claim decided at a larger q is marked: more than so many of its like would be false."""
ORDER = {
    "all": ("fails", "opposite", "no effect", "undecided", "holds"),
    "any": ("holds", "undecided", "no effect", "opposite"),
}
"""Which part decides a claim: the first of the verdicts that any part has."""
ELSEWHERE = "taken from a ledger file; its run is not here"
MEANING = (
    "Each claim is a sentence of a source study, tested by a study of ours. Ours is a mean over replicates with its "
    "95 % bootstrap interval; of a claim of several parts the row shows the part that decides it. A claim holds, or "
    "the opposite does, where an exact sign-flip test over replicates says so at 5 %; there is no effect where the "
    "interval lies within the smallest effect of interest. p is the claim's; q is the share of false ones to expect "
    "among all claims decided at that p, and a claim decided at q above 0.1 is marked. Chance is what a random "
    "dictionary scores, where that means anything."
)


def write_ledger(entries: Sequence[JsonDict], scale: str, path: Path) -> Path:
    write_bytes(path, ledger_page(entries, scale, path.parent).encode())
    return path


def ledger_page(entries: Sequence[JsonDict], scale: str, folder: Path) -> str:
    """One table of all claims; then a section a claim, with its parts, their rules and the figure that shows it."""
    sources = dict.fromkeys(entry["source"] for entry in entries)
    groups = [Group([_row(entry) for entry in entries if entry["source"] == source], source) for source in sources]
    shown: dict[Path, str] = {}
    sections = [_section(entry, folder, shown) for entry in entries if entry["parts"]]
    title = "The ledger of claims"
    body = [
        markup.heading(1, title),
        f'<div class="headline">{markup.paragraph(tally(entries))}</div>',
        markup.paragraph(f"Scale: {scale}. {MEANING}"),
        markup.table("Claims and verdicts", HEAD, groups, words=2, sentences=HEAD[1:2]),
        *sections,
    ]
    return markup.document(f"{title} · Unbraid", "\n".join(body))


def print_ledger(entries: Sequence[JsonDict]) -> None:
    """The same table on a terminal; only the first column may break its lines, so that it fits 80 columns."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(Text("claim\n(published)"), overflow="fold")
    for name in (*HEAD[2:4], "p"):
        table.add_column(Text(name), justify="right", no_wrap=True)
    table.add_column(Text("verdict"), no_wrap=True)
    for entry in entries:
        claim = Text.assemble(
            (entry["id"], "bold"), f"\n({entry['published']})", *(f"\n{mark}" for mark in marks(entry))
        )
        table.add_row(claim, *map(Text, [*numbers(entry)[:2], _p(entry), VERDICTS[entry["verdict"]]]))
    console = Console(highlight=False)
    console.print(table)
    console.print(Text(tally(entries)))


def print_claims(entries: Sequence[JsonDict]) -> None:
    """What could be run: each claim with its source's sentence, the study that tests it, and how it is decided."""
    console = Console(highlight=False)
    for entry in entries:
        console.print(Text(entry["id"], style="bold"), Text(f"({entry['study']})"))
        for line in (entry["statement"], f"source: “{entry['quote']}”", *_design(entry), *marks(entry)):
            console.print(Padding(Text(line), (0, 0, 0, 4 if line.startswith("- ") else 2)))


def _design(entry: JsonDict) -> list[str]:
    """Replicates, how the parts combine, and each part's rule with its smallest effect."""
    replicates = entry["replicates"]
    planned = "not known here" if replicates["planned"] is None else str(replicates["planned"])
    claimed = entry["controls"].count(False)
    together = f"needs {entry['combine']} of {claimed} parts" if claimed > 1 else "one part"
    controls = len(entry["controls"]) - claimed
    together += f"; undecided unless its controls hold ({controls})" if controls else ""
    rules = [
        f"{'control: ' if control else ''}{rule}; smallest effect {smallest:g}"
        for rule, smallest, control in zip(entry["rules"], entry["smallest"], entry["controls"], strict=True)
    ]
    return [f"replicates: {planned} (at least {replicates['needed']}); {together}", *(f"- {rule}" for rule in rules)]


def marks(entry: JsonDict) -> list[str]:
    """What a reader must know beside a verdict: decided at a large q, chosen after looking, or why it was not run."""
    doubtful = entry["verdict"] in DECIDED and (entry.get("q") or 0.0) > MOST_FALSE
    exploratory = entry.get("exploratory")
    return [
        *([f"Marked: q is {entry['q']:.2f}, above {MOST_FALSE:g}."] if doubtful else []),
        *([f"Exploratory: {exploratory}"] if exploratory else []),
        *([entry["why"]] if entry["why"] else []),
    ]


def tally(entries: Sequence[JsonDict]) -> str:
    """`12 claims: 7 hold, 2 opposite, 3 undecided.`"""
    found = Counter(entry["verdict"] for entry in entries)
    words = {name: name for name in VERDICTS} | {"holds": "hold", "fails": "fail"}
    described = [f"{found[verdict]} {word}" for verdict, word in words.items() if found[verdict]]
    return f"{count(len(entries), 'claim')}: {', '.join(described)}."


def deciding(entry: JsonDict) -> JsonDict | None:
    """The part that decides: a control that does not hold, else the first with the verdict by which parts combine."""
    order, parts = ORDER[entry.get("combine", "all")], entry["parts"]
    failed = [part for part in parts if part.get("control") and part["verdict"] != "holds"]
    claimed = [part for part in parts if not part.get("control")]
    return failed[0] if failed else min(claimed, key=lambda part: order.index(part["verdict"]), default=None)


def _row(entry: JsonDict) -> list[markup.Cell]:
    figure = Link(f"#{entry['id']}", "see it") if entry["parts"] else MISSING
    statement = " ".join((entry["statement"], *marks(entry)))
    values = [*numbers(entry), *probabilities(entry)]
    return [statement, entry["published"], *values, VERDICTS[entry["verdict"]], figure]


def numbers(entry: JsonDict) -> list[str]:
    """Ours, its interval and chance, of the part that decides."""
    part = deciding(entry)
    return _cells(part) if part else [MISSING] * 3


def probabilities(entry: JsonDict) -> list[str]:
    """p and q; nothing where there is no effect to be sure of, nothing was run, or the ledger is of format 1."""
    return [_p(entry), _p(entry, "q")]


def _p(entry: JsonDict, name: str = "p") -> str:
    value = entry.get(name)
    return MISSING if value is None or entry["verdict"] == "no effect" else f"{value:.3f}"


def _cells(part: JsonDict) -> list[str]:
    """A difference has a sign; a level has none."""
    metric, signed = part["metric"], part["statistic"] != "level"
    value, chance = (number(metric, part[name], signed) for name in ("value", "chance"))
    return [value, interval(metric, part["interval"], signed), chance]


def _section(entry: JsonDict, folder: Path, shown: dict[Path, str]) -> str:
    run = Path(entry["run"])
    rows = [
        [
            _described(part),
            *_cells(part),
            str(part["pairs"]),
            f"{part['p']:.3f}",
            VERDICTS[part["verdict"]],
            part["rule"],
        ]
        for part in entry["parts"]
    ]
    here = run.is_dir()
    report = Link(os.path.relpath(run / "report.html", folder), f"its report ({run.name})") if here else ELSEWHERE
    study = f"<p>Study: {markup.escape(entry['study'])}, {markup.escape(entry['title'])}; {markup.cell(report)}.</p>"
    parts = [
        markup.heading(2, f"{VERDICTS[entry['verdict']]}: {entry['statement']}"),
        markup.paragraph(f"Claim {entry['id']}. Source: “{entry['quote']}” Published: {entry['published']}"),
        markup.paragraph(" ".join([f"It needs {entry['combine']} of its parts.", *marks(entry)])),
        markup.table(f"Parts of {entry['id']}", PART_HEAD, [Group(rows)], words=2, sentences=PART_HEAD[-1:]),
        study,
        _figures(entry, run, shown) if here else "",
    ]
    return f'<section id="{markup.escape(entry["id"])}">{"".join(parts)}</section>'


def _described(part: JsonDict) -> str:
    what = f"control: {part['what']}" if part.get("control") else part["what"]
    return f"{what} ({part['note']})" if part["note"] else what


def _figures(entry: JsonDict, run: Path, shown: dict[Path, str]) -> str:
    """The figures themselves, so that the page needs no other file; a second time only where they are.

    One that the run's report has not drawn is said to be missing.
    """
    named = [run / "figures" / f"{name}.png" for name in entry["figures"]]
    paths = [path for path in named if path.is_file()]
    absent = "".join(markup.paragraph(f"Figure {path.stem} was not drawn.") for path in named if path not in paths)
    new = [path for path in paths if path not in shown]
    above = [markup.link(shown[path], f"{path.stem}, above") for path in paths if path in shown]
    shown.update({path: str(entry["id"]) for path in new})
    figures = [Figure(path.stem, read_bytes(path), f"Figure {path.stem} of {run.name}") for path in new]
    drawn = (
        markup.section(Section("", f"{', '.join(path.stem for path in new)} of {run.name}.", figures)) if new else ""
    )
    return drawn + (f"<p>Figure: {', '.join(above)}.</p>" if above else "") + absent
