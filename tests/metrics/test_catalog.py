"""The catalog holds every metric that a run of any kind writes, and says what is needed of each."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from unbraid.evaluation.causal import SCORES
from unbraid.metrics import catalog
from unbraid.metrics.catalog import METRICS, find, get, parts
from unbraid.metrics.matching.thresholds import DEFAULT
from unbraid.pipeline.kinds import DEFAULT_KIND, KINDS

ROOT = Path(__file__).parents[2]
REGRESSION = ROOT / "tests" / "regression"
RUNS = json.loads((REGRESSION / "scores.json").read_text())
RENAMED = json.loads((REGRESSION / "renamed.json").read_text())["metrics"]
ELSEWHERE = {
    "mean_change": "with tracking, where something is learned at two checks",
    "stability": "with several seeds; newer",
    "stable": "with several seeds; newer",
    "stability_codes": "with several seeds; newer",
    "stability_rank": "with several seeds on a planted world; newer",
    "stable_true": "with several seeds on a planted world; newer",
    "unlearned_average": "with tracking; newer",
    "unlearned_same_entry": "with tracking; newer",
    "learned_gain": "with tracking; newer",
    "unlearned_gain": "with tracking; newer",
    "steps_to_95": "where a model gets there",
    "capped_steps_to_95": "since it was added",
    "reached_95": "since it was added",
    "untrained_separation": "since it was added",
    "zeros": "of every dictionary and baseline",
    "mean_correlation": "the same",
    "selected_pair_cosine": "with pair_orthogonality",
    "edge_auroc": "on a planted map",
    "edge_f1": "on a planted map",
    "shared_auroc": "on a planted pair",
    "shared_accuracy": "on a planted pair",
    "seconds": "a time, which the regression runs leave out",
    "letter_absorption": "with letters",
    "letter_absorption_fraction": "with letters",
    "letter_splits": "with letters",
    "gradient_peak": "of models on text",
    **dict.fromkeys(
        [
            "tensor_share",
            "text_sharpness",
            "text_sharpness_<kind>",
            "smallest_sharp_text",
            "smallest_sharp_measured",
            "mean_distance_<kind>",
            "untrained_mean_distance",
            "untrained_mean_distance_<kind>",
            "mean_deviation",
            "mean_deviation_<kind>",
            "untrained_mean_deviation",
            "untrained_mean_deviation_<kind>",
            "transport_effect",
            "transport_effect_<kind>",
        ],
        "of gauge models on text",
    ),
    "mcc": "on a planted world: theirs is `matched_cosine` today",
    **dict.fromkeys([name for name in METRICS if METRICS[name].section == "SynthSAEBench"], "on a world of kind synth"),
    "head_dependence": "of models on stories",
    "head_dependence_nonlinear": "of models on stories",
    "layer_cka": "of models on stories",
    "head_rank": "of models on stories",
    "attention_gradient": "of models on stories",
    "attention_gradient_left": "of models on stories",
    **dict.fromkeys([*SCORES, *(f"{name}_<factor>" for name in SCORES), "spliced_accuracy"], "with evaluation.pairs"),
}
"""Metrics that none of the small regression runs writes, and when a run does. A new metric is added here: the scores of
those runs are of before."""


def written(run: str) -> set[str]:
    """The metrics that one of the regression runs writes, by their names of today.

    `tests/regression` holds that today's code writes these and no others, for every kind of run.
    """
    tables = [RUNS[run][name] for name in ("scores", "judged") if name in RUNS[run]]
    names = {name for table in tables for setting in table["settings"] for name in setting["metrics"]}
    return {RENAMED.get(name, name) for name in names}


@pytest.mark.parametrize("run", RUNS)
def test_every_metric_that_a_run_writes_is_in_the_catalog(run: str):
    assert {name for name in written(run) if find(name) is None} == set()


def test_every_record_is_of_a_metric_that_some_run_writes():
    by_runs = {parts(name)[0] for run in RUNS for name in written(run)}
    assert set(METRICS) - by_runs == set(ELSEWHERE)


def test_the_regression_runs_are_of_every_kind():
    configs = [tomllib.loads(path.read_text()) for path in (REGRESSION / "configs").glob("*.toml")]
    regression = {config.get("kind", DEFAULT_KIND) for config in configs}
    assert regression >= {"dictionaries", "models", "language_models", "pipeline", "embedding"}
    assert regression <= set(KINDS)


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS.keys())
def test_every_record_is_whole(metric: catalog.Metric):
    for text in (metric.label, metric.unit, metric.sentence, metric.chance, metric.ceiling, metric.direction):
        assert text.strip() == text != ""
    assert catalog.NO_REFERENCE not in (metric.chance, metric.ceiling)
    assert metric.sentence[-1] != "."  # it stands inside others
    assert metric.why_none if metric.least_difference is None else metric.least_difference > 0 and metric.least_reason
    assert format(0.5, metric.format)
    assert f"\n#### `{metric.name}`\n" in catalog.page()
    anchor = metric.link.partition("#")[2]
    assert anchor == re.sub(r"[^\w-]", "", metric.name)


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS.keys())
def test_no_word_in_capitals_is_left_unexplained(metric: catalog.Metric):
    assert not {metric.chance, metric.ceiling, metric.why_none} & {"", *catalog.REFERENCES}
    assert not any(text.isupper() for text in (metric.chance, metric.ceiling, metric.why_none))


def test_the_page_in_the_docs_is_the_one_that_is_printed():
    assert (ROOT / "docs" / "metrics.md").read_text() == catalog.page()


def test_a_reason_for_no_number_is_in_parentheses():
    entry = catalog.page().split("#### `seconds`\n")[1]
    assert "Chance: none (a time). Ceiling: none (a time)." in " ".join(entry.split())


def test_the_page_has_no_placeholder_left_and_no_line_that_is_too_long():
    assert "{{" not in catalog.page()
    assert max(len(line) for line in catalog.page().splitlines() if not line.startswith("|")) <= 104


def test_one_of_a_family_has_the_record_of_the_family_with_its_own_name():
    assert get("phi_place_of_mary").label == "φ of place of mary"
    assert get("phi_k_features_place").label == "φ of place by k features"
    assert get("sharpness_l2").label == "Sharpness of ℓ2 heads"
    assert get("probe_5").sentence.startswith("accuracy of a probe on 5 features")
    assert parts("probe_5") == ("probe_<k>", "5")
    assert parts("phi_share") == ("phi_share", "")
    assert (get("phi_place").compared, get("phi").compared) == (False, True)


def test_what_is_not_known_is_refused_by_name():
    assert find("novel") is None
    assert find("phi_") is None
    with pytest.raises(KeyError, match="novel is not in the metric catalog"):
        get("novel")


def test_the_words_of_the_gauge_study_are_thresholds_of_row_std():
    assert [catalog.classify_row_std(value) for value in (0.05, 0.0501, 0.1, 0.1001)] == [
        *("UNIFORM", "MEDIUM", "MEDIUM", "SHARP")
    ]


def test_thresholds_in_words_are_those_in_use():
    assert f"at least {catalog.FOUND}" in METRICS["recovered"].sentence
    assert f"at least {catalog.FOUND} with" in METRICS["found"].sentence
    assert f"at least {catalog.FOUND}," in METRICS["stable"].sentence
    assert f"at least {catalog.FOUND} with" in METRICS["stable_true"].sentence
    assert f"above {catalog.SHARP:.2f}" in METRICS["sharp_heads"].sentence
    assert f"above {catalog.MEDIUM:.2f}" in METRICS["medium_heads"].sentence
    assert f"φ ≥ {DEFAULT.good_phi}" in METRICS["factors_recovered"].sentence
