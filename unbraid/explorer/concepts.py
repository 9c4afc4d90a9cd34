"""The fate map: what became of every planted concept in a dictionary, and one concept's page."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from textwrap import wrap

import numpy as np
import pandas as pd
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from unbraid.explorer.features import index_of, level
from unbraid.explorer.members import Member, choose, has_truth, names_in, of_member
from unbraid.explorer.parameters import choice, integer
from unbraid.explorer.site import NothingHere, Site, Tab, run_href
from unbraid.metrics.catalog import CONCEPT_FATES, FOUND
from unbraid.results import RunResults

FATES = (*CONCEPT_FATES, "unjudged")
LETTERS = {"recovered": "R", "split": "S", "merged": "M", "absorbed": "A", "missed": "×", "unjudged": "?"}
MEANINGS = {
    "recovered": "one feature of its own stands for it",
    "split": "several features share it",
    "merged": "one feature stands for it and for others",
    "absorbed": "narrower concepts' features took it over",
    "missed": "no feature stands for it",
    "unjudged": "too rare, or too common, in the held-out examples to say",
}
TILES = 1024
"""Tiles on one page, at most."""
SMALLEST = 0.2
"""The area of a tile, at least, as a share of the mean."""
ASPECT = 0.5
"""Height of the map for its width."""
SCREENS = {"tight": (11.8, 5.9), "tight-phone": (3.6, 5.1)}
"""Pixels of a percent of the map's width and height, on a desk and on a phone."""
PART = 0.5
"""The cosine from which a feature counts as partly a concept."""
NUMBERS = {
    "frequency": "how often it is on",
    "best_cosine": "largest cosine with any feature",
    "matched_cosine": "cosine with its own match",
    "phi": "φ with its best feature (cut where it tells best, on held-out examples)",
    "probe": "φ of a linear probe (the ceiling)",
    "precision": "precision of its match",
    "recall": "recall of its match",
    "f1": "F1 of its match",
    "absorption": "absorption",
    "seen": "times seen in training",
}


@dataclass(frozen=True)
class Tile:
    """A concept on the map; places and sizes are percent."""

    concept: int
    name: str
    fate: str
    frequency: float
    left: float
    top: float
    width: float
    height: float

    @property
    def short(self) -> str:
        """Its name as a tile says it: of a concept that has only a number, the number."""
        return self.name.removeprefix("concept ")


def fit(tile: Tile) -> str:
    """The classes that hide a tile's name where it would be cut: on a phone, or on any screen."""
    hidden = []
    for name, (width, height) in SCREENS.items():
        letters = int((tile.width * width - 10) / 7)
        lines = wrap(f"R {tile.short}", letters, break_long_words=False) if letters > 0 else []
        is_whole = bool(lines) and max(map(len, lines)) <= letters and 16 * len(lines) + 4 <= tile.height * height
        hidden += [] if is_whole else [name]
    return " ".join(hidden)


def squarify(sizes: Sequence[float], width: float, height: float) -> list[tuple[float, float, float, float]]:
    """Rectangles (x, y, width, height) whose areas are as the sizes, largest first, and nearly square.

    Bruls, Huizing and van Wijk (2000): a row takes rectangles as long as that makes its worst one squarer.
    """
    total = float(sum(sizes))
    areas = [size * width * height / total for size in sizes]
    placed: list[tuple[float, float, float, float]] = []
    x, y, start = 0.0, 0.0, 0
    while start < len(areas):
        side, end, row = min(width, height), start + 1, areas[start]
        while end < len(areas) and _worst(areas[start : end + 1], row + areas[end], side) <= _worst(
            areas[start:end], row, side
        ):
            row += areas[end]
            end += 1
        depth, along = row / side, 0.0
        for area in areas[start:end]:
            length = area / depth
            placed.append((x, y + along, depth, length) if height <= width else (x + along, y, length, depth))
            along += length
        x, width, y, height = (
            (x + depth, width - depth, y, height) if height <= width else (x, width, y + depth, height - depth)
        )
        start = end
    return placed


def _worst(areas: Sequence[float], row: float, side: float) -> float:
    """The largest ratio of sides in a row; areas fall, so it is that of the first or the last."""
    return max(side**2 * areas[0] / row**2, row**2 / (side**2 * areas[-1]))


def concept_table(results: RunResults, member: Member) -> pd.DataFrame:
    """The concepts of one member; where no fates were kept, found and missed by their best cosine."""
    stamp = (results.run.stack(member.stack) / "tables.safetensors").stat().st_mtime_ns
    return _table(results, member, stamp)


@lru_cache(maxsize=8)
def _table(results: RunResults, member: Member, _stamp: int) -> pd.DataFrame:
    frame = of_member(results, member.stack, member.member).concepts
    if "fate" not in frame and len(frame):
        frame = frame.assign(fate=np.where(frame["best_cosine"] >= FOUND, "recovered", "missed"))
        frame.attrs["guessed"] = True
    return frame.reset_index(drop=True)


