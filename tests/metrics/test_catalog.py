"""The catalog holds every metric that a run of any kind writes, and says what is needed of each."""

import re
import tomllib
from pathlib import Path

import pytest
from unbraid.runs import Run
from unbraid.sweeps.execute import execute
from unbraid.sweeps.grid import resolve

from tests.metrics.cataloguing import check_catalogued
from tests.sweeps import test_pair_stability, test_text_work
from unbraid.config import Tree, to_toml
from unbraid.metrics import catalog
from unbraid.metrics.catalog import METRICS, find, get, parts
from unbraid.metrics.matching.thresholds import DEFAULT
from unbraid.progress import Silent

TEXT = tomllib.loads(test_text_work.CONFIG)
GAUGE = {"model": {"kind": "gauge", "irreps": "2x0e + 1x1e", "layers": 1}, "teaching": {"steps": 2, "batch": 4}}
RUNS: dict[str, Tree] = {
    "dictionaries with selected pairs": test_pair_stability.TINY,
    "gauge models on text": {**TEXT, **GAUGE, "cases": {}, "sweep": {}},
}


@pytest.mark.parametrize("config", RUNS.values(), ids=RUNS.keys())
def test_every_metric_that_a_run_writes_is_in_the_catalog(config: Tree, tmp_path: Path):
    """For other kinds of run the same is held where they are tested: `check_catalogued`."""
    run = Run.create(tmp_path, "small", to_toml(resolve(config, "small")))
    execute(run, Silent())
    check_catalogued(run)


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS.keys())
def test_every_record_is_whole(metric: catalog.Metric):
    assert metric.label
    assert metric.unit
    assert metric.sentence[-1] != "."  # it stands inside others
    assert metric.least_difference is None or metric.least_difference > 0
    assert format(0.5, metric.format)
    assert f"\n#### `{metric.name}`\n" in catalog.page()
    anchor = metric.link.partition("#")[2]
    assert anchor == re.sub(r"[^\w-]", "", metric.name)


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
    assert f"above {catalog.SHARP:.2f}" in METRICS["sharp_heads"].sentence
    assert f"above {catalog.MEDIUM:.2f}" in METRICS["medium_heads"].sentence
    assert f"φ ≥ {DEFAULT.good_phi}" in METRICS["factors_recovered"].sentence
