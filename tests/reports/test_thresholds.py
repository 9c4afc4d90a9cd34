"""A report draws the line where the metric does."""

import pytest

from unbraid.metrics import recovery, tracking, uniformity
from unbraid.reports import thresholds


def test_the_thresholds_are_those_of_the_metrics():
    assert (thresholds.MEDIUM, thresholds.SHARP) == (uniformity.MEDIUM, uniformity.SHARP)
    assert thresholds.FOUND == recovery.FOUND == tracking.THRESHOLD


@pytest.mark.parametrize("value", [0.0, 0.05, 0.0501, 0.1, 0.1001])
def test_the_seeds_word_is_that_of_the_metric(value: float):
    assert thresholds.classify(value) == uniformity.classify(value)
