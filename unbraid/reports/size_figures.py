"""Figures of baselines: what each method recovers, against the number of samples it was fitted to."""

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from unbraid.reports.canvas import (
    GREY,
    HEIGHT,
    Figure,
    Section,
    Style,
    blank,
    handle,
    key,
    make_log,
    name_axes,
    png,
    short,
)
from unbraid.reports.methods import METHOD, SIZE, by_method, figures, groups, method_style
from unbraid.reports.run_results import RunResults, Setting


def sizes(results: RunResults) -> Section:
    """A figure for each world, a line for each method; nothing where one size was fitted."""
    found = groups(results, (METHOD, SIZE)) if any(SIZE in one.swept for one in results.settings) else {}
    drawn = [_figure(results, place, title, settings) for place, (title, settings) in enumerate(found.items())]
    caption = (
        "MMCS (y, 1 is perfect; mean over replicates, bars are 95 % intervals) against the number of samples a method "
        "was fitted to (x, log scale). Dotted, in a method's colour: its chance, random directions of the number it "
        "found."
    )
    return Section("Recovery against the number of samples", caption, figures(drawn))


def _figure(results: RunResults, place: int, title: str, settings: list[Setting]) -> Figure | None:
    lines = {name: _points(ones) for name, ones in by_method(settings).items()}
    lines = {name: points for name, points in lines.items() if len(points) > 1}
    if not lines:
        return None
    figure, axes = blank(results.source, height=HEIGHT + 0.3 + 0.12 * len(lines))
    handles = [_draw(axes, method_style(at), name, points) for at, (name, points) in enumerate(lines.items())]
    handles.append(Line2D([], [], color=GREY, linestyle=":", linewidth=1.4, label="chance of each"))
    amounts = [amount for points in lines.values() for amount, _ in points]
    make_log(axes, "x", float(min(amounts)), float(max(amounts)))
    axes.set_ylim(0, 1.04)
    name_axes(axes, short(title), "samples (log)", "MMCS (1 is perfect)")
    key(figure, handles)
    described = "; ".join(
        f"{name} {points[0][1].value('mmcs'):.2f} to {points[-1][1].value('mmcs'):.2f}"
        for name, points in lines.items()
    )
    alt = f"{title}: MMCS against samples, from {min(amounts):,} to {max(amounts):,}: {described}."
    return Figure(f"size-{place + 1}", png(figure), alt)


def _points(settings: list[Setting]) -> list[tuple[int, Setting]]:
    """By how many samples; settings without a score are left out."""
    found = [(one.swept.get(SIZE), one) for one in settings if one.value("mmcs") is not None]
    return sorted(((amount, one) for amount, one in found if isinstance(amount, int)), key=lambda pair: pair[0])


def _draw(axes: Axes, drawn: Style, name: str, points: list[tuple[int, Setting]]) -> Line2D:
    x = [amount for amount, _ in points]
    scores = [one.scores["mmcs"] for _, one in points]
    axes.plot(
        x,
        [score.value or 0 for score in scores],
        color=drawn.colour,
        linestyle=drawn.dashes,
        marker=drawn.marker,
        linewidth=2,
    )
    for amount, score in zip(x, scores, strict=True):
        if score.interval is not None:
            axes.plot([amount, amount], score.interval, color=drawn.colour, linewidth=2.4, alpha=0.5)
    chance = [(amount, score.chance) for amount, score in zip(x, scores, strict=True) if score.chance is not None]
    axes.plot([amount for amount, _ in chance], [level for _, level in chance], ":", color=drawn.colour, linewidth=1.4)
    return handle(drawn, name, marker=True)
