"""The ledger: what the source studies claim, what we measured, which claims hold; as a page, and as Markdown."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import altair as alt
import pandas as pd

from unbraid.config import JsonDict
from unbraid.figures import Cell, Figure, Section, Table
from unbraid.figures.figure import quickly
from unbraid.figures.marks import faint_dots, line_at, rows, short
from unbraid.figures.words import MISSING, axis_title, count, interval, number
from unbraid.report.page import standalone

VERDICTS = {
    "holds": "✓ holds",
    "no effect": "≈ no effect",
    "opposite": "✗ opposite",
    "fails": "✗ fails",
    "undecided": "○ undecided",
    "not run": "– not run",
}
"""With `fails`, as ledgers of format 1 have it."""
HEAD = ("claim", "published", "ours", "95 % interval", "chance", "p", "q", "verdict", "detail")
STUDIES = ("study", "configuration", "began", "commit", "minutes")
PART_HEAD = ("measured", "ours", "95 % interval", "chance", "pairs", "p", "verdict", "rule")
DECIDED = ("holds", "opposite")
MOST_FALSE = 0.1
"""A claim decided at a larger q is marked: more than so many of its like would be false."""
ORDER = {
    "all": ("fails", "opposite", "no effect", "undecided", "holds"),
    "any": ("holds", "undecided", "no effect", "opposite"),
}
"""Which part decides a claim: the first of the verdicts that any part has."""
MEANING = (
    "Each claim is a sentence of a source study, tested by a study of ours. Ours is a mean over replicates with its "
    "95 % bootstrap interval; of a claim of several parts the row shows the part that decides it. A claim holds, or "
    "the opposite does, where an exact sign-flip test over replicates says so at 5 %; there is no effect where the "
    "interval lies within the smallest effect of interest. p is the claim's; q is the share of false ones to expect "
    "among all claims decided at that p, and a claim decided at q above 0.1 is marked. Chance is what a random "
    "dictionary scores, where that means anything."
)
FOREST = (
    "Faint dots: replicates; dot: their mean, of a level or of the difference between two settings; line: its 95 % "
    "bootstrap interval; light tick: chance; dashed line, of differences: 0, no effect."
)


def ledger_page(entries: Sequence[JsonDict], scale: str, folder: Path) -> str:
    """One table of all claims; then a section a claim, with its parts, their rules and a forest plot of them."""
    return standalone(
        "ledger.html.jinja",
        title="The ledger of claims",
        tally=tally(entries),
        meaning=f"Scale: {scale}. {MEANING}",
        overview=overview(entries),
        claims=[(claim_section(entry), _report(entry, folder)) for entry in entries if entry["parts"]],
    )


def claims_table(entries: Sequence[JsonDict]) -> pd.DataFrame:
    """A row a claim, by the part that decides it, as page, Markdown and terminal show it.

    No p and q where there is no effect to be sure of, nothing was run, or the ledger is of format 1.
    """
    rows = []
    for entry in entries:
        said, sure = " ".join((entry["statement"], *marks(entry))), entry["verdict"] != "no effect"
        known = [_p(entry.get(name) if sure else None) for name in ("p", "q")]
        figure = Cell("see it", f"#{entry['id']}") if entry["parts"] else MISSING
        cells = (said, entry["published"], *numbers(entry), *known, VERDICTS[entry["verdict"]], figure)
        rows.append((entry["id"], entry["source"], *cells))
    return pd.DataFrame(rows, columns=["id", "source", *HEAD])


def ledger_frame(entries: Sequence[JsonDict]) -> pd.DataFrame:
    """The same with numbers as numbers, for Python."""
    rows = []
    for entry in entries:
        part = deciding(entry) or {"value": None, "interval": None, "chance": None}
        low, high = part["interval"] or (None, None)
        said = {"id": entry["id"], "source": entry["source"], "claim": entry["statement"]}
        ours = {"published": entry["published"], "value": part["value"], "low": low, "high": high}
        numbers = {name: entry[name] for name in ("p", "q", "verdict", "why", "study", "run")}
        rows.append({**said, **ours, "chance": part["chance"], **numbers})
    frame = pd.DataFrame(rows)
    return frame.astype(dict.fromkeys(("value", "low", "high", "chance", "p", "q"), float)) if rows else frame


def overview(entries: Sequence[JsonDict]) -> list[Table]:
    """A table for each source study."""
    sources = claims_table(entries).groupby("source", sort=False)
    words = ("published", "verdict")
    return [Table(HEAD, own[list(HEAD)].to_numpy().tolist(), str(source), words=words) for source, own in sources]


def _report(entry: JsonDict, folder: Path) -> Cell | str:
    run = Path(entry["run"])
    if not (run / "report.html").is_file():
        return "Taken from a ledger file: its run is not here."
    return Cell(f"The report of {run.name}", os.path.relpath(run / "report.html", folder))


@quickly()
def claim_section(entry: JsonDict) -> Section:
    """A claim: the source's sentence, its parts with their intervals and rules, a forest plot, and how to repeat it."""
    quote = f"Source: “{entry['quote']}” " if entry.get("quote") else ""
    lines = [
        f"Claim {entry['id']}. {quote}Published: {entry['published']}",
        " ".join([f"It needs {entry.get('combine', 'all')} of its parts.", *marks(entry)]),
        f"Repeat it with: unbraid claims {entry['id']} (study {entry['study']}: {entry['title']})",
    ]
    rows = [
        [
            _described(part),
            *_cells(part),
            str(part["pairs"]),
            _p(part.get("p")),
            VERDICTS[part["verdict"]],
            part["rule"],
        ]
        for part in entry["parts"]
    ]
    table = Table(PART_HEAD, rows, words=("verdict", "rule"))
    heading = f"{VERDICTS[entry['verdict']]}: {entry['statement']}"
    return Section(entry["id"], heading, _forest(entry), [table], "\n".join(lines))


