"""Figures of a line: how well planted factors are recovered, overall and factor by factor, and how far they are apart."""

from unbraid.reports.canvas import Picture, Plate, blank, key, left_out, name_axes, png
from unbraid.reports.column_figures import Column, draw_columns, line_look, rows_of
from unbraid.reports.factors import TRACKED, factor_scores, groups
from unbraid.reports.findings import Findings, finite
from unbraid.reports.score_figures import draw_row, name_row, row_key
from unbraid.reports.words import estimate, wording

APART = ("dci_disentanglement", "dci_completeness", "dci_informativeness", "mig", "sap", "modularity")
MARKS = (
    "Small dots: one per replicate. Large marker: their mean, with its 95 % interval as a bar (often narrower than the "
    "marker). "
)


def recoveries(findings: Findings) -> Plate:
    """Overall with names and numbers, then a column for every group of factors."""
    shown = rows_of(findings) if findings.is_line else []
    if not any("recovery" in setting.scores for setting in shown):
        return Plate("", "", [])
    by_factor = {setting.index: factor_scores(setting) for setting in shown}
    columns = [
        Column(group, "recovery", {place: found[group] for place, found in by_factor.items() if group in found})
        for group in groups(findings)
    ]
    tracked = [group.removesuffix("…").removesuffix(TRACKED) for group in groups(findings) if group.endswith("…")]
    means = "".join(f" The factors {kind}{TRACKED}one or the other are shown as their mean." for kind in tracked)
    caption = (
        f"Each row is a setting. {MARKS}Dashed tick: chance, a random dictionary of the same size. Solid tick: the "
        "ceiling, a linear probe on the same activations. φ is the Matthews correlation of a concept with the one "
        f"feature that tells it best, mean over the values of a factor; it has no unit, and 1 is perfect.{means}"
        f"{left_out(findings, shown)}"
    )
    pictures = [_overall(findings)]
    if columns:
        pictures.append(draw_columns(findings, "recovery-factors", "Recovery by factor", columns, "recovery (φ)"))
    return Plate("How well planted factors are recovered", caption, pictures)


def _overall(findings: Findings) -> Picture:
    rows = [(setting, setting.scores["recovery"]) for setting in rows_of(findings) if "recovery" in setting.scores]
    figure, axes = blank(findings.source, height=1.75 + 0.46 * len(rows))
    for place, (setting, score) in enumerate(rows):
        name_row(axes, -float(place), setting.label, estimate("recovery", score))
        draw_row(axes, -float(place), line_look(setting), score)
    lowest = min((value for _, score in rows for value in finite(score.members)), default=0.0)
    axes.set(xlim=(min(-0.02, lowest * 1.1), 1.03), ylim=(0.6 - len(rows), 0.65), yticks=[])
    axes.spines["left"].set_visible(False)
    name_axes(axes, "Recovery, all factors", "φ of the best feature (higher is better)", "")
    key(figure, row_key([score for _, score in rows]))
    told = "; ".join(f"{setting.label} {estimate('recovery', score)}" for setting, score in rows)
    return Picture("recovery", png(figure), f"Dot plot of recovery: {told}.")


def disentangled(findings: Findings) -> Plate:
    """A column for each score of disentanglement."""
    shown = rows_of(findings) if findings.is_line else []
    columns = [
        Column(wording(metric).heading.replace(" ", "\n"), metric, found)
        for metric in APART
        if (found := {one.index: one.scores[metric] for one in shown if metric in one.scores})
    ]
    caption = (
        f"Each row is a setting. {MARKS}Dashed tick: chance, the same code with the factors' rows shuffled; it is far "
        "from 0 for some scores, so read each against its own. MIG and SAP are near 0 wherever a factor has several "
        f"good features, as in any dictionary with one for each value. Scores have no unit.{left_out(findings, shown)}"
    )
    pictures = [draw_columns(findings, "disentanglement", "Disentanglement", columns, "score")] if columns else []
    return Plate("How far features tell factors apart", caption, pictures)
