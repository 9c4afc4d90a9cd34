"""Figures of concept–feature matching: shares of the verdicts on concepts and on features as stacked bars."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D

from unbraid.reports.canvas import (
    GREY,
    INK,
    SMALL,
    SMALLER,
    Figure,
    Section,
    blank,
    key,
    left_out,
    name_axes,
    plain,
    png,
    short,
)
from unbraid.reports.column_figures import rows_of
from unbraid.reports.matching_tables import matching_tables
from unbraid.reports.matching_words import CONCEPTS, FEATURES
from unbraid.reports.run_results import RunResults, Score, Setting

COLOURS = {
    "recovered": "#0072B2",
    "split": "#56B4E9",
    "absorbed": "#E69F00",
    "merged": "#D55E00",
    "missed": "#d2d2d2",
    "match": "#0072B2",
    "duplicate": "#56B4E9",
    "mixture": "#D55E00",
    "spurious": "#d2d2d2",
    "dead": "#5a5a5a",
}
"""Blue is good, grey is nothing; the order in a bar identifies them too."""
THICK, THIN = 0.4, 0.17
READABLE, ALIKE, DARK = 0.07, 0.005, 0.45
"""Of a share that has room for its number; of chances that are one; of a colour that white stands out from."""

OF_ALL = "chance, of every setting"

Shares = dict[str, float]


def concept_matching(results: RunResults) -> Section:
    """One figure of the concepts, one of the features; a bar a setting, and chance."""
    shown = rows_of(results)
    figures = [
        _figure(results, shown, name, title, words)
        for name, title, words in (
            ("factors", "Verdicts on planted concepts", CONCEPTS),
            ("features", "Verdicts on learned features", FEATURES),
        )
        if any(shares(setting, name, words) for setting in shown)
    ]
    caption = (
        "Each thick bar is a setting, mean over replicates: what share of all concepts (values of factors), or of all "
        "learned features, got each verdict. A bar is 100 %. Thin bar: chance, a random dictionary of the same size "
        f"that fires by the same rule. Intervals are in the table below.{left_out(results, shown)}"
    )
    tables = matching_tables(results, shown) if figures else ""
    return Section("Concept–feature matching", caption, figures, tables)


def shares(setting: Setting, name: str, words: Mapping[str, str], chance: bool = False) -> Shares:
    """Of each verdict, in order; empty where any is not known."""
    scores = [setting.scores.get(f"{name}_{verdict}") for verdict in words]
    found = {verdict: _part(score, chance) for verdict, score in zip(words, scores, strict=True)}
    known = {verdict: share for verdict, share in found.items() if share is not None}
    return known if len(known) == len(words) else {}


def _part(score: Score | None, chance: bool) -> float | None:
    return None if score is None else score.chance if chance else score.value


def bars(settings: Sequence[Setting], name: str, words: Mapping[str, str]) -> list[tuple[str, Shares, bool]]:
    """What each bar is called, what it shows, and whether it is chance: one for all where it is the same for all."""
    found = [(one.label, shares(one, name, words), shares(one, name, words, True)) for one in settings]
    found = [(label, own, luck) for label, own, luck in found if own]
    lucks = [luck for _, _, luck in found]
    if len(found) > 1 and lucks[0] and all(_alike(luck, lucks[0]) for luck in lucks):
        return [*((label, own, False) for label, own, _ in found), (OF_ALL, lucks[0], True)]
    each = [((label, own, False), ("chance", luck, True)) for label, own, luck in found]
    return [bar for pair in each for bar in pair if bar[1]]


def _alike(one: Shares, other: Shares) -> bool:
    return one.keys() == other.keys() and all(abs(one[name] - other[name]) < ALIKE for name in one)


def _figure(
    results: RunResults, settings: Sequence[Setting], name: str, title: str, words: Mapping[str, str]
) -> Figure:
    drawn = bars(settings, name, words)
    thick = sum(not chance for _, _, chance in drawn)
    figure, axes = blank(
        results.source, height=2.4 + 0.52 * thick + (0.5 if drawn[-1][0] == OF_ALL else 0.16 * (len(drawn) - thick))
    )
    y = 0.0
    for label, found, chance in drawn:
        y -= 0.33 if chance and label != OF_ALL else 1.0
        _bar(axes, y, label, found, chance)
    axes.set(xlim=(0, 1), ylim=(y - 0.35, -0.3), yticks=[], xticks=[0, 0.25, 0.5, 0.75, 1])
    axes.set_xticklabels(["0", "25", "50", "75", "100 %"])
    axes.spines["left"].set_visible(False)
    axes.grid(visible=False)
    unit = "share of concepts" if name == "factors" else "share of learned features"
    name_axes(axes, title, unit, "")
    key(figure, [_entry(verdict, meaning) for verdict, meaning in words.items()])
    described = ". ".join(f"{label}: {_described(found)}" for label, found, _ in drawn)
    return Figure(f"matching-{name}", png(figure), f"Stacked bars. {described}.")


def _bar(axes: Axes, y: float, label: str, found: Shares, chance: bool) -> None:
    left, height = 0.0, THIN if chance else THICK
    for verdict, share in found.items():
        colour = COLOURS[verdict]
        axes.barh(
            y, share, height, left=left, color=colour, alpha=0.6 if chance else 1, edgecolor="white", linewidth=0.6
        )
        if share >= READABLE and not chance:
            ink = "white" if _is_dark(colour) else INK
            where = (left + share / 2, y - 0.02)
            axes.text(*where, f"{100 * share:.0f} %", fontsize=SMALLER, color=ink, ha="center", va="center")
        left += share
    across = axes.get_yaxis_transform()
    if chance and label != OF_ALL:
        axes.text(1.01, y, label, fontsize=SMALLER - 1, color=GREY, va="center", transform=across)
    else:
        axes.text(0, y + 0.37, plain(short(label)), fontsize=SMALL, color=INK, va="center", transform=across)


def _entry(verdict: str, meaning: str) -> Line2D:
    return Line2D([], [], color=COLOURS[verdict], linewidth=8, solid_capstyle="butt", label=f"{verdict}: {meaning}")


def _described(found: Shares) -> str:
    return ", ".join(f"{verdict} {100 * share:.0f} %" for verdict, share in found.items())


def _is_dark(colour: str) -> bool:
    red, green, blue = to_rgb(colour)
    return 0.299 * red + 0.587 * green + 0.114 * blue < DARK
