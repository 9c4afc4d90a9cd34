"""Figures of the attention of heads of language models: log10 of attention, masked keys in grey."""

from dataclasses import dataclass
from textwrap import fill

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure as MatplotlibFigure

from unbraid.reports.canvas import GREY, INK, SMALLER, Figure, Section, blank_grid, left_out, plain, png, short
from unbraid.reports.run_results import RunResults, Setting
from unbraid.reports.uniformity_tables import head_table

LEAST = -3.0
MISSING_KEY = "#c8c8c8"
NAMED = 32
"""So many tokens can be read on an axis."""
SHOWN = {" ": "␣", "\n": "↵", "\t": "⇥"}
SIDE, SMALL_SIDE, NAMED_SIDE, TITLE, LETTERS = 2.35, 1.8, 3.4, 7.6, 6.0


@dataclass(frozen=True)
class Seen:
    """One window as the first member of a setting saw it, in its last layer."""

    words: list[str]
    labels: list[str]
    patterns: np.ndarray
    """Heads × queries × keys, NaN where a key may not be seen."""
    row_std: np.ndarray
    sharpness: np.ndarray

    def title(self, head: int) -> str:
        numbers = f"row_std {self.row_std[head]:.3f}, sharpness {self.sharpness[head]:.2f}"
        return f"head {head}: {self.labels[head]}\n{numbers}"


def head_maps(results: RunResults) -> Section:
    """A page a setting: every head of the last layer; their numbers under it."""
    settings = results.drawn
    found = [(one, seen) for one in settings if (seen := text_attention(results, one))]
    figures = [_page(results, one, seen) for one, seen in found]
    caption = (
        "Every head of the last layer of the first replicate, on the first window of what is to be predicted. Across: "
        "keys; down: queries, both from the first token. Colour: log10 of attention, from 0.001 or less to 1. Grey: "
        "masked. A uniform head fades evenly from row to row; a sharp one has bright spots; a bright diagonal is "
        "attention on the query's own token, which row_std leaves out. Over each panel: the number "
        f"of the head and its irrep (ℓ), or its kind of attention.{left_out(results, settings)}"
    )
    numbers = "".join(head_table(results, one) for one, _ in found)
    return Section("Attention of every head", caption, figures, numbers)


def chosen_maps(results: RunResults) -> Section:
    """One figure: of a few settings the sharpest and the flattest head, with the tokens on the axes."""
    settings = results.panels
    found = [(one, seen) for one in settings if (seen := text_attention(results, one))]
    caption = (
        f"The first {NAMED} tokens of the same window, a row a setting: at the left the sharpest head of the last "
        "layer of the first replicate, at the right the flattest. Across: keys; down: queries. "
        f"␣ is a space and ↵ the end of a line. Colour: log10 of attention; grey: masked.{left_out(results, settings)}"
    )
    return Section("The sharpest and the flattest heads", caption, [_chosen(results, found)] if found else [])


def text_attention(results: RunResults, setting: Setting) -> Seen | None:
    """As the first member that was watched saw the first window; None where none was."""
    for stack, place in setting.places:
        card = results.texts[stack] if results.texts else {}
        windows, tables = card.get("members", {}).get(str(place), []), results.tables[stack]
        if windows and "row_std" in tables:
            kept = may_be_seen(tables[f"pattern.{place}"])[0, -1]
            numbers = (tables[name][place, -1].astype(float) for name in ("row_std", "sharpness"))
            return Seen(windows[0]["words"], card["heads"], kept, *numbers)
    return None


def may_be_seen(patterns: np.ndarray) -> np.ndarray:
    """The patterns, NaN where no head of any layer or window may look: later keys, and the token itself.

    A mask is known by what it leaves: nothing at all after the diagonal, or on it but for the first token.
    """
    places = np.arange(patterns.shape[-1])
    later = places[None] > places[:, None]
    own = (places[None] == places[:, None]) & (places[:, None] > 0)
    found = patterns.astype(float)
    for part in (later, own):
        if not patterns[..., part].any():
            found[..., part] = np.nan
    return found


