"""The cosine of every planted direction with every learned one, in tiles, ordered by match, beside what chance gives.

Chance: the largest of f cosines with random directions in d dimensions. (1 + cosine) / 2 has the Beta law with
a = b = (d - 1) / 2, so the mean of the largest is 1 - ∫ F(c)^f dc over c from -1 to 1.
"""

import io
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from PIL import Image
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from unbraid.explorer.members import Choice, Member, choose, names_in
from unbraid.explorer.parameters import choice, integer
from unbraid.explorer.site import NothingHere, Site, Tab, run_href
from unbraid.figures.marks import DIVERGING, STOPS
from unbraid.results import RunResults
from unbraid.storage.files import read_arrays

PIXELS = 512
"""Of a tile, a side."""
NEAREST = -5
"""Zoom is the number of cells a pixel as a power of two: at this one a cell is 32 pixels wide."""
POOLED = 3
"""From this zoom on tiles are cut from one table, pooled once."""
BLOCK = 256, 16_384
"""Rows and columns multiplied at a time: 16 MB."""
SAMPLED = 4
"""Cells a side that a sketch looks at in each pixel."""
PATIENCE = 0.05
"""Seconds that a tile waits for the pooled table before it is a sketch."""
MOST_TILES = 64
"""Kept of a matrix."""
POOL = ThreadPoolExecutor(1, "pooling")


