"""Figures of how uniform attention is, by kind of head: every setting, beside uniform attention."""

from matplotlib.axes import Axes

from unbraid.metrics.catalog import MEDIUM, SHARP, parts
from unbraid.reports.canvas import (
    CLEAR,
    COLOURS,
    GREY,
    INK,
    MARKERS,
    SMALLER,
    Figure,
    Section,
    Style,
    blank,
    key,
    left_out,
    name_axes,
    plain,
    png,
    short,
)
from unbraid.reports.run_results import MOST_ROWS, RunResults, Score, Setting, finite
from unbraid.reports.score_figures import draw_row, row_key
from unbraid.reports.uniformity_tables import what_heads_do
from unbraid.reports.words import MISSING, describe_metric, number

LINE, LABEL = 0.2, 0.27
"""Inches that a kind of head and the name of a setting take."""
LONGEST = 78
Kinds = list[tuple[str, Score]]


def by_irrep(results: RunResults) -> Section:
    """Sharpness and row_std of the heads of each kind, and the table of what heads do."""
    settings = results.settings if len(results.settings) <= MOST_ROWS else results.drawn
    found = [_figure(results, settings, metric) for metric in ("sharpness", "row_std")]
    figures = [figure for figure in found if figure]
    caption = (
        "Of every setting a line for each kind of head of the last layer: ℓ0 are scalar heads, ℓ1 vectors, ℓ2 "
        "tensors. Small dots: one per replicate. Large marker: their mean, with its 95 % interval as a bar; its number "
        "is at the right. Sharpness is 0 for uniform attention, which is chance, and 1 for attention on "
        "one token, at any length. row_std is the measure of the gauge study; dashed tick: its floor, the value of "
        "uniform attention at this length; dotted lines: the study's thresholds for MEDIUM and SHARP. row_std "
        "leaves out the token itself: a head that attends to its own token alone has a sharpness of 1 and a row_std of "
        f"0, below the floor.{_most(results)}{left_out(results, settings)}"
    )
    return Section(
        "Uniformity of attention by kind of head", caption, figures, what_heads_do(results) if figures else ""
    )


def kinds(setting: Setting, metric: str) -> Kinds:
    """The score of each kind of head of a setting, in the order that heads have."""
    return [(parts(name)[1], score) for name, score in setting.scores.items() if parts(name)[0] == f"{metric}_<kind>"]


def kind_style(kind: str) -> Style:
    """The same for a kind in every figure: by its degree, or the last colour where it has none."""
    if not kind[1:].isdigit():
        return Style(COLOURS[-1], "-", "h")
    place = int(kind[1:]) % (len(COLOURS) - 1)
    return Style(COLOURS[place], "-", MARKERS[place])


def _most(results: RunResults) -> str:
    """What row_std can be at most at the lengths that were run."""
    lengths = sorted({int(card["context"]) for card in results.texts if card.get("context", 0) > 1})
    if not lengths:
        return ""
    described = [f"{(length - 2) ** 0.5 / length:.3f} at {length} tokens" for length in lengths]
    return f" The largest possible row_std is {', '.join(described)}."


def _figure(results: RunResults, settings: list[Setting], metric: str) -> Figure | None:
    blocks = [(one, found) for one in settings if (found := kinds(one, metric))]
    if not blocks:
        return None
    tall = sum(LABEL + LINE * len(found) for _, found in blocks)
    figure, axes = blank(results.source, height=1.75 + tall)
    y, ticks = 0.0, {}
    for setting, found in blocks:
        y -= LABEL
        _name(axes, y + LABEL / 2 - 0.02, setting.label)
        for kind, score in found:
            y -= LINE
            ticks[y + LINE / 2] = kind
            _draw(axes, y + LINE / 2, kind, metric, score)
    _style_axes(axes, ticks, y, [score for _, found in blocks for _, score in found], metric)
    words = describe_metric(metric)
    name_axes(axes, f"{words.label} by kind of head", f"{words.label} ({words.direction})", "")
    mean, replicate, chance = row_key([])
    chance.set_label("uniform attention: 0" if metric == "sharpness" else "uniform attention (floor)")
    key(figure, [mean, replicate, chance])
    described = "; ".join(f"{one.label}: {_numbers(metric, found)}" for one, found in blocks)
    name = f"{metric.replace('_', '-')}-by-irrep"
    return Figure(name, png(figure), f"Dot plot of {words.label} by kind of head: {described}.")


def _name(axes: Axes, y: float, label: str) -> None:
    across = axes.get_yaxis_transform()
    axes.text(
        0, y, plain(short(label, LONGEST)), fontsize=SMALLER, color=INK, va="center", transform=across, bbox=CLEAR
    )


def _draw(axes: Axes, y: float, kind: str, metric: str, score: Score) -> None:
    draw_row(axes, y, kind_style(kind), score, LINE * 0.42, 5.5)
    value = MISSING if score.value is None else format(score.value, describe_metric(metric).format)
    axes.text(1.02, y, value, fontsize=SMALLER, color=INK, va="center", transform=axes.get_yaxis_transform())


def _style_axes(axes: Axes, ticks: dict[float, str], bottom: float, scores: list[Score], metric: str) -> None:
    """Kinds at the left, the study's thresholds named at the top, and all that was measured inside."""
    values = [value for score in scores for value in finite([*score.members, score.chance])]
    low, most = min(0.0, *values), max(values, default=0.0)
    high = 1.03 if metric == "sharpness" else max(most, SHARP) * 1.1
    axes.set(xlim=(low - 0.02 * high, high), ylim=(bottom - 0.06, LABEL if metric == "row_std" else 0.04))
    axes.set_yticks(list(ticks), list(ticks.values()), fontsize=SMALLER)
    axes.tick_params(axis="y", length=0)
    axes.grid(False, axis="y")
    axes.spines["left"].set_visible(False)
    if metric == "row_std":
        for value, word in ((MEDIUM, "MEDIUM"), (SHARP, "SHARP")):
            axes.axvline(value, color=GREY, linestyle=":", linewidth=1.4, zorder=1)
            words = f"{word} above {value:.2f}"
            axes.text(value, LABEL / 2, words, fontsize=SMALLER, color=GREY, ha="center", va="center", bbox=CLEAR)


def _numbers(metric: str, found: Kinds) -> str:
    return ", ".join(f"{kind} {number(metric, score.value)}" for kind, score in found)
