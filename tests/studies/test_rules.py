"""Rules: each verdict from intervals chosen by hand, and none from few pairs."""

import pytest

from unbraid.statistics import Estimate
from unbraid.studies.rules import Above, Below, Measured, Rule, Within, together


def measured(low: float, high: float, pairs: int = 5, zero: float = 0.0) -> Measured:
    return Measured(Estimate((low + high) / 2, (low, high)), pairs, None, zero)


@pytest.mark.parametrize(
    ("rule", "low", "high", "verdict"),
    [
        (Above(), 0.1, 0.2, "holds"),
        (Above(), -0.2, -0.1, "fails"),
        (Above(), -0.1, 0.1, "undecided"),
        (Above(), 0.0, 0.1, "undecided"),
        (Above(), 0.0, 0.0, "fails"),
        (Above(margin=0.15), 0.1, 0.2, "undecided"),
        (Below(), -0.2, -0.1, "holds"),
        (Below(), 0.1, 0.2, "fails"),
        (Below(), -0.1, 0.1, "undecided"),
        (Below(), 0.0, 0.0, "fails"),
        (Within(margin=0.2), -0.1, 0.2, "holds"),
        (Within(margin=0.2), 0.21, 0.4, "fails"),
        (Within(margin=0.2), -0.4, -0.21, "fails"),
        (Within(margin=0.2), 0.1, 0.3, "undecided"),
    ],
)
def test_an_interval_is_read(rule: Rule, low: float, high: float, verdict: str):
    assert rule.verdict(measured(low, high)) == verdict


def test_rules_measure_from_chance():
    assert Above().verdict(measured(0.20, 0.22, zero=0.19)) == "holds"
    assert Above().verdict(measured(0.20, 0.22, zero=0.23)) == "fails"
    assert Within(margin=0.02).verdict(measured(0.18, 0.20, zero=0.19)) == "holds"


def test_four_pairs_decide_nothing_and_one_replicate_has_no_interval():
    assert Above().verdict(measured(0.1, 0.2, pairs=4)) == "undecided"
    assert Above().verdict(Measured(Estimate(0.1, None), 9, None)) == "undecided"


def test_the_words_carry_the_numbers():
    assert "above 0.15," in Above(margin=0.15).words
    assert "below 0," in Below().words
    assert "−0.02 to 0.02" in Within(margin=0.02).words


def test_parts_together():
    assert together(["holds", "holds"]) == "holds"
    assert together(["holds", "undecided"]) == "undecided"
    assert together(["undecided", "fails", "holds"]) == "fails"
