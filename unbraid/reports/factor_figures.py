"""Figures of a pipeline: how well planted factors are recovered, overall and by factor, and disentanglement."""

from unbraid.reports import markup
from unbraid.reports.canvas import Figure, Section, blank, index_style, key, left_out, name_axes, png
from unbraid.reports.column_figures import Column, Words, draw_columns, rows_of
from unbraid.reports.factors import factor_scores, members
from unbraid.reports.pipeline_sentences import same_models
from unbraid.reports.run_results import RunResults, finite
from unbraid.reports.score_figures import draw_row, name_row, row_key
from unbraid.reports.score_tables import score_table
from unbraid.reports.words import describe_metric, estimate

APART = ("dci_disentanglement", "dci_completeness", "dci_informativeness", "mig", "sap", "modularity")
PHI = Words("φ of the best feature (higher is better)", "chance: random dictionary", "ceiling: linear probe")
ANSWERS = Words("share of right answers (higher is better)", "chance: a shortcut")
SHUFFLED = Words("score (higher is better)", "chance: factors shuffled")
MARKS = (
    "Small dots: one per replicate. Large marker: their mean, with its 95 % interval as a bar (often narrower than the "
    "marker). "
)


def recoveries(results: RunResults) -> Section:
    """Overall with names and numbers, then a column for every group of factors."""
    shown = rows_of(results)
    if not any("phi" in setting.scores for setting in shown):
        return Section("", "", [])
    by_factor = {setting.index: factor_scores(setting) for setting in shown}
    columns = [
        Column(group, "phi", {place: found[group] for place, found in by_factor.items() if group in found})
        for group in members(results)
    ]
    tracked = {group: each for group, each in members(results).items() if len(each) > 1}
    means = "".join(f" “{group}” is the mean of {', '.join(each)}." for group, each in tracked.items())
    caption = (
        f"Each row is a setting. {MARKS}Dashed tick: chance, for φ a random dictionary of the same size, for "
        "accuracy the best of a few shortcuts that do not read the question. Solid tick: the ceiling, for φ "
        "a linear probe on the same activations. φ is the Matthews correlation of a concept with the "
        f"feature that predicts it best, mean over the values of a factor; it has no unit, and 1 is perfect.{means}"
        f"{left_out(results, shown)}"
    )
    figures = [_forest(results, "phi", "φ, all factors", PHI)]
    if any("accuracy" in setting.scores for setting in shown):
        figures.append(_forest(results, "accuracy", "Accuracy of the models behind it", ANSWERS))
    if columns:
        figures.append(draw_columns(results, "phi-factors", "φ by factor", columns, PHI))
    return Section("How well planted factors are recovered", caption, figures)


def _forest(results: RunResults, metric: str, title: str, words: Words) -> Figure:
    """A row a setting, with its name and numbers."""
    rows = [(one.label, one, one.scores[metric]) for one in rows_of(results) if metric in one.scores]
    if metric == "accuracy" and len(rows) > 1 and same_models(results):
        rows = [("all settings: the same models", *rows[0][1:])]
    figure, axes = blank(results.source, height=1.9 + 0.46 * len(rows))
    for place, (name, setting, score) in enumerate(rows):
        name_row(axes, -float(place), name, estimate(metric, score))
        draw_row(axes, -float(place), index_style(results, setting), score)
    lowest = min((value for *_, score in rows for value in finite(score.members)), default=0.0)
    axes.set(xlim=(min(-0.02, lowest * 1.1), 1.03), ylim=(0.6 - len(rows), 0.65), yticks=[])
    axes.spines["left"].set_visible(False)
    name_axes(axes, title, words.unit, "")
    key(figure, row_key([score for *_, score in rows], words.chance, words.ceiling))
    described = "; ".join(f"{name} {estimate(metric, score)}" for name, _, score in rows)
    return Figure(f"pipeline-{metric}", png(figure), f"Dot plot, {title.lower()}: {described}.")


def disentangled(results: RunResults) -> Section:
    """A column for each score of disentanglement."""
    shown = rows_of(results)
    columns = [
        Column(describe_metric(metric).label.replace(" ", "\n"), metric, found)
        for metric in APART
        if (found := {one.index: one.scores[metric] for one in shown if metric in one.scores})
    ]
    caption = (
        f"Each row is a setting. {MARKS}Dashed tick: chance, the same code with the factors' rows shuffled; it is far "
        "from 0 for some scores, so read each against its own. MIG and SAP are near 0 wherever a factor has several "
        f"good features, as in any dictionary with one for each value. Scores have no unit.{left_out(results, shown)}"
    )
    figures = [draw_columns(results, "disentanglement", "Disentanglement", columns, SHUFFLED)] if columns else []
    table = markup.fold("These scores with their intervals and chance", score_table(shown, APART)) if columns else ""
    return Section("Disentanglement", caption, figures, table)
