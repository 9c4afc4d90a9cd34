"""The page that compares: settings of runs side by side, one concept under all of them, two dictionaries matched."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from unbraid.errors import UserError
from unbraid.explorer.parameters import choice, integer, texts
from unbraid.explorer.site import Site, run_href

if TYPE_CHECKING:
    import pandas as pd

    from unbraid.figures import Table
    from unbraid.results import RunResults

MOST_RUNS, MOST_SETTINGS, MOST_PAIRS = 8, 60, 50
MEASURES = {"best_cosine": "best cosine", "phi": "φ"}
"""What a concept is compared by: its column, and its name."""
METRICS = ("phi", "mmcs", "mcc", "recovered", "f1", "explained_variance", "l0", "dead", "accuracy", "perplexity")


def page(request: Request) -> Response:
    site: Site = request.app.state.site
    names = texts(request, "run")
    if len(names) > MOST_RUNS:
        raise UserError(f"{len(names)} runs were asked for; accepted: up to {MOST_RUNS}")
    runs = [site.results(name) for name in names]
    concept = integer(request, "concept", 0, 0, 10**6)
    sides = _sides(request, runs)
    at_once = choice(request, "wait", ("0", "1"), "0") == "1" or is_matched_quickly(site, sides)
    cards = [card.name for card in site.all_runs() if card.state == "finished"]
    return site.render(
        request,
        "compare.html.jinja",
        runs=runs,
        names=names,
        others=[name for name in cards if name not in names],
        scores=scores(runs) if runs else None,
        differences=[table for run in runs for table in difference_tables(run)],
        concept=concept,
        concepts=concept_table(runs, concept) if runs else None,
        concept_names=concept_names(runs),
        members=members(runs),
        sides=sides,
        matching=matching(site, sides) if at_once else None,
        later="" if at_once else urlencode({"run": names, "first": sides[0], "second": sides[1]}, doseq=True),
    )


def matched_part(request: Request) -> Response:
    """The table of two dictionaries, which a page puts in its place: of large ones it takes a second or more."""
    site: Site = request.app.state.site
    sides = _sides(request, [site.results(name) for name in texts(request, "run")[:MOST_RUNS]])
    return site.render(request, "matched.html.jinja", matching=matching(site, sides))


def scores(runs: "list[RunResults]") -> "Table":
    """The main scores of every setting of every run."""
    from unbraid.figures import Cell, Table
    from unbraid.figures.words import MISSING, describe, estimate

    metrics = [name for name in METRICS if any(run.has_score(name) for run in runs)]
    rows = []
    for run in runs:
        known = run.summary.set_index(["setting", "metric"])
        for setting in run.ranked[:MOST_SETTINGS]:
            found = [known.loc[(setting, name)] if (setting, name) in known.index else None for name in metrics]
            cells = [
                MISSING if row is None else estimate(name, row["value"], row["low"], row["high"])
                for name, row in zip(metrics, found, strict=True)
            ]
            rows.append([Cell(run.run.name, run_href(run.run.name)), run.labels[setting], *cells])
    columns = ("run", "setting", *(describe(name).label for name in metrics))
    return Table(columns, rows, "Scores, best setting first", words=("setting",))


def difference_tables(run: "RunResults") -> "list[Table]":
    """The paired differences of a run's leading metric."""
    from unbraid.figures import Table
    from unbraid.figures.words import describe, interval, number

    metric = run.leading
    frame = run.differences[run.differences["metric"] == metric]
    rows = [
        [
            f"{row.label} − {row.reference_label}",
            number(metric, row.value, True),
            interval(metric, row.low, row.high, True),
            str(row.pairs),
            row.verdict,
        ]
        for row in frame.itertuples()
    ][:MOST_SETTINGS]
    columns = ("settings", "difference", "95 % interval", "pairs", "verdict")
    title = f"{run.run.name}: paired differences of {describe(metric).label}"
    return [Table(columns, rows, title, words=("verdict",))] if rows else []


@dataclass(frozen=True)
class Found:
    """One concept in one dictionary."""

    value: float
    fate: str
    href: str


@dataclass(frozen=True)
class ConceptRow:
    """One concept under one setting, by replicate."""

    run: str
    setting: str
    found: dict[str, Found]
    mean: float