def draw_map(axes: Axes, pattern: np.ndarray) -> None:
    shown = np.log10(np.maximum(pattern, 10**LEAST))
    colours = colormaps["viridis"].with_extremes(bad=MISSING_KEY)
    axes.grid(False)
    axes.imshow(np.ma.masked_invalid(shown), interpolation="nearest", cmap=colours, vmin=LEAST, vmax=0)
    axes.spines[["top", "right", "left", "bottom"]].set_visible(False)


def _page(results: RunResults, setting: Setting, seen: Seen) -> Figure:
    amount = len(seen.labels)
    columns = min(amount, 3) if amount <= 9 else int(np.ceil(np.sqrt(amount)))
    side = SIDE if columns <= 3 else SMALL_SIDE
    figure, panels = blank_grid(results.source, short(setting.label, 84), amount, columns, side)
    for head, axes in enumerate(panels):
        draw_map(axes, seen.patterns[head])
        axes.set_title(plain(seen.title(head)), fontsize=TITLE if columns <= 3 else TITLE - 1.4, color=INK)
        axes.tick_params(labelsize=SMALLER - 1, length=2)
        axes.tick_params(labelleft=head % columns == 0, labelbottom=head + columns >= amount)
    _legend(figure, panels)
    described = ", ".join(f"{label} {value:.2f}" for label, value in zip(seen.labels, seen.sharpness, strict=True))
    slug = "-".join("".join(letter if letter.isalnum() or letter == "." else " " for letter in setting.label).split())
    name = f"head-maps-{setting.index + 1}-{slug[:48]}".rstrip("-.")
    return Figure(name, png(figure), f"Attention of all {amount} heads, {setting.label}; sharpness: {described}.", True)


def _chosen(results: RunResults, found: list[tuple[Setting, Seen]]) -> Figure:
    figure, panels = blank_grid(results.source, "The sharpest head and the flattest", 2 * len(found), 2, NAMED_SIDE)
    described: list[str] = []
    for row, (setting, seen) in enumerate(found):
        heads = int(np.nanargmax(seen.sharpness)), int(np.nanargmin(seen.sharpness))
        for axes, head in zip(panels[2 * row : 2 * row + 2], heads, strict=True):
            draw_map(axes, seen.patterns[head, :NAMED, :NAMED])
            label = short(setting.label, 90).replace(" ", "\u00a0").replace(",\u00a0", ", ")  # broken at commas alone
            title = f"{fill(label, 48)}\n{seen.title(head).replace(chr(10), ', ')}"
            axes.set_title(plain(title), fontsize=SMALLER - 1, color=INK)
            _name_tokens(axes, seen.words[:NAMED])
        described.append(f"{setting.label}: {' and '.join(seen.title(head).replace(chr(10), ', ') for head in heads)}")
    _legend(figure, panels)
    return Figure("chosen-heads", png(figure), f"Attention of chosen heads. {'; '.join(described)}.", True)


def _name_tokens(axes: Axes, words: list[str]) -> None:
    names = [plain("".join(SHOWN.get(letter, letter) for letter in word)) for word in words]
    axes.set_xticks(range(len(names)), names, fontsize=LETTERS, rotation=90 if max(map(len, names)) > 1 else 0)
    axes.set_yticks(range(len(names)), names, fontsize=LETTERS)
    axes.tick_params(length=0, pad=1.5)


def _legend(figure: MatplotlibFigure, panels: list[Axes]) -> None:
    figure.supxlabel("keys", fontsize=SMALLER, color=GREY)
    figure.supylabel("queries", fontsize=SMALLER, color=GREY)
    bar = figure.colorbar(panels[0].images[0], ax=panels, shrink=0.5, aspect=30, pad=0.01, extend="min")
    bar.set_label("log10 of attention (grey: masked)", fontsize=SMALLER)
    bar.set_ticks([LEAST, -2, -1, 0])
    bar.ax.tick_params(labelsize=SMALLER)
