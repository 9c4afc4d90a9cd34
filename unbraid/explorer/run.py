"""The page of one run: the report, interactive; any metric with its differences, and any two of them with a brush."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from unbraid.explorer.parameters import BadParameter, choice, texts
from unbraid.explorer.site import NothingHere, Site, progress

if TYPE_CHECKING:
    import pandas as pd

    from unbraid.figures import Figure
    from unbraid.results import RunResults

BRUSH = "brush"
"""The selection that `static/brush.js` listens to."""


@dataclass(frozen=True)
class SettingRow:
    """A setting in the table beside the scatter plot."""

    setting: int
    label: str
    x: float
    y: float
    words: tuple[str, str]


def page(request: Request) -> Response:
    """The whole page; its sections are drawn when they are asked for."""
    from unbraid.figures.figure import quickly

    site: Site = request.app.state.site
    results = site.results(request.path_params["name"])
    chosen, card = chosen_settings(request, results), site.card(results.run)
    with quickly():
        context = _scores(request, only(results, chosen), results) if len(results.summary) else {"metric": ""}
        curve = None if card.state == "finished" else curve_so_far(results)
    return site.render(
        request,
        "run.html.jinja",
        results=results,
        card=card,
        live=progress(card) if card.is_live else None,
        curve=curve,
        names=section_names(results),
        **context,
    )


def chosen_settings(request: Request, results: "RunResults") -> set[int]:
    """The settings that an address asks for; all of them where it names none."""
    known = {str(index): index for index in range(len(results.labels))}
    asked = texts(request, "setting", len(known) or 1)
    for value in asked:
        if value not in known:
            raise BadParameter(f"setting is {value!r:.60}; accepted: 0 to {len(known) - 1}")
    return {known[value] for value in asked} or set(known.values())


def only(results: "RunResults", settings: set[int]) -> "RunResults":
    """The same run as if it had scored these settings alone."""
    if len(settings) == len(results.labels):
        return results
    from unbraid.results import RunResults

    own, summary, differences = RunResults(results.run), results.summary, results.differences
    own.__dict__.update(
        summary=summary[summary["setting"].isin(settings)],
        differences=differences[differences["setting"].isin(settings)],
        ranked=[setting for setting in results.ranked if setting in settings],
    )
    return own


def section_names(results: "RunResults") -> list[tuple[str, str]]:
    """The sections of a run's report, and what to call them before they are drawn."""
    kept = results.sections if len(results.summary) else []
    return [(name, name.replace("_", " ").capitalize()) for name in kept]


def section(request: Request) -> Response:
    """One section; a page of its own, or with `fragment=1` the part that a page puts in its place."""
    from unbraid.figures import draw_section

    site: Site = request.app.state.site
    results = site.results(request.path_params["name"])
    name = choice(request, "section", results.sections, "")
    template = "section.html.jinja" if choice(request, "fragment", ["0", "1"], "0") == "0" else "fragment.html.jinja"
    drawn = draw_section(results, name) if len(results.summary) else None
    if drawn is None and template == "section.html.jinja":
        raise NothingHere(
            f"the run {results.run.name} has nothing to show under {name!r}; accepted: another section of it"
        )
    return site.render(request, template, results=results, section=drawn)


def _scores(request: Request, results: "RunResults", whole: "RunResults") -> dict[str, Any]:
    """What was chosen of metrics and settings, the charts of it, and a row for each setting of the whole run."""
    from unbraid.figures.words import describe, in_order

    metrics = in_order(results.summary.dropna(subset=["value"])["metric"])
    if not metrics:
        return {"metric": ""}
    leading = results.leading if results.leading in metrics else metrics[0]
    other = next((name for name in ("l0", *metrics) if name in metrics and name != leading), leading)
    metric, x = choice(request, "metric", metrics, leading), choice(request, "x", metrics, other)
    y = choice(request, "y", metrics, leading)
    labels = {name: describe(name).label for name in metrics}
    twice = {label for label in labels.values() if list(labels.values()).count(label) > 1}
    return {
        "metric": metric,
        "x": x,
        "y": y,
        "metrics": {name: f"{label} ({name})" if label in twice else label for name, label in labels.items()},
        "figures": metric_figures(results, metric),
        "scatter": scatter(results, x, y),
        "rows": setting_rows(whole, x, y),
        "shown": set(results.ranked),
        "partly": len(results.ranked) < len(whole.ranked),
    }


