"""Whether the models of two settings answer equally well: only then is a difference in other scores a verdict."""

from collections.abc import Sequence

from unbraid.config import Tree

MARGIN = 0.02
EQUAL, UNEQUAL, OPEN, UNKNOWN = "equal", "differs", "not known to be equal", "not known"
NO_VERDICT = "no verdict"


def equality(difference: Tree | None) -> str:
    """Equal where the whole interval of a difference in accuracy lies within the margin."""
    if difference is None or difference["interval"] is None or None in difference["interval"]:
        return UNKNOWN
    low, high = difference["interval"]
    if low >= -MARGIN and high <= MARGIN:
        return EQUAL
    return UNEQUAL if low > 0 or high < 0 else OPEN


def at_equal_accuracy(differences: Sequence[Tree]) -> list[Tree]:
    """The differences of a line without verdicts where models are not known to answer equally well."""
    equal = {one["setting"] for one in differences if one["metric"] == "accuracy" and equality(one) == EQUAL}
    return [
        one if one["metric"] == "accuracy" or one["setting"] in equal else {**one, "verdict": NO_VERDICT}
        for one in differences
    ]
