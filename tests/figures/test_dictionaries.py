"""Figures of dictionary runs: no section fails, Vega-Lite draws each chart, and charts hold the run's own numbers."""

import json

import numpy as np
import pytest
import vl_convert

from unbraid.figures import SECTIONS
from unbraid.metrics.catalog import CONCEPT_FATES

RUNS = ("superposition", "mechanisms", "baselines", "embedding")


def section(results, name):
    """A section that this run must have."""
    drawn = SECTIONS[name](results)
    assert drawn is not None
    return drawn


def rows(figure):
    """All rows of data that a chart holds."""
    return [row for data in figure.spec["datasets"].values() for row in data]


def drawn_across(figure):
    """The columns that the layers of a chart draw along x."""

    def fields(node):
        yield node.get("encoding", {}).get("x", {}).get("field")
        for layer in node.get("layer", []):
            yield from fields(layer)

    return set(fields(figure.spec))


@pytest.mark.parametrize("name", RUNS)
def test_every_section_is_drawn_or_empty_and_vega_lite_accepts_it(small_run, name):
    drawn = [part for draw in SECTIONS.values() if (part := draw(small_run(name))) is not None]
    assert {"score_figures", "all_scores"} <= {part.name for part in drawn}
    for part in drawn:
        for figure in part.figures:
            assert vl_convert.vegalite_to_svg(figure.spec).startswith("<svg"), figure.name
            assert figure.title


def test_score_figures_hold_value_interval_chance_and_ceiling_of_scores_json(small_run):
    results = small_run("superposition")
    cards = json.loads((results.run.path / "scores.json").read_text())["settings"]
    figure = next(one for one in section(results, "score_figures").figures if one.name == "scores-mmcs")
    assert {"chance", "ceiling", "low", "value"} <= drawn_across(figure)
    held = {number for row in rows(figure) for number in row.values() if isinstance(number, float)}
    for card in cards:
        score = card["metrics"]["mmcs"]
        for number in (score["value"], *score["interval"], score["chance"], score["ceiling"]):
            assert np.isclose(sorted(held), number, rtol=1e-3).any(), (card["label"], number)


def test_table_of_all_scores_has_every_setting_and_metric(small_run):
    results = small_run("superposition")
    cards = json.loads((results.run.path / "scores.json").read_text())["settings"]
    known = sum(score["value"] is not None for card in cards for score in card["metrics"].values())
    assert len(section(results, "all_scores").tables[-1].rows) == known


def test_shares_of_fates_are_counts_over_concepts(small_run):
    results = small_run("superposition")
    (figure,) = section(results, "concept_fates").figures
    shares = {(row["label"], row["what"]): row["share"] for row in rows(figure) if "share" in row}
    for label, places in results.members.groupby("label"):
        members = zip(places["stack"], places["member"], strict=True)
        fates = np.concatenate([results.arrays(stack)["fate"][member] for stack, member in members])
        for number, fate in enumerate(CONCEPT_FATES):
            assert shares.get((label, fate), 0.0) == pytest.approx((fates == number).mean(), abs=1e-3)