def metric_figures(results: "RunResults", metric: str) -> "list[Figure]":
    """Every setting's value with its interval; and its differences, where settings were compared."""
    from unbraid.figures import Figure
    from unbraid.figures.marks import difference_rows, interval_rows
    from unbraid.figures.words import describe

    label = describe(metric).label
    shown = [Figure("chosen", label, interval_rows(results, metric), "Mean over replicates and its 95 % interval.")]
    compared = results.differences[results.differences["metric"] == metric]
    if len(compared):
        words = "Paired differences from the setting each is compared with, and their 95 % intervals."
        shown.append(Figure("chosen-differences", f"Differences: {label}", difference_rows(compared, metric), words))
    return shown


def _pairs(results: "RunResults", x: str, y: str) -> "pd.DataFrame":
    """A row a setting that has both metrics."""
    columns = ["setting", "label", "value", "low", "high"]
    across, up = (results.of_metric(name)[columns] for name in (x, y))
    joined = across.merge(up, on=["setting", "label"], suffixes=("_x", "_y"))
    return joined.rename(columns={"value_x": "x", "value_y": "y"})


def scatter(results: "RunResults", x: str, y: str) -> "Figure":
    """Any two metrics, a dot a setting with both intervals; what is brushed stays in colour."""
    import altair as alt

    from unbraid.figures import Figure
    from unbraid.figures.marks import COLOURS, GREY, HEIGHT, WIDTH
    from unbraid.figures.words import axis_title

    frame = _pairs(results, x, y)
    brush = alt.selection_interval(name=BRUSH, encodings=["x", "y"])
    base = alt.Chart(frame, width=WIDTH, height=HEIGHT)
    scale = alt.Scale(zero=False, nice=True)
    across, up = (alt.X("x:Q", title=axis_title(x), scale=scale), alt.Y("y:Q", title=axis_title(y), scale=scale))
    tips = [alt.Tooltip("label", title="setting"), alt.Tooltip("x", title=axis_title(x), format=".4g")]
    tips.append(alt.Tooltip("y", title=axis_title(y), format=".4g"))
    dots = base.mark_point(filled=True, size=70, opacity=1).encode(
        x=across, y=up, tooltip=tips, color=alt.condition(brush, alt.value(COLOURS[0]), alt.value("#b5b5b5"))
    )
    rules = base.mark_rule(color=GREY, opacity=0.5)
    wide = rules.encode(x=alt.X("low_x:Q", title=axis_title(x)), x2=alt.X2("high_x:Q"), y=up)
    tall = rules.encode(y=alt.Y("low_y:Q", title=axis_title(y)), y2=alt.Y2("high_y:Q"), x=across)
    words = "A dot is a setting, its lines are 95 % intervals. Drag over dots to tick their settings in the table."
    layers = alt.layer(wide, tall, dots.add_params(brush))
    return Figure("scatter", f"{axis_title(y)} against {axis_title(x)}", layers, words)


def setting_rows(results: "RunResults", x: str, y: str) -> list[SettingRow]:
    """The settings of the scatter plot, the best by the leading metric first."""
    from unbraid.figures.words import estimate

    frame = _pairs(results, x, y).set_index("setting")
    rows = [frame.loc[index] for index in results.ranked if index in frame.index]
    return [
        SettingRow(
            int(row.name),
            row["label"],
            float(row["x"]),
            float(row["y"]),
            (
                estimate(x, row["x"], row["low_x"], row["high_x"]),
                estimate(y, row["y"], row["low_y"], row["high_y"]),
            ),
        )
        for row in rows
    ]


def curve_so_far(results: "RunResults") -> "Figure | None":
    """The first loss term of a run that is not finished; None where nothing is logged yet."""
    from unbraid.figures.scores import curve_figures

    quantities = list(dict.fromkeys(results.curves["quantity"])) if len(results.curves) else []
    first = next((name for name in ("loss", *quantities) if name in quantities), None)
    return next(curve_figures(results, {first: f"So far: {first}"} if first else {}), None)


ROUTES = [Route("/runs/{name}", page), Route("/runs/{name}/sections/{section}", section)]
