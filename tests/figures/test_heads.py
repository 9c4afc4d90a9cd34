"""Figures of heads hold the numbers of the run's own files, and Vega-Lite draws them."""

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
import vl_convert

from tests.pipeline.running import run_config
from unbraid.figures import draw_section
from unbraid.results import RunResults

CONFIGS = Path(__file__).parents[1] / "regression" / "configs"


@pytest.fixture(scope="session")
def routes(tmp_path_factory: pytest.TempPathFactory) -> RunResults:
    config = tomllib.loads((CONFIGS / "routes.toml").read_text())
    config["cases"] = {name: config["cases"][name] for name in ("softmax", "routed")}
    return RunResults(run_config(tmp_path_factory.mktemp("figures"), "routes", config))


def figures(results: RunResults, name: str) -> list:
    section = draw_section(results, name)
    assert section is not None
    for figure in section.figures:
        assert vl_convert.vegalite_to_svg(figure.spec).startswith("<svg")
    return list(section.figures)


def test_first_head_is_head_0_of_the_last_layer_with_one_questions_facts(routes):
    figure = figures(routes, "first_heads")[0]
    pattern = routes.arrays(0)["pattern.0"][0, -1, 0]
    example = routes.notes(0, "stories")["members"]["0"][0]
    [cells] = figure.spec["datasets"].values()
    assert len(cells) == (pattern > 0).sum()
    for cell in cells:
        query, key = (int(cell[side].partition(" ")[0]) for side in ("down", "across"))
        assert cell["value"] == pytest.approx(float(pattern[query, key]), abs=6e-5)
    assert len({cell["down"] for cell in cells if "★" in cell["down"]}) == len(example["support"][0])
    assert len(json.dumps(figure.spec)) < 60_000


def test_gallery_has_every_layer_and_head(routes):
    figure = figures(routes, "all_heads")[0]
    tables = figure.spec["datasets"].values()
    assert [len(rows) for rows in tables if "url" in rows[0]] == [2 * 4]


def test_gradient_is_the_share_of_it_that_goes_through_attention(routes):
    (figure,) = figures(routes, "gradient_through_attention")
    (rows,) = figure.spec["datasets"].values()
    shares = [row["value"] for row in rows if row["label"] == "softmax" and row["when"] == "trained"]
    places = routes.members[routes.members["label"] == "softmax"]
    tables = [routes.arrays(row.stack)["gradient_share"][row.member] for row in places.itertuples()]
    np.testing.assert_allclose(shares, np.mean(tables, 0), atol=6e-5)


def test_dependence_before_training_is_the_largest_pair_of_the_last_layer(routes):
    figure = figures(routes, "head_dependence")[0]
    what = "the same model before training"
    shown = [row[what] for rows in figure.spec["datasets"].values() for row in rows if what in row]
    places = routes.members[routes.members["label"] == "softmax"]
    tables = [routes.arrays(row.stack)["dependence_untrained"][row.member, -1] for row in places.itertuples()]
    largest = [max(table[i, j] for i in range(4) for j in range(4) if i != j) for table in tables]
    assert shown[0] == pytest.approx(np.mean(largest), abs=1e-4)


def test_usage_of_heads_is_that_of_the_tables(routes):
    figure = figures(routes, "routing")[0]
    (rows,) = figure.spec["datasets"].values()
    expected = routes.heads["usage"].dropna()
    np.testing.assert_allclose(sorted(row["usage"] for row in rows), sorted(expected), atol=6e-5)
