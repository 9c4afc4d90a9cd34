"""Rules: each verdict from intervals chosen by hand, and none from few pairs."""

import pytest

from unbraid.metrics.intervals import Estimate
from unbraid.studies.verdicts import Above, Below, Measurement, Rule, Within, combine_verdicts


def measurement(low: float, high: float, pairs: int = 5, zero: float = 0.0) -> Measurement:
    return Measurement(Estimate((low + high) / 2, (low, high)), pairs, None, zero)


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
    assert rule.verdict(measurement(low, high)) == verdict


def test_rules_measure_from_chance():
    assert Above().verdict(measurement(0.20, 0.22, zero=0.19)) == "holds"
    assert Above().verdict(measurement(0.20, 0.22, zero=0.23)) == "fails"
    assert Within(margin=0.02).verdict(measurement(0.18, 0.20, zero=0.19)) == "holds"


def test_four_pairs_decide_nothing_and_one_replicate_has_no_interval():
    assert Above().verdict(measurement(0.1, 0.2, pairs=4)) == "undecided"
    assert Above().verdict(Measurement(Estimate(0.1, None), 9, None)) == "undecided"


def test_the_words_carry_the_numbers():
    assert "above 0.15," in Above(margin=0.15).words
    assert "below 0," in Below().words
    assert "−0.02 to 0.02" in Within(margin=0.02).words


def test_parts_combine_verdicts():
    assert combine_verdicts(["holds", "holds"]) == "holds"
    assert combine_verdicts(["holds", "undecided"]) == "undecided"
    assert combine_verdicts(["undecided", "fails", "holds"]) == "fails"