def _kept(results: RunResults, stack: int, member: int) -> bool:
    folder = results.run.stack(stack)
    if "best_cosine" in names_in(folder / "tables.safetensors"):
        return True
    return str(member) in results.notes(stack, "features").get("members", {})


def tiles(frame: pd.DataFrame) -> list[Tile]:
    """The map of these concepts, the most frequent first."""
    frame = frame.sort_values("frequency", ascending=False, kind="stable")
    sizes = frame["frequency"].clip(lower=max(SMALLEST * frame["frequency"].mean(), 1e-9))
    places = squarify(sizes.tolist(), 100.0, 100.0 * ASPECT)
    rows = zip(frame["concept"], frame["name"], frame["fate"], frame["frequency"], places, strict=True)
    return [Tile(c, n, fate, f, x, y / ASPECT, w, h / ASPECT) for c, n, fate, f, (x, y, w, h) in rows]


def concepts_page(request: Request) -> Response:
    site: Site = request.app.state.site
    results = site.results(request.path_params["name"])
    chosen = choose(request, results, lambda stack, member: _kept(results, stack, member))
    if chosen is None:
        return site.render(request, "concepts.html.jinja", results=results, choice=None)
    frame = concept_table(results, chosen.chosen)
    counts = {fate: int((frame["fate"] == fate).sum()) for fate in FATES}
    fate = choice(request, "fate", FATES, "")
    shown = frame[frame["fate"] == fate] if fate else frame
    pages = max(1, -(-len(shown) // TILES))
    page = integer(request, "page", 1, 1, pages)
    cut = shown.sort_values("frequency", ascending=False, kind="stable").iloc[(page - 1) * TILES : page * TILES]
    return site.render(
        request,
        "concepts.html.jinja",
        results=results,
        choice=chosen,
        tiles=tiles(cut) if len(cut) else [],
        counts={name: count for name, count in counts.items() if count},
        total=len(frame),
        fate=fate,
        letters=LETTERS,
        meanings=MEANINGS,
        fit=fit,
        page=page,
        pages=pages,
        found=FOUND,
        guessed=bool(frame.attrs.get("guessed")),
    )


def concept_page(request: Request) -> Response:
    site: Site = request.app.state.site
    results = site.results(request.path_params["name"])
    chosen = choose(request, results, lambda stack, member: _kept(results, stack, member))
    if chosen is None:
        raise NothingHere(
            f"the run {results.run.name} has no planted concepts; accepted: a run on a world with known features"
        )
    frame = concept_table(results, chosen.chosen)
    concept = integer(request, "concept", 0, 0, len(frame) - 1)
    row = frame.iloc[concept]
    features = responsible(results, chosen.chosen, row)
    index = index_of(results, chosen.chosen)
    records = []
    if index is not None:
        records = [index.feature(chosen.chosen.member, feature) for feature, _ in features[:4]]
    return site.render(
        request,
        "concept.html.jinja",
        results=results,
        choice=chosen,
        row=row,
        concept=concept,
        last=len(frame) - 1,
        numbers=[(text, float(row[name])) for name, text in NUMBERS.items() if name in row and pd.notna(row[name])],
        features=features,
        records=records,
        meanings=MEANINGS,
        letters=LETTERS,
        level=level,
        feature_base=run_href(results.run.name, "features", chosen.chosen.stack, chosen.chosen.member),
    )


def responsible(results: RunResults, member: Member, row: pd.Series) -> list[tuple[int, str]]:
    """The features that stand for a concept, each with why it is listed; the first is the nearest."""
    found: dict[int, str] = {}
    if isinstance(row.get("features"), list):
        why = "the nearest there is" if row["fate"] in ("missed", "unjudged") else "stands for it"
        return [(int(feature), why) for feature in row["features"]]
    if "best_feature" in row:
        found[int(row["best_feature"])] = f"nearest direction, cosine {row['best_cosine']:.3f}"
    if int(row.get("match", -1)) >= 0:
        note = f"its match one to one, cosine {row['matched_cosine']:.3f}"
        found[int(row["match"])] = "; ".join(filter(None, (found.get(int(row["match"])), note)))
    from unbraid.explorer.directions import cosines_of_concept

    cosines = cosines_of_concept(results, member, int(row["concept"]))
    if cosines is not None:
        for feature in np.argsort(-cosines)[:8]:
            if cosines[feature] >= PART:
                found.setdefault(int(feature), f"cosine {cosines[feature]:.3f}")
    return list(found.items())


ROUTES = [
    Route("/runs/{name}/concepts", concepts_page),
    Route("/runs/{name}/concepts/{concept}", concept_page),
]
TABS = [Tab("Concepts", "concepts", has_truth)]
