"""Verdicts at equal accuracy: settings are compared only where their models answer equally well."""

from unbraid.config import JsonDict
from unbraid.reports import markup
from unbraid.reports.canvas import SIGNS, Section
from unbraid.reports.equality import EQUAL, MARGIN, NO_VERDICT, THE_SAME, equality, is_nothing
from unbraid.reports.markup import Group
from unbraid.reports.run_results import RunResults
from unbraid.reports.words import MISSING, describe_metric, interval, number

COMPARED = ("phi", "phi_share", "probe", "dci_disentanglement", "factors_recovered")


def equal_accuracy(results: RunResults) -> Section:
    """A row a setting after the first; nothing where there is one setting, or nothing was compared."""
    found = {(one["setting"], one["metric"]): one for one in results.differences}
    kept = [metric for metric in COMPARED if any(metric == name for _, name in found)]
    places = [place for place in range(len(results.settings)) if any(place == setting for setting, _ in found)]
    if not kept or not places:
        return Section("", "", [])
    rows = [_row(results, place, found, kept) for place in places]
    head = ("setting", "Accuracy", *(describe_metric(metric).label for metric in kept))
    references = dict.fromkeys(results.settings[one["reference"]].label for one in results.differences)
    alike = ", whichever is alike in all but its case" if len(references) > 1 else ""
    meaning = (
        f"Each setting minus {' or '.join(references)}{alike}, paired by replicate: verdict, mean and 95 % interval. "
        f"Accuracy is equal where the whole interval lies within ±{MARGIN:g}. Only then is there a verdict: a model "
        "that answers worse may have other features for that reason alone. ▲ higher, ▼ lower, ○ undecided: the "
        "interval holds 0, or there are fewer than five pairs."
    )
    table = markup.table("At equal accuracy", head, [Group(rows)], sentences=head[1:], tight=True)
    return Section("At equal accuracy", meaning, [], table)


def _row(results: RunResults, place: int, found: dict[tuple[int, str], JsonDict], metrics: list[str]) -> list[str]:
    accuracy = found.get((place, "accuracy"))
    equal = equality(accuracy)
    cells = [_cell(found.get((place, metric)), equal) for metric in metrics]
    return [results.settings[place].label, f"{equal}: {_by(accuracy)}".removesuffix(f": {MISSING}"), *cells]


def _cell(difference: JsonDict | None, equal: str) -> str:
    if difference is None:
        return MISSING
    if is_nothing(difference):
        return THE_SAME
    said = f"{SIGNS[difference['verdict']]} {difference['verdict']}" if equal == EQUAL else NO_VERDICT
    return f"{said}: {_by(difference)}"


def _by(difference: JsonDict | None) -> str:
    """The mean, and the interval in one piece."""
    if difference is None:
        return MISSING
    metric = difference["metric"]
    bounds = "" if difference["interval"] is None else f" {interval(metric, difference['interval'])}"
    return f"{number(metric, difference['value'], True)}{bounds}".replace(", ", ",\N{NO-BREAK SPACE}")
