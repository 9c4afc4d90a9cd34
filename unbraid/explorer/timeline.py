"""When each planted concept was learned, moved to another feature, and unlearned."""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import altair as alt
import numpy as np
import pandas as pd
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from unbraid.explorer.members import Member, choose, names_in, of_member
from unbraid.explorer.parameters import integer
from unbraid.explorer.site import Site, Tab
from unbraid.figures.figure import Figure, quickly
from unbraid.figures.marks import COLOURS, HEIGHT, curves, mean_curves, png_uri
from unbraid.figures.words import axis_title
from unbraid.metrics.catalog import FOUND
from unbraid.results import RunResults
from unbraid.storage.files import read_arrays

ROWS, WIDTH = 200, 760
"""Concepts on one page, at most; pixels of a chart."""
QUANTITIES = {"learned": "learned", "moved": "moved", "unlearned": "unlearned", "still": "kept", "absent": "not found"}
CURVES = ("mmcs", "mcc", "recovered")


@dataclass(frozen=True)
class Lives:
    """Every concept at every check: its best cosine, and the feature that has it."""

    steps: np.ndarray
    best: np.ndarray
    """Steps × concepts."""
    entry: np.ndarray

    @cached_property
    def found(self) -> np.ndarray:
        return self.best >= FOUND

    @cached_property
    def learned(self) -> np.ndarray:
        return self.found & ~self._before

    @cached_property
    def unlearned(self) -> np.ndarray:
        return ~self.found & self._before

    @cached_property
    def moved(self) -> np.ndarray:
        return self.found & self._before & (self.entry != np.roll(self.entry, 1, axis=0))

    @cached_property
    def _before(self) -> np.ndarray:
        return np.vstack([np.zeros_like(self.found[:1]), self.found[:-1]])

    @cached_property
    def first(self) -> np.ndarray:
        """The check at which each concept was first found; the number of checks where it never was."""
        return np.where(self.found.any(0), self.found.argmax(0), len(self.steps))

    @cached_property
    def order(self) -> np.ndarray:
        """Concepts by when they were first found; among equals those with the largest cosine at the end first."""
        return np.lexsort((-self.best[-1], self.first))

    def events(self, concept: int) -> list[tuple[int, str]]:
        """Check and kind of each event of a concept."""
        kinds = (("learned", self.learned), ("moved", self.moved), ("unlearned", self.unlearned))
        return sorted((int(check), kind) for kind, table in kinds for check in np.flatnonzero(table[:, concept]))


def lives(results: RunResults, member: Member) -> Lives:
    path = results.run.stack(member.stack) / "tracking.safetensors"
    return _lives(path, member, path.stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _lives(path: Path, member: Member, _stamp: int) -> Lives:
    tables = read_arrays(path)
    return Lives(tables["steps"], tables["best"][member.member], tables["entry"][member.member])


def timeline_page(request: Request) -> Response:
    site: Site = request.app.state.site
    results = site.results(request.path_params["name"])
    chosen = choose(request, results, lambda s, _: "best" in names_in(results.run.stack(s) / "tracking.safetensors"))
    if chosen is None:
        return site.render(request, "timeline.html.jinja", results=results, choice=None, figures=_mean_figures(results))
    known = lives(results, chosen.chosen)
    pages = max(1, -(-len(known.order) // ROWS))
    page = integer(request, "page", 1, 1, pages)
    shown = known.order[(page - 1) * ROWS : page * ROWS]
    return site.render(
        request,
        "timeline.html.jinja",
        results=results,
        choice=chosen,
        lives=known,
        shown=shown.tolist(),
        image=png_uri(known.best[:, shown].T, (0.0, 1.0)),
        counts={kind: int(getattr(known, kind).sum()) for kind in ("learned", "moved", "unlearned")},
        ever=int((known.first < len(known.steps)).sum()),
        at_end=int(known.found[-1].sum()),
        frequencies=results.arrays(chosen.chosen.stack).get("probabilities"),
        figures=_count_figures(results, chosen.chosen),
        page=page,
        pages=pages,
        threshold=FOUND,
    )


@quickly()
def _count_figures(results: RunResults, member: Member) -> list[Figure]:
    """How many concepts were learned, moved, kept and unlearned at each check."""
    frame = of_member(results, member.stack, member.member).tracking
    frame = frame[np.isclose(frame["threshold"], FOUND) & frame["quantity"].isin(QUANTITIES)]
    if not len(frame):
        return []
    frame = frame[["step", "quantity", "value"]].assign(quantity=frame["quantity"].map(QUANTITIES))
    colour = alt.Color(
        "quantity:N", title=None, scale=alt.Scale(domain=list(QUANTITIES.values()), range=list(COLOURS[:5]))
    )
    chart = (
        alt.Chart(frame, width=WIDTH, height=HEIGHT)
        .mark_line(point=True)
        .encode(
            x=alt.X("step:Q", title="training step"),
            y=alt.Y("value:Q", title="concepts"),
            color=colour,
            strokeDash=alt.StrokeDash("quantity:N", legend=None),
            tooltip=["quantity", "step", "value"],
        )
    )
    caption = "Of the concepts at each check, compared with the check before."
    return [Figure("timeline-counts", "Concepts at each check", chart, caption, wide=True)]


@quickly()
def _mean_figures(results: RunResults) -> list[Figure]:
    """Curves of recovery over training, of all settings that are drawn."""
    figures = []
    for quantity in CURVES:
        frame: pd.DataFrame = results.curves[results.curves["quantity"] == quantity]
        if len(frame):
            chart = curves(results, mean_curves(frame), axis_title(quantity))
            figures.append(Figure(f"timeline-{quantity}", f"{quantity.upper()} over training", chart))
    return figures


def has_timeline(results: RunResults) -> bool:
    return any("best_cosine" in names_in(folder / "tables.safetensors") for folder in results.run.stacks()[:1])


ROUTES = [Route("/runs/{name}/timeline", timeline_page)]
TABS = [Tab("Timeline", "timeline", has_timeline)]