@dataclass(frozen=True)
class Cosines:
    """Unit directions in the order of the page: planted ones as rows, learned ones as columns; or their table."""

    rows: np.ndarray
    """The number of the concept in each row."""
    columns: np.ndarray
    """The number of the feature in each column."""
    truth: np.ndarray | None
    learned: np.ndarray | None
    table: np.ndarray | None = None
    """Where no directions are on disk."""

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), len(self.columns)

    @property
    def widest(self) -> int:
        """The zoom at which all of it is seen."""
        return max(NEAREST, int(np.ceil(np.log2(max(self.shape) / PIXELS))))

    def block(self, rows: slice, columns: slice) -> np.ndarray:
        """The cosines of some rows and columns, as far as there are any."""
        if self.table is not None:
            return self.table[rows, columns].astype(np.float32)
        assert self.truth is not None
        assert self.learned is not None
        return self.truth[rows] @ self.learned[columns].T

    def pooled_block(self, rows: slice, columns: slice, factor: int) -> np.ndarray:
        """For each factor × factor cells of a block the cosine that is largest in size; multiplied part by part."""
        down, across = (range(part.start, part.stop, size) for part, size in zip((rows, columns), BLOCK, strict=True))
        parts = [
            [(slice(r, min(r + BLOCK[0], rows.stop)), slice(c, min(c + BLOCK[1], columns.stop))) for c in across]
            for r in down
        ]
        return np.vstack([np.hstack([pool(self.block(*part), factor) for part in line]) for line in parts])

    @cached_property
    def drawn(self) -> dict[tuple[int, int, int], bytes]:
        """Tiles as PNG by row, column and zoom, kept when they are first asked for."""
        return {}

    @cached_property
    def pooling(self) -> Future[np.ndarray]:
        """For each 8 × 8 cells the cosine that is largest in size; begun, on another thread, when it is asked for."""
        whole = (slice(0, size) for size in self.shape)
        return POOL.submit(self.pooled_block, *whole, 1 << POOLED)

    def view(self, row: int, column: int, zoom: int) -> np.ndarray:
        """What a tile shows, at most 512 × 512: cells, or the cosine of largest size among those of a pixel."""
        if zoom < POOLED:
            size = int(PIXELS * 2.0**zoom)
            ends = (min(start + size, end) for start, end in zip((row, column), self.shape, strict=True))
            rows, columns = (slice(start, end) for start, end in zip((row, column), ends, strict=True))
            return self.pooled_block(rows, columns, max(1, 1 << max(0, zoom)))
        step, size = 1 << POOLED, PIXELS << (zoom - POOLED)
        cut = self.pooling.result()[row // step : row // step + size, column // step : column // step + size]
        return pool(cut, 1 << (zoom - POOLED))

    def sketch(self, row: int, column: int, zoom: int) -> np.ndarray:
        """As a view, of some of the cells: 4 × 4 of each pixel, and the diagonal, on which the matches stand."""
        factor, size = 1 << zoom, PIXELS << zoom
        every = factor // SAMPLED
        rows, columns = slice(row, row + size, every), slice(column, column + size, every)
        found = pool(self.block(rows, columns), SAMPLED)
        if self.truth is None or self.learned is None:
            return found
        first, last = max(row, column), min(row + size, column + size, *self.shape)
        cosine = np.einsum("nd,nd->n", self.truth[first:last], self.learned[first:last])
        order = np.argsort(np.abs(cosine), kind="stable")  # the largest is written last
        place = (np.arange(first, last)[order] - row) // factor, (np.arange(first, last)[order] - column) // factor
        larger = np.abs(cosine[order]) > np.abs(found[place])
        found[place[0][larger], place[1][larger]] = cosine[order][larger]
        return found


def pool(table: np.ndarray, factor: int) -> np.ndarray:
    """For each factor × factor cells the value that is largest in size, with its sign."""
    if factor == 1:
        return table
    down, across = (-(-size // factor) for size in table.shape)
    if table.shape != (down * factor, across * factor):
        padded = np.zeros((down * factor, across * factor), dtype=table.dtype)
        padded[: table.shape[0], : table.shape[1]] = table
        table = padded
    rows = table.reshape(down, factor, across * factor)
    high, low = _reduced(np.maximum, rows, 1), _reduced(np.minimum, rows, 1)
    high, low = (
        _reduced(kept, part.reshape(down, across, factor), 2) for kept, part in ((np.maximum, high), (np.minimum, low))
    )
    return np.where(high >= -low, high, low)


def _reduced(kept: np.ufunc, table: np.ndarray, axis: int) -> np.ndarray:
    """As `kept.reduce`; slice by slice it is several times as quick along a short axis."""
    first, *others = np.moveaxis(table, axis, 0)
    found = first.copy()
    for other in others:
        kept(found, other, out=found)
    return found


def expected_best(entries: int, dimensions: int) -> float:
    """What a direction's best cosine is with so many random ones, on average."""
    from scipy.special import betainc

    cosine = np.linspace(-1, 1, 20_001)
    shape = (dimensions - 1) / 2
    return float(1 - np.trapezoid(betainc(shape, shape, (1 + cosine) / 2) ** entries, cosine))


def _unit(directions: np.ndarray) -> np.ndarray:
    directions = directions.astype(np.float32)
    lengths = np.linalg.norm(directions, axis=-1, keepdims=True)
    return directions / np.where(lengths > 0, lengths, 1)


def cosines(results: RunResults, member: Member) -> Cosines | None:
    """The cosines of one member; None where neither directions nor a table are on disk."""
    stamp = (results.run.stack(member.stack) / "tables.safetensors").stat().st_mtime_ns
    return _cosines(results, member, stamp)


@lru_cache(maxsize=2)
def _cosines(results: RunResults, member: Member, _stamp: int) -> Cosines | None:
    tables, folder = results.arrays(member.stack), results.run.stack(member.stack)
    matched = tables["match"][member.member]
    rows = np.argsort(-tables["matched_cosine"][member.member], kind="stable")
    if (folder / "truth.safetensors").is_file():
        truth = _unit(read_arrays(folder / "truth.safetensors")["directions"])
        learned = _unit(_learned(read_arrays(folder / "weights.safetensors"), member.member))
        columns = _matched_first(rows, matched, len(learned))
        return Cosines(rows, columns, truth[rows], learned[columns])
    table = tables.get(f"cosines.{member.member}")
    if table is None:
        return None
    columns = _matched_first(np.arange(len(table)), matched, tables["density"].shape[1])[: table.shape[1]]
    return Cosines(np.arange(len(table)), columns, None, None, table)


def _learned(weights: dict[str, np.ndarray], member: int) -> np.ndarray:
    return weights["decoder"][member] if "decoder" in weights else weights[f"directions.{member}"]


def _matched_first(rows: np.ndarray, matched: np.ndarray, features: int) -> np.ndarray:
    """Features in the order of the concepts they are matched with, then all others."""
    first = matched[rows]
    first = first[first >= 0]
    others = np.setdiff1d(np.arange(features), first)
    return np.concatenate([first, others]).astype(int)


def cosines_of_concept(results: RunResults, member: Member, concept: int) -> np.ndarray | None:
    """One planted direction with every feature, by number; None where that is not known."""
    if "match" not in results.arrays(member.stack):
        return None
    known = cosines(results, member)
    if known is None or known.truth is None or known.learned is None:
        return None
    values = np.empty(len(known.columns), dtype=np.float32)
    values[known.columns] = known.learned @ known.truth[np.flatnonzero(known.rows == concept)[0]]
    return values


def _kept(results: RunResults, stack: int, member: int) -> bool:
    folder = results.run.stack(stack)
    names = names_in(folder / "tables.safetensors")
    return "match" in names and ((folder / "truth.safetensors").is_file() or f"cosines.{member}" in names)


def _asked(request: Request) -> tuple[RunResults, Choice, Cosines]:
    results = request.app.state.site.results(request.path_params["name"])
    chosen = choose(request, results, lambda stack, member: _kept(results, stack, member))
    known = None if chosen is None else cosines(results, chosen.chosen)
    if chosen is None or known is None:
        raise NothingHere(
            f"the run {results.run.name} has no planted directions; accepted: a run on a world that has them"
        )
    return results, chosen, known


def _place(request: Request, known: Cosines) -> tuple[int, int, int]:
    zoom = integer(request, "zoom", known.widest, NEAREST, known.widest)
    row, column = (
        integer(request, name, 0, 0, size - 1) for name, size in zip(("row", "column"), known.shape, strict=True)
    )
    step = 1 << zoom if zoom > 0 else 1
    return row // step * step, column // step * step, zoom


def directions_page(request: Request) -> Response:
    site: Site = request.app.state.site
    results, chosen, known = _asked(request)
    row, column, zoom = _place(request, known)
    span = max(1, int(PIXELS * 2.0**zoom))
    matched = results.arrays(chosen.chosen.stack)["best_cosine"][chosen.chosen.member]
    dimensions = None if known.truth is None else known.truth.shape[1]
    return site.render(
        request,
        "directions.html.jinja",
        results=results,
        choice=chosen,
        shape=known.shape,
        row=row,
        column=column,
        zoom=zoom,
        nearest=NEAREST,
        widest=known.widest,
        span=span,
        moves=moves(row, column, zoom, known),
        cut=known.table is not None,
        dimensions=dimensions,
        mean_best=float(matched.mean()),
        chance=None if dimensions is None else expected_best(known.shape[1], dimensions),
        base=run_href(results.run.name, "directions"),
        pooled=POOLED,
        size=tile_size(known, row, column, zoom),
    )


def moves(row: int, column: int, zoom: int, known: Cosines) -> dict[str, tuple[int, int, int]]:
    """Where each link leads: row, column and zoom."""
    span, (rows, columns) = max(1, int(PIXELS * 2.0**zoom)), known.shape
    half = max(1, span // 2)

    def at(r: int, c: int, z: int) -> tuple[int, int, int]:
        return max(0, min(r, rows - 1)), max(0, min(c, columns - 1)), z

    found = {"whole": (0, 0, known.widest)}
    found |= {"left": at(row, column - half, zoom), "right": at(row, column + half, zoom)}
    found |= {"up": at(row - half, column, zoom), "down": at(row + half, column, zoom)}
    if zoom > NEAREST:
        found["nearer"] = (
            at(row + span // 4, column + span // 4, zoom - 1) if zoom < known.widest else at(row, column, zoom - 1)
        )
    if zoom < known.widest:
        found["farther"] = at(row - span // 2, column - span // 2, zoom + 1)
    return found


def tile_size(known: Cosines, row: int, column: int, zoom: int) -> tuple[int, int]:
    """Width and height of a tile in pixels."""
    scale = 2.0**-zoom
    rows, columns = known.shape
    return tuple(
        int(min(PIXELS, max(1, round((size - start) * scale)))) for size, start in ((columns, column), (rows, row))
    )


def tile(request: Request) -> Response:
    _, _, known = _asked(request)
    row, column, zoom = _place(request, known)
    place = row, column, zoom
    exact = choice(request, "exact", ("0", "1"), "0") == "1"
    if place not in known.drawn:
        if not exact and zoom >= POOLED and not _is_pooled(known):
            return Response(png(known.sketch(*place)), media_type="image/png", headers={"Cache-Control": "no-store"})
        if len(known.drawn) >= MOST_TILES:
            known.drawn.clear()
        known.drawn[place] = draw_tile(known, row, column, zoom)
    return Response(known.drawn[place], media_type="image/png", headers={"Cache-Control": "private, max-age=600"})


def _is_pooled(known: Cosines) -> bool:
    """Whether the pooled table is there, or will be in a moment."""
    return bool(wait([known.pooling], PATIENCE).done)


def draw_tile(known: Cosines, row: int, column: int, zoom: int) -> bytes:
    """A tile as PNG."""
    return png(known.view(row, column, zoom), 1 << max(0, -zoom))


def png(cosines: np.ndarray, size: int = 1) -> bytes:
    """A picture of cosines, each a square of so many pixels a side."""
    pixels = coloured(cosines)
    if size > 1:
        pixels = pixels.repeat(size, 0).repeat(size, 1)
    buffer = io.BytesIO()
    Image.fromarray(pixels[:PIXELS, :PIXELS]).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def coloured(values: np.ndarray) -> np.ndarray:
    """Cosines from -1 (blue) over 0 (white) to 1 (orange), as red, green and blue."""
    places = np.clip(np.round((values + 1) * 127.5), 0, 255).astype(np.uint8)
    return _palette()[places]


@lru_cache(maxsize=1)
def _palette() -> np.ndarray:
    stops = np.array(STOPS[DIVERGING], dtype=float)
    share = np.linspace(0, 1, 256)
    return np.stack([np.interp(share, (0, 0.5, 1), stops[:, c]) for c in range(3)], -1).astype(np.uint8)


def cell(request: Request) -> Response:
    """One cell: its concept, its feature and their cosine."""
    results, chosen, known = _asked(request)
    row, column = (
        integer(request, name, 0, 0, size - 1) for name, size in zip(("row", "column"), known.shape, strict=True)
    )
    concept, feature = int(known.rows[row]), int(known.columns[column])
    member = chosen.chosen
    return JSONResponse(
        {
            "concept": concept,
            "feature": feature,
            "cosine": round(float(known.block(slice(row, row + 1), slice(column, column + 1))[0, 0]), 4),
            "href": run_href(results.run.name, "features", member.stack, member.member, feature),
        }
    )


def has_directions(results: RunResults) -> bool:
    return any(_kept(results, stack, 0) for stack in range(min(1, len(results.run.stacks()))))


ROUTES = [
    Route("/runs/{name}/directions", directions_page),
    Route("/runs/{name}/directions/tile", tile),
    Route("/runs/{name}/directions/cell", cell),
]
TABS = [Tab("Directions", "directions", has_directions)]