@dataclass(frozen=True)
class ConceptTable:
    """One concept under every setting, replicates as columns."""

    name: str
    measure: str
    rows: list[ConceptRow]
    replicates: list[str]


def concept_names(runs: "list[RunResults]") -> list[str]:
    """The concepts of the first run that has any, by number."""
    for run in runs:
        if len(run.concepts) and "name" in run.concepts:
            return run.concepts.drop_duplicates("concept").sort_values("concept")["name"].tolist()
    return []


def concept_table(runs: "list[RunResults]", concept: int) -> ConceptTable | None:
    """How well one concept was found under every setting, replicates as columns; None where no run has concepts."""
    rows, name, measures = [], f"concept {concept}", []
    for run in runs:
        column = next((name for name in MEASURES if name in run.concepts), None)
        if column is None:
            continue
        own = run.concepts[run.concepts["concept"] == concept]
        name = own["name"].iloc[0] if len(own) else name
        measures.append(MEASURES[column])
        rows += [_concept_row(run, str(label), frame, column) for label, frame in own.groupby("label", sort=False)]
    rows = rows[:MOST_SETTINGS]
    replicates = list(dict.fromkeys(replicate for row in rows for replicate in row.found))
    return ConceptTable(name, " or ".join(dict.fromkeys(measures)), rows, replicates) if rows else None


def _concept_row(run: "RunResults", label: str, frame: "pd.DataFrame", column: str) -> ConceptRow:
    where = {(m.setting, m.replicate): m for m in run.members.itertuples()}
    found = {}
    for row in frame.to_dict("records"):
        member = where[row["setting"], row["replicate"]]
        href = f"{run_href(run.run.name, 'concepts', row['concept'])}?stack={member.stack}&member={member.member}"
        found[row["replicate"]] = Found(float(row[column]), str(row.get("fate", "")), href)
    return ConceptRow(run.run.name, label, found, float(frame[column].mean()))


def members(runs: "list[RunResults]") -> list[tuple[str, str]]:
    """Every dictionary that can be matched: what an address calls it, and a person."""
    from unbraid.figures.marks import short

    return [
        (
            f"{run.run.name}/{row.stack}/{row.member}",
            short(f"{run.run.name}: {row.label} · replicate {row.replicate}", 90),
        )
        for run in runs
        if any((folder / "weights.safetensors").is_file() for folder in run.run.stacks())
        for row in run.members.itertuples()
    ]


def _sides(request: Request, runs: "list[RunResults]") -> tuple[str, str]:
    known = [name for name, _ in members(runs)]
    if not known:
        return "", ""
    return choice(request, "first", known, known[0]), choice(request, "second", known, known[min(1, len(known) - 1)])


def matching(site: Site, sides: tuple[str, str]) -> "Table | None":
    """Two dictionaries matched feature by feature; None where they do not read the same dimensions."""
    from unbraid.explorer.matching import matched
    from unbraid.figures import Cell, Table

    if not all(sides):
        return None
    parts = [side.rsplit("/", 2) for side in sides]
    found = matched(_places(site, sides))
    if found is None:
        return None
    rows = [
        [
            Cell(f"feature {first}", run_href(parts[0][0], "features", parts[0][1], parts[0][2], first)),
            Cell(f"feature {second}", run_href(parts[1][0], "features", parts[1][1], parts[1][2], second)),
            f"{cosine:.3f}",
        ]
        for first, second, cosine in found.pairs[:MOST_PAIRS]
    ]
    title = f"{len(found.pairs)} pairs, mean cosine {found.mean:.3f} (random directions: {found.chance:.3f})"
    return Table(("first", "second", "cosine"), rows, title, words=("second",))


def is_matched_quickly(site: Site, sides: tuple[str, str]) -> bool:
    from unbraid.explorer.matching import is_quick

    return not all(sides) or is_quick(_places(site, sides))


def _places(site: Site, sides: tuple[str, str]) -> tuple[tuple[Path, int], tuple[Path, int]]:
    """Where each side is: the folder of its stack, and its place there."""
    (one, first, place), (other, second, end) = (side.rsplit("/", 2) for side in sides)
    return (site.run(one).stack(int(first)), int(place)), (site.run(other).stack(int(second)), int(end))


ROUTES = [Route("/compare", page), Route("/compare/matched", matched_part)]