def _forest(entry: JsonDict) -> list[Figure]:
    """Each part with its replicates, interval and chance, a metric to a panel; none where no part has an interval."""
    shown = [part for part in entry["parts"] if part["value"] is not None and None not in (part["interval"] or [None])]
    panels = []
    for metric in dict.fromkeys(part["metric"] for part in shown):
        parts = {short(_described(part), 70): part for part in shown if part["metric"] == metric}
        dots = [(name, value) for name, part in parts.items() for value in part.get("replicates", [])]
        behind = faint_dots(pd.DataFrame(dots, columns=["part", "value"]).dropna(), "part", axis_title(metric))
        means = [
            (name, part["value"], *part["interval"], part["chance"], VERDICTS[part["verdict"]], part["rule"])
            for name, part in parts.items()
        ]
        frame = pd.DataFrame(means, columns=["part", "value", "low", "high", "chance", "result", "rule"])
        level = any(part["statistic"] == "level" for part in parts.values())
        panels.append(alt.layer(*([] if level else [line_at(0.0)]), behind, rows(frame, metric, "part")))
    sides = dict.fromkeys(part["rule"].partition(",")[0].partition(";")[0] for part in entry["parts"])
    caption = f"{FOREST} A part {', or '.join(sides)}."
    figure = Figure(
        f"forest-{entry['id']}", "Parts with their 95 % intervals", alt.vconcat(*panels), caption, wide=True
    )
    return [figure] if panels else []


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


def numbers(entry: JsonDict) -> list[str]:
    """Ours, its interval and chance, of the part that decides."""
    part = deciding(entry)
    return _cells(part) if part else [MISSING] * 3


def _p(value: float | None) -> str:
    return MISSING if value is None else f"{value:.3f}"


def _cells(part: JsonDict) -> list[str]:
    """A difference has a sign; a level has none."""
    metric, signed = part["metric"], part["statistic"] != "level"
    value, chance = (number(metric, part[name], signed) for name in ("value", "chance"))
    return [value, interval(metric, *(part["interval"] or (None, None)), signed=signed), chance]


def _described(part: JsonDict) -> str:
    what = f"control: {part['what']}" if part.get("control") else part["what"]
    return f"{what} ({part['note']})" if part["note"] else what


def ledger_table(entries: Sequence[JsonDict], scale: str, note: str = "") -> str:
    """A row a claim, by the part that decides it; then a row a study, with the hash of its configuration.

    `note` stands at the top: what a reader must know of a ledger that was not made by the code beside it.
    """
    written = f"Written by `unbraid claims --scale {scale}`; how to read it: [the ledger of claims](claims-ledger.md)."
    lines = ["# Claims and verdicts", "", *([note, ""] if note else []), f"{written} {tally(entries)}"]
    claims = claims_table(entries)
    claims["id"] = "`" + claims["id"] + "`"
    for source, own in claims.groupby("source", sort=False):
        rows = own[["id", "claim", *HEAD[2:8]]].to_numpy().tolist()
        lines += ["", f"## {source}", "", *_table(("claim", "", *HEAD[2:8]), rows)]
    runs = {Path(entry["run"]).name: entry for entry in entries}
    lines += ["", "## Studies", "", *_table(STUDIES, [_study(entry) for entry in runs.values()])]
    return "\n".join(lines) + "\n"


def _study(entry: JsonDict) -> list[str]:
    """When it was run, by which code, and how long it took; of one that was not run only its name."""
    study = entry["study"]
    named = f"`{Path(study).stem if study.endswith('.toml') else study}`"
    if not (made := entry["made"]):
        return [named, MISSING, MISSING, MISSING, MISSING]
    configuration, commit = Path(entry["run"]).name.rpartition("-")[2], str(made["commit"])[:9]
    return [named, f"`{configuration}`", made["began"], f"`{commit}`", f"{made['minutes']:.1f}"]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table in Markdown."""
    escaped = [[cell.replace("|", r"\|") for cell in row] for row in (head, ["---"] * len(head), *rows)]
    return [f"| {' | '.join(row)} |" for row in escaped]
