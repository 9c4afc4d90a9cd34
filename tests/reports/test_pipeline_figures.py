"""The figures of a pipeline show what is on disk."""

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure as MatplotlibFigure

from tests.reports.pipeline_runs import CASES, CONCEPTS, FEATURES, LUCK, write_pipeline
from unbraid.metrics.matching import verdicts
from unbraid.reports import matching_figures, matching_words
from unbraid.reports.factor_figures import disentangled, recoveries
from unbraid.reports.matching_figures import COLOURS, bars, concept_matching
from unbraid.reports.run_results import RunResults, read_results
from unbraid.reports.sections import draw


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> RunResults:
    return read_results(write_pipeline(tmp_path_factory.mktemp("lines")))


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[MatplotlibFigure]:
    """Kept instead of being drawn."""
    kept: list[MatplotlibFigure] = []
    for module in ("matching", "factor", "column"):
        monkeypatch.setattr(f"unbraid.reports.{module}_figures.png", lambda figure: kept.append(figure) or b"")
    return kept


def test_a_pipeline_has_few_sections_and_phi_leads(results):
    found = [section for section in draw(results) if section.figures or section.heading == "Feature cards"]
    names = [[figure.name for figure in section.figures] for section in found]
    assert names[:3] == [
        ["pipeline-phi", "pipeline-accuracy", "phi-factors"],
        ["matching-factors", "matching-features"],
        ["disentanglement"],
    ]
    assert found[3].heading == "Feature cards"
    assert all(figure.png[:4] == b"\x89PNG" for section in found for figure in section.figures)
    assert sum(map(len, names)) <= 10


def test_recovery_stands_between_chance_and_probe(results, figures):
    section = recoveries(results)
    assert "topk 0.600 [0.590, 0.610]; kmeans 0.300" in section.figures[0].alt
    ticks = [line.get_xdata()[0] for line in figures[0].axes[0].lines if line.get_color() == "#767676"]
    assert ticks == pytest.approx([0.1, 0.9] * 3)
    assert "“place of …” is the mean of place of mary, place of john." in section.caption


def test_every_group_of_factors_has_a_column(results, figures):
    figure = recoveries(results).figures[-1]
    axes = figures[-1].axes
    assert [one.get_title(loc="left") for one in axes] == ["person", "place", "place of …"]
    assert [label.get_text() for label in axes[0].get_yticklabels()] == ["l1", "topk", "kmeans"]
    assert [text.get_text() for text in axes[2].texts] == [".200", ".300", ".000"]
    assert "place of …: l1 0.200" in figure.alt
    assert figure.wide


def test_models_that_are_the_same_have_one_row(results, figures, tmp_path):
    assert "all settings: the same models 0.800 [0.790, 0.810]." in recoveries(results).figures[1].alt
    apart = read_results(write_pipeline(tmp_path, accuracy={"topk": 0.7}))
    assert "l1 0.800 [0.790, 0.810]; topk 0.700" in recoveries(apart).figures[1].alt


def test_bars_add_to_a_hundred_per_cent_in_the_order_of_the_rules(results, figures):
    concept_matching(results)
    for figure, shares, amount in zip(figures, (CONCEPTS, FEATURES), (4, 4), strict=True):
        found = figure.axes[0].patches
        widths = [patch.get_width() for patch in found]
        assert len(widths) == amount * len(shares)
        for start in range(0, len(widths), len(shares)):
            assert sum(widths[start : start + len(shares)]) == pytest.approx(1)
            ends = [patch.get_x() + patch.get_width() for patch in found[start : start + len(shares)]]
            assert [patch.get_x() for patch in found[start : start + len(shares)]] == pytest.approx([0, *ends[:-1]])
        assert widths[: len(shares)] == pytest.approx(list(shares.values()))
        assert [to_hex(patch.get_facecolor()) for patch in found[: len(shares)]] == [
            COLOURS[verdict].lower() for verdict in shares
        ]


def test_chance_is_one_bar_where_it_is_the_same_for_all(results):
    words = matching_words.CONCEPTS
    drawn = bars(results.settings, "factors", words)
    assert [label for label, _, _ in drawn] == ["l1", "topk", "kmeans", "chance, of every setting"]
    assert drawn[-1][1] == LUCK
    other = results.settings[2].scores
    lucky = {**other, "factors_missed": _with_chance(other["factors_missed"], 0.5)}
    lucky["factors_merged"] = _with_chance(other["factors_merged"], 0.5)
    changed = [*results.settings[:2], _with_scores(results.settings[2], lucky)]
    assert [label for label, _, _ in bars(changed, "factors", words)] == [
        "l1",
        "chance",
        "topk",
        "chance",
        "kmeans",
        "chance",
    ]


def _with_chance(score, chance):
    return type(score)(**{**vars(score), "chance": chance})


def _with_scores(setting, scores):
    return type(setting)(**{**vars(setting), "scores": scores})


def test_the_verdicts_are_those_of_the_metric():
    assert tuple(matching_words.CONCEPTS) == verdicts.CONCEPTS
    assert tuple(matching_words.FEATURES) == verdicts.FEATURES
    assert set(matching_figures.COLOURS) == {*verdicts.CONCEPTS, *verdicts.FEATURES}


def test_disentanglement_has_a_column_a_score_that_is_there(results, figures):
    section = disentangled(results)
    assert [axes.get_title(loc="left") for axes in figures[0].axes] == ["DCI\ndisentanglement", "MIG"]
    assert "l1 0.350 [0.340, 0.360]" in section.figures[0].alt
    assert "MIG" in section.numbers


def test_other_runs_have_none_of_these(make_run):
    found = read_results(make_run())
    assert [section(found).figures for section in (recoveries, concept_matching, disentangled)] == [[], [], []]
    assert not any("concept" in section.heading for section in draw(found))


def test_a_pipeline_of_very_many_settings_is_drawn_in_part(tmp_path, figures):
    cases = {f"case {place}": CASES["l1"] for place in range(30)}
    found = read_results(write_pipeline(tmp_path, cases=cases, seeds=[0]))
    assert "Drawn: 8 of the 30 settings, spread evenly from the best φ" in recoveries(found).caption
    assert len(figures[-1].axes[0].get_yticklabels()) == 8
