"""Numbers with the digits they deserve."""

import pytest

from unbraid.metrics.catalog import METRICS, parts
from unbraid.reports.run_results import Score, Setting
from unbraid.reports.words import describe_metric, describe_metric_of, estimate, in_order, interval, number, seconds


@pytest.mark.parametrize(
    ("metric", "value", "expected"),
    [
        ("mmcs", 0.95349, "0.953"),
        ("mmcs", 1.0, "1.000"),
        ("mmcs", 0.0, "0.000"),
        ("mmcs", -0.25, "−0.250"),
        ("mmcs", 0.00042, "0.0004"),
        ("mmcs", None, "–"),
        ("mmcs", float("nan"), "–"),
        ("l0", 47.359, "47.36"),
        ("dead", 512.0, "512.0"),
        ("reconstruction_error", 0.00013249, "0.000132"),
        ("reconstruction_error", 4.9e-18, "0"),
        ("reconstruction_error", 512.0, "512"),
        ("something_new", 3.14159, "3.142"),
    ],
)
def test_numbers(metric, value, expected):
    assert number(metric, value) == expected


def test_differences_carry_their_sign():
    assert number("mmcs", 0.25, signed=True) == "+0.250"
    assert number("mmcs", -0.0, signed=True) == "0.000"
    assert number("l0", 5e-5, signed=True) == "+5e−05"
    assert interval("mmcs", (-0.1, 0.2), signed=True) == "[−0.100, +0.200]"


def test_an_interval_that_is_not_there():
    assert interval("mmcs", None) == "–"
    assert estimate("mmcs", Score(0.5, None, None, None, [0.5])) == "0.500"
    assert estimate("mmcs", Score(0.5, (0.4, 0.6), None, None, [0.4, 0.6])) == "0.500 [0.400, 0.600]"


def test_an_unknown_metric_comes_after_those_of_the_catalog():
    assert in_order(["novel", "f1", "mmcs"]) == ["mmcs", "f1", "novel"]
    assert all(record.sentence and record.direction for record in METRICS.values())


def test_durations():
    assert [seconds(value) for value in (4.81, 71.6, 7322.0)] == ["4.8 s", "1 min 12 s", "2 h 2 min"]


def having(ceiling: float | None) -> Setting:
    names = [name for name in METRICS if name != "training_l0"]  # which has none of its own
    scores = {name: Score(1.0, None, None, ceiling, [1.0]) for name in names}
    return Setting(0, "", [], [], {**scores, "training_l0": Score(1.0, None, None, None, [1.0])})


@pytest.mark.parametrize("metric", METRICS)
def test_a_ceiling_and_a_truth_are_spoken_of_only_where_there_is_one(metric):
    found = describe_metric_of(metric, [having(None)])
    for text in (found.sentence, found.direction):
        assert "ceiling" not in text
        assert "truth has" not in text
        assert "truly fires" not in text
    assert describe_metric_of(metric, [having(None), having(0.5)]) == METRICS[metric]
    assert (found.label, found.format) == (METRICS[metric].label, METRICS[metric].format)


def test_which_way_is_better_with_a_ceiling_and_without():
    assert describe_metric_of("correlation", [having(0.5)]).direction == "lower is better, down to the ceiling"
    assert describe_metric_of("correlation", [having(None)]).direction == "lower is better"
    assert describe_metric_of("training_l0", [having(3.0)]).direction == "nearest what truly fires is best"
    assert describe_metric_of("training_l0", []).direction == "lower is sparser"


def test_scores_by_kind_of_head_have_labels_and_stand_after_that_of_all():
    assert describe_metric("sharpness_l12").label == "Sharpness of ℓ12 heads"
    assert describe_metric("row_std_softmax").label == "row_std of softmax heads"
    assert "uniform attention" in describe_metric("row_std_l0").sentence
    assert number("row_std_l0", 0.018712) == "0.0187"
    assert parts("row_std") == ("row_std", "")
    assert describe_metric("sharpnesses").label == "sharpnesses"
    scores = ["seconds", "sharpness_l0", "sharpness_l1", "novel", "row_std_l0", "sharpness", "perplexity", "row_std"]
    assert in_order(scores) == [
        *("perplexity", "row_std", "row_std_l0", "sharpness", "sharpness_l0", "sharpness_l1"),
        *("seconds", "novel"),
    ]
