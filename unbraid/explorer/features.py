"""Browse the learned features of a dictionary, and one feature's page, which can be saved as a file of its own."""

from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pandas as pd
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from unbraid.explorer.members import Choice, Member, choose, has_features, names_in, of_member
from unbraid.explorer.parameters import choice, given, integer, number, text
from unbraid.explorer.site import NothingHere, Site, Tab, run_href
from unbraid.metrics.catalog import FOUND
from unbraid.results import FEATURE_TABLES, RunResults
from unbraid.storage.feature_index import INDEX, FeatureIndex

PAGE = 50
COLUMNS = {
    "feature": "feature",
    "density": "fires on",
    "largest": "largest value",
    "mean": "mean value",
    "concept": "concept",
    "phi": "φ",
    "precision": "precision",
    "recall": "recall",
    "verdict": "verdict",
    "truth_cosine": "cosine with truth",
    "stability": "stability",
}
MEANINGS = {
    "largest": "its largest value",
    "mean": "the mean of its values where it fires",
    "density": "share of the examples on which it fires",
    "phi": "Matthews' correlation of its firing, at any value, with the concept, over all indexed examples",
    "precision": "of the examples on which it fires, the share with the concept",
    "recall": "of the examples with the concept, the share on which it fires",
    "truth_cosine": "largest cosine with any planted direction",
    "stability": "largest cosine with a feature of another replicate",
    "verdict": "what became of the concept that it stands for",
}
VERDICTS = ("recovered", "split", "merged", "absorbed", "none", "dead")
SHARES = ("density",)
LISTS = {
    "agree": "Fires, and the concept is on",
    "without_concept": "Fires without the concept",
    "without_feature": "The concept is on, and it is silent",
    "strongest": "Where it fires most strongly",
    "even": "Spread evenly from its smallest value to its largest",
}


def index_of(results: RunResults, member: Member) -> FeatureIndex | None:
    """The feature index that has this member, kept open while its file does not change; None where there is none."""
    folder = results.run.stack(member.stack)
    path = folder / INDEX
    index = _open(folder, path.stat().st_mtime_ns) if path.is_file() else None
    return index if index is not None and member.member in index.members else None


@lru_cache(maxsize=8)
def _open(folder: Path, _stamp: int) -> FeatureIndex | None:
    return FeatureIndex.open(folder)


@dataclass(frozen=True)
class FeatureTable:
    """The columns of all features of one member, and the names of concepts."""

    columns: dict[str, np.ndarray]
    concepts: list[str]
    features: int


def feature_table(results: RunResults, member: Member) -> FeatureTable:
    stamp = (results.run.stack(member.stack) / "tables.safetensors").stat().st_mtime_ns
    return _table(results, member, stamp)


@lru_cache(maxsize=8)
def _table(results: RunResults, member: Member, _stamp: int) -> FeatureTable:
    tables, index = results.arrays(member.stack), index_of(results, member)
    columns = {name: tables[name][member.member] for name in FEATURE_TABLES if name in tables}
    concepts: list[str] = []
    if index is not None:
        own = index.table(member.member)
        columns = {name: values[: index.features(member.member)] for name, values in columns.items()}
        columns = {**columns, "density": own.pop("rate"), **own}
        concepts = index.concepts
    features = len(columns["density"])
    columns = {"feature": np.arange(features), **columns}
    columns["verdict"] = _verdicts(results, member, columns)
    return FeatureTable({name: columns[name] for name in COLUMNS if name in columns}, concepts, features)


