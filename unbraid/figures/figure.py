"""What a figure, a table and a section are, and the registry of sections: from the results of a run to charts."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import RLock
from typing import Any

import altair as alt
import pandas as pd
from altair.utils.schemapi import SchemaBase, debug_mode

from unbraid.config import JsonDict, suggest
from unbraid.errors import UserError
from unbraid.results import RunResults
from unbraid.storage.files import write_bytes

STYLE: JsonDict = {
    "font": "system-ui, sans-serif",
    "background": "white",
    "axis": {"gridColor": "#e6e6e6", "domainColor": "#767676", "titleFontWeight": "normal", "labelColor": "#1a1a1a"}
    | {"labelFontSize": 12, "titleFontSize": 12},
    "view": {"stroke": None},
    "legend": {"labelLimit": 320, "symbolStrokeWidth": 2.5, "symbolOpacity": 1, "labelFontSize": 12},
    "header": {"labelFontWeight": "bold", "labelLimit": 360},
}
"""One style for all charts."""
PUBLISHED = Path(__file__).parents[1] / "studies" / "published"
"""What the studies published, as we read it off."""
SCALE = 2.0
"""Pixels of a PNG for each pixel of a page."""

DRAWING = RLock()


@contextmanager
def quickly() -> Iterator[None]:
    """Altair without its checks, and without deep copies of layers that nobody changes afterwards: half the time.

    Both are settings of the whole process, so one thread draws at a time.
    """
    with DRAWING, debug_mode(False):
        copy = SchemaBase.copy
        SchemaBase.copy = lambda self, deep=True, ignore=None: copy(self, deep is not True and deep, ignore)
        try:
            yield
        finally:
            SchemaBase.copy = copy


def _values(frame: pd.DataFrame) -> JsonDict:
    """Far quicker than Altair's own way; numbers have six digits."""
    floats = frame.select_dtypes("float")
    rounded = floats.map(lambda value: float(f"{value:.6g}"))
    return {"values": json.loads(frame.assign(**rounded).to_json(orient="records", double_precision=15))}


alt.data_transformers.register("unbraid", _values)


@dataclass(frozen=True)
class Figure:
    """A chart with its title, its caption, and what it shows in words for who cannot see it.

    In a notebook it shows itself; `png()` and `svg()` draw it for documents.
    """

    name: str
    """Unique in its run; the name of its file, without ending."""
    title: str
    chart: alt.TopLevelMixin
    caption: str = ""
    wide: bool = False
    """Whether it needs the whole width of a page."""

    @cached_property
    def spec(self) -> JsonDict:
        """As Vega-Lite's JSON, with its data; the title stands in the page, not in the chart."""
        with quickly(), alt.data_transformers.enable("unbraid"):
            return {**self.chart.to_dict(validate=False), "config": STYLE}

    @property
    def alt(self) -> str:
        """In words, for who cannot see it."""
        return f"{self.title}. {self.caption}".strip()

    def png(self) -> bytes:
        import vl_convert

        return vl_convert.vegalite_to_png({**self.spec, "title": self.title}, scale=SCALE)

    def svg(self) -> str:
        import vl_convert

        return vl_convert.vegalite_to_svg({**self.spec, "title": self.title})

    def save(self, path: str | Path) -> None:
        """Draw it into a file, as its ending says: .png or .svg."""
        if (ending := Path(path).suffix) not in (".png", ".svg"):
            raise UserError(f"{path} ends in {ending!r}; accepted: .png or .svg")
        write_bytes(Path(path), self.png() if ending == ".png" else self.svg().encode())

    def _repr_mimebundle_(self, *_: Any, **__: Any) -> JsonDict:
        return {"application/vnd.vegalite.v6+json": {**self.spec, "title": self.title}, "text/plain": self.alt}


@dataclass(frozen=True)
class Cell:
    """A cell of a table that leads somewhere."""

    text: str
    href: str


@dataclass(frozen=True)
class Table:
    """Rows of words and numbers, as they are read; the first column is the row's heading."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    title: str = ""
    words: Sequence[str] = ()
    """The columns that hold words and not numbers."""
    folded: bool = False
    """Whether it is shown only when asked for."""


@dataclass(frozen=True)
class Section:
    """What belongs together under one heading."""

    name: str
    heading: str
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    text: str = ""
    """One to three sentences: what to see."""


Parts = Iterable[Figure | Table]
Draw = Callable[[RunResults], Section | None]

SECTIONS: dict[str, Draw] = {}
"""Every section by its name; a kind of experiment says which its report has, in order."""


def section(heading: str, text: str = "", name: str = "") -> Callable[[Callable[[RunResults], Parts]], Draw]:
    """Register a function from results to the figures and tables of a section; none means there is nothing to show.

    The section has the function's name, and its docstring as text, unless others are given.
    """

    def register(parts: Callable[[RunResults], Parts]) -> Draw:
        said, called = text or " ".join((parts.__doc__ or "").split()), name or parts.__name__

        def draw(results: RunResults) -> Section | None:
            with quickly():
                shown = list(parts(results))
            figures = [part for part in shown if isinstance(part, Figure)]
            tables = [part for part in shown if isinstance(part, Table)]
            return Section(called, heading, figures, tables, said) if shown else None

        SECTIONS[called] = draw
        return draw

    return register


def draw_section(results: RunResults, name: str) -> Section | None:
    """One section of a run; None where it has nothing to show."""
    if name not in SECTIONS:
        raise UserError(f"{results.run.path} names the section {name!r:.60}; {suggest(name, SECTIONS)}")
    return SECTIONS[name](results)
