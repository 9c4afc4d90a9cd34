"""Whether the models of two settings answer equally well: only then is a difference in other scores a verdict."""

from collections.abc import Sequence

from unbraid.config import JsonDict
from unbraid.metrics.catalog import METRICS

MARGIN = METRICS["accuracy"].least_difference or 0.0
EQUAL, UNEQUAL, OPEN, UNKNOWN = "equal", "differs", "not known to be equal", "not known"
NO_VERDICT, THE_SAME = "no verdict", "the same"


def equality(difference: JsonDict | None) -> str:
    """Equal where the whole interval of a difference in accuracy lies within the margin."""
    if difference is None or difference["interval"] is None or None in difference["interval"]:
        return UNKNOWN
    low, high = difference["interval"]
    if low >= -MARGIN and high <= MARGIN:
        return EQUAL
    return UNEQUAL if low > 0 or high < 0 else OPEN


def is_nothing(difference: JsonDict) -> bool:
    """Whether two settings are the same for certain, or in all there is of them."""
    return difference["value"] == 0 and difference["interval"] in ([0, 0], None)


def is_decided_by_accuracy(leading: str, differences: Sequence[JsonDict]) -> bool:
    """Whether something else than accuracy leads, and settings stand on models whose accuracies are compared too."""
    return leading != "accuracy" and any(difference["metric"] == "accuracy" for difference in differences)


def at_equal_accuracy(differences: Sequence[JsonDict]) -> list[JsonDict]:
    """The same differences, without verdicts where models are not known to answer equally well."""
    equal = {one["setting"] for one in differences if one["metric"] == "accuracy" and equality(one) == EQUAL}
    return [{**one, "verdict": _verdict(one, one["setting"] in equal)} for one in differences]


def _verdict(difference: JsonDict, equal: bool) -> str:
    if is_nothing(difference):
        return THE_SAME
    return difference["verdict"] if equal or difference["metric"] == "accuracy" else NO_VERDICT