def _verdicts(results: RunResults, member: Member, columns: dict[str, np.ndarray]) -> np.ndarray:
    """The fate of the concept each feature stands for; none, or dead where it never fires.

    Of planted directions a feature stands for the concept it is nearest to, if that is near; a match one to one that is
    far off says nothing.
    """
    verdicts = np.full(len(columns["density"]), "none", dtype="U9")
    frame = of_member(results, member.stack, member.member).concepts
    if "fate" in frame:
        known = frame[frame["fate"].isin(VERDICTS[:4])]
        for name in ("features", "best_feature"):
            if name in known:
                rows = known[[name, "fate"]].explode(name)
                rows = rows[rows[name].notna() & (rows[name] >= 0)]
                verdicts[rows[name].astype(int)] = rows["fate"]
        if "truth_cosine" in columns and "concept" in columns:
            fates = np.where(frame["fate"].isin(VERDICTS[:4]), frame["fate"], "none")
            concept = _nearest(frame, columns)
            near = (columns["truth_cosine"] >= FOUND) & (concept >= 0)
            verdicts[near] = fates[concept[near]]
    return np.where(columns["density"] > 0, verdicts, "dead")


def _nearest(frame: pd.DataFrame, columns: dict[str, np.ndarray]) -> np.ndarray:
    """The concept each feature is nearest to; of one that is not a concept's best, that with which it fires."""
    concept = columns["concept"].astype(int)
    if "best_feature" in frame:
        best = frame["best_feature"].to_numpy()
        own = np.flatnonzero(frame["best_cosine"].to_numpy() >= columns["truth_cosine"][best] - 1e-3)
        concept[best[own]] = own
    return concept


def features_page(request: Request) -> Response:
    site: Site = request.app.state.site
    results = site.results(request.path_params["name"])
    chosen = choose(request, results, lambda s, _: "density" in names_in(results.run.stack(s) / "tables.safetensors"))
    if chosen is None:
        raise NothingHere(f"the run {results.run.name} has no dictionaries; accepted: a run that trains some")
    table = feature_table(results, chosen.chosen)
    sort = choice(request, "sort", table.columns, "density")
    falling = choice(request, "order", ("rising", "falling"), "falling") == "falling"
    found = select(request, results, chosen, table)
    order = found[np.argsort(sort_key(table, sort)[found], kind="stable")]
    order = order[::-1] if falling else order
    pages = max(1, -(-len(order) // PAGE))
    page = integer(request, "page", 1, 1, pages)
    shown = order[(page - 1) * PAGE : page * PAGE]
    index = index_of(results, chosen.chosen)
    return site.render(
        request,
        "features.html.jinja",
        results=results,
        choice=chosen,
        table=table,
        columns=COLUMNS,
        meanings=MEANINGS,
        rows=rows(table, shown),
        tokens=index.top_tokens(chosen.chosen.member, shown) if index is not None and index.has_tokens else None,
        base=run_href(results.run.name, "features", chosen.chosen.stack, chosen.chosen.member),
        sort=sort,
        falling=falling,
        found=len(order),
        page=page,
        pages=pages,
        verdicts=VERDICTS,
        asked={name: given(request, name) or "" for name in ("search", "verdict", "low", "high")},
        has_index=index is not None,
        query=_query(request),
    )


def _query(request: Request):
    """The address of this page with some parameters changed."""

    def changed(**changes: str | int) -> str:
        return "?" + str(request.url.include_query_params(**changes).query)

    return changed


def sort_key(table: FeatureTable, name: str) -> np.ndarray:
    """What a column is sorted by: numbers, with what is missing last; concepts and verdicts by their names."""
    values = table.columns[name]
    if name == "concept":
        names = np.array([*table.concepts, ""])
        return np.argsort(np.argsort(names))[values]
    return values if values.dtype.kind in "US" else np.nan_to_num(values.astype(float), nan=-np.inf)


def select(request: Request, results: RunResults, chosen: Choice, table: FeatureTable) -> np.ndarray:
    """The features that an address asks for: by words, verdict and how often they fire (percent)."""
    kept = np.ones(table.features, dtype=bool)
    words = text(request, "search")
    if words:
        kept &= _matching(results, chosen.chosen, table, words)
    verdict = choice(request, "verdict", VERDICTS, "")
    if verdict:
        kept &= table.columns["verdict"] == verdict
    low, high = number(request, "low", 0.0, 0.0, 100.0), number(request, "high", 100.0, 0.0, 100.0)
    density = 100 * table.columns["density"]
    return np.flatnonzero(kept & (density >= low) & (density <= high))


def _matching(results: RunResults, member: Member, table: FeatureTable, words: str) -> np.ndarray:
    kept = np.zeros(table.features, dtype=bool)
    if words.isascii() and words.isdecimal() and int(words) < table.features:
        kept[int(words)] = True
    index = index_of(results, member)
    if index is not None:
        kept[index.search(member.member, words)] = True
    return kept


def rows(table: FeatureTable, shown: np.ndarray) -> list[dict[str, str]]:
    """The shown features, as cells are written."""
    return [{name: cell(table, name, feature) for name in table.columns} for feature in shown.tolist()]


def cell(table: FeatureTable, name: str, feature: int) -> str:
    value = table.columns[name][feature]
    if name == "concept":
        return table.concepts[value] if value >= 0 else "–"
    if name in ("verdict", "feature"):
        return str(value)
    return written(name, float(value))


def written(name: str, value: float) -> str:
    """A share as percent, anything else with three digits; a dash where there is none."""
    if np.isnan(value):
        return "–"
    return f"{100 * value:.3g} %" if name in SHARES else f"{value:.3f}".replace("-", "−")


def feature_page(request: Request) -> Response:
    site: Site = request.app.state.site
    results = site.results(request.path_params["name"])
    chosen = choose(request, results, lambda s, _: "density" in names_in(results.run.stack(s) / "tables.safetensors"))
    if chosen is None:
        raise NothingHere(f"the run {results.run.name} has no dictionaries; accepted: a run that trains some")
    table = feature_table(results, chosen.chosen)
    feature = integer(request, "feature", 0, 0, table.features - 1)
    index = index_of(results, chosen.chosen)
    card = choice(request, "card", ("0", "1"), "0") == "1"
    response = site.render(
        request,
        "feature.html.jinja",
        results=results,
        choice=chosen,
        feature=feature,
        last=table.features - 1,
        facts=[(COLUMNS[name], cell(table, name, feature), MEANINGS.get(name, "")) for name in table.columns][1:],
        record=index.feature(chosen.chosen.member, feature) if index is not None else None,
        lists=LISTS,
        base=run_href(results.run.name, "features", chosen.chosen.stack, chosen.chosen.member),
        concepts_base=f"{run_href(results.run.name)}/concepts",
        bars=bars,
        lens_rows=lens_rows,
        lens_is_exact=index is not None and index.lens_is_exact,
        level=level,
        card=card,
        style=_style() if card else "",
    )
    if card:
        name = f"{results.run.name}-{chosen.chosen.stack}-{chosen.chosen.member}-feature-{feature}.html"
        safe = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "-_.") else "_" for letter in name)
        response.headers["Content-Disposition"] = f'attachment; filename="{safe}"'
    return response


def bars(histogram: list[tuple[float, float, int]]) -> list[tuple[float, float, str]]:
    """The bins of a histogram as (place, height, words), places and heights from 0 to 100."""
    most = max((count for *_, count in histogram), default=0) or 1
    return [
        (100 * place / len(histogram), 100 * count / most, f"{low:.3g} to {high:.3g}: {count:,}")
        for place, (low, high, count) in enumerate(histogram)
    ]


def lens_rows(answers: list[tuple[str, float]]) -> list[tuple[tuple[str, float] | None, tuple[str, float] | None]]:
    """What a feature raises beside what it lowers, the strongest first; the first half of the list is raised."""
    raised = -(-len(answers) // 2)
    return list(zip_longest(answers[:raised], answers[raised:]))


def level(value: float, largest: float) -> int:
    """How brightly a token is lit, from 0 (silent) to 8 (the feature's largest value)."""
    if not value > 0 or not largest > 0:
        return 0
    return int(np.clip(np.ceil(8 * value / largest), 1, 8))


def _style() -> str:
    here = Path(__file__).parent
    return "\n".join(path.read_text() for path in (here.parent / "report" / "style.css", here / "static" / "pages.css"))


ROUTES = [
    Route("/runs/{name}/features", features_page),
    Route("/runs/{name}/features/{stack}/{member}/{feature}", feature_page),
]
TABS = [Tab("Features", "features", has_features)]
