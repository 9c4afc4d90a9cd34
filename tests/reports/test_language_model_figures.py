"""What a report of language models shows follows from what is on disk."""

import re
from pathlib import Path

import numpy as np
import pytest

from tests.reports.language_model_runs import FLOOR, LABELS, WORDS, write_language_models
from unbraid.metrics import catalog
from unbraid.reports.canvas import blank
from unbraid.reports.head_maps import LEAST, _name_tokens, draw_map, may_be_seen, text_attention
from unbraid.reports.irrep_figures import _draw, _style_axes, kind_style, kinds
from unbraid.reports.language_model_sentences import details
from unbraid.reports.page import write_report
from unbraid.reports.published_uniformity import reported
from unbraid.reports.run_results import RunResults, read_results
from unbraid.reports.uniformity_tables import head_table, what_heads_do
from unbraid.storage.files import write_json


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> RunResults:
    return read_results(write_language_models(tmp_path_factory.mktemp("language")))


def cells(html: str, row: str) -> list[str]:
    """The cells of a row of a table, tags taken away."""
    (found,) = re.findall(rf'<tr><th scope="row">{re.escape(row)}</th>(.*?)</tr>', html)
    return re.findall(r"<td[^>]*>(.*?)</td>", found)


def test_kinds_of_head_are_drawn_apart_with_their_numbers(section):
    drawn = section("Uniformity of attention by kind of head")
    assert [figure.name for figure in drawn.figures] == ["sharpness-by-irrep", "row-std-by-irrep"]
    assert "kappa 0.25: ℓ0 0.200, ℓ1 0.450, ℓ2 0.700; kappa 0.005: ℓ0 0.200" in drawn.figures[0].alt
    assert "ℓ0 0.0300, ℓ1 0.0400, ℓ2 0.0500" in drawn.figures[1].alt
    assert "at most" not in drawn.caption
    assert "The largest possible row_std is 0.333 at 6 tokens." in drawn.caption
    assert len({kind_style(kind).colour for kind in ("ℓ0", "ℓ1", "ℓ2", "ℓ3", "ℓ5", "softmax")}) == 6


def test_the_floor_and_the_thresholds_are_drawn_where_they_are(results):
    _, axes = blank(results.source)
    ((_, score), *_) = kinds(results.settings[0], "row_std")
    _draw(axes, -0.3, "ℓ0", "row_std", score)
    assert axes.lines[0].get_xdata().tolist() == [FLOOR, FLOOR]
    _style_axes(axes, {-0.3: "ℓ0"}, -0.5, [score], "row_std")
    assert [line.get_xdata()[0] for line in axes.lines[-2:]] == [catalog.MEDIUM, catalog.SHARP]
    assert axes.get_xlim()[1] > FLOOR
    assert [text.get_text() for text in axes.texts] == ["0.0300", "MEDIUM above 0.05", "SHARP above 0.10"]


def test_the_table_has_our_settings_and_under_them_what_the_study_reports(results):
    html = what_heads_do(results)
    assert cells(html, "kappa 0.005")[:6] == ["9.500", "3.100", "0.0667", "0.1234", "0.500", "1.5 of 9"]
    theirs = cells(html, "gauge study, κ .0086")
    assert theirs == ["947", *["–"] * 6, "0.0192", "0.0134", *["–"] * 3]
    assert "κ .00043" not in html
    assert "byte pairs of another vocabulary" in html


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, ["gauge study, κ .43", "gauge study, κ .0086"]),
        ({"values": (0.25, 0.00025)}, ["gauge study, κ .43", "gauge study, κ .00043"]),
        ({"values": (0.25,)}, []),
        ({"changes": {"model": {"temperature": "head"}}}, []),
        ({"labels": LABELS[:-1]}, []),
        ({"labels": ["softmax"] * 19}, []),
        ({"path": "model.alignment", "values": (0.0, 1.0)}, ["its author, λ_β 0", "its author, λ_β 1"]),
    ],
    ids=str,
)
def test_the_figures_of_the_study_stand_beside_what_is_like_them(tmp_path: Path, asked: dict, expected: list[str]):
    assert [one.label for one in reported(read_results(write_language_models(tmp_path, **asked)))] == expected


def test_heads_in_numbers_are_means_over_replicates_with_the_word_of_the_study(results):
    html = head_table(results, results.settings[0])
    assert cells(html, "head 0 (ℓ0)") == ["0.0300", "UNIFORM", "0.1234", "0.100", "2.5", "0.300", "0.200"]
    assert cells(html, "head 1 (ℓ0)")[:2] == ["0.0700", "MEDIUM"]
    assert cells(html, "head 8 (ℓ2)")[3] == "0.900"


def test_what_may_not_be_seen_is_missing_and_what_is_not_seen_is_dark():
    """Three tokens: the second looks at itself alone; later keys are missing, an allowed key with 0 is not."""
    pattern = np.array([[1, 0, 0], [0, 1, 0], [0.5, 0.499, 0.001]])[None, None, None]
    seen = may_be_seen(pattern)[0, 0, 0]
    assert np.isnan(seen).tolist() == [[False, True, True], [False, False, True], [False, False, False]]
    masked = np.array([[1, 0, 0], [1, 0, 0], [0.5, 0.5, 0]])[None, None, None]
    own = np.isnan(may_be_seen(masked)[0, 0, 0])
    assert own.tolist() == [[False, True, True], [False, True, True], [False, False, True]]
    both_ways = np.full((1, 1, 1, 2, 2), 0.5)
    assert not np.isnan(may_be_seen(both_ways)).any()
    _, axes = blank("source")
    draw_map(axes, seen)
    shown = axes.images[0].get_array()
    np.testing.assert_allclose(shown.filled(9), [[0, 9, 9], [LEAST, 0, 9], [np.log10(0.5), np.log10(0.499), -3]])
    assert axes.images[0].get_clim() == (LEAST, 0)


def test_maps_are_of_the_last_layer_with_each_heads_numbers(results, section):
    seen = text_attention(results, results.settings[1])
    assert seen is not None
    assert seen.title(2) == "head 2: ℓ0\nrow_std 0.110, sharpness 0.30"
    every = section("Attention of every head")
    assert [figure.name for figure in every.figures] == ["head-maps-1-kappa-0.25", "head-maps-2-kappa-0.005"]
    assert every.numbers.count("<details>") == 2
    (chosen,) = section("The sharpest and the flattest heads").figures
    assert "kappa 0.25: head 8: ℓ2, row_std 0.110, sharpness 0.90 and head 0: ℓ0, row_std 0.020" in chosen.alt


def test_tokens_that_cannot_be_seen_are_named():
    _, axes = blank("source")
    _name_tokens(axes, WORDS)
    assert [label.get_text() for label in axes.get_xticklabels()] == ["␣", "a", "↵", r"\$", "b", "a"]


def test_a_page_of_language_models_has_no_raw_name_of_a_score(results, sections, tmp_path: Path, monkeypatch):
    monkeypatch.setattr("unbraid.reports.page.draw", lambda results: sections)
    page = write_report([results.run], tmp_path / "page.html").read_text()
    assert not re.findall(r"(?:row_std|sharpness|kl|variance|mean|sharp|medium)_(?:l\d|mean|heads|distance)", page)
    for heading in ("Uniformity of attention by kind of head", "Attention of every head", "Training"):
        assert f">{heading}</h2>" in page
    assert "Sharpness of ℓ2 heads" in page
    names = [figure.name for section in sections for figure in section.figures]
    assert len(names) == len(set(names))


def test_tokens_that_do_not_see_themselves_are_drawn(tmp_path: Path):
    seen = text_attention(found := read_results(write_language_models(tmp_path, masked=True)), found.settings[0])
    assert seen is not None
    assert np.isnan(np.diagonal(seen.patterns[0])).tolist() == [False, *[True] * 5]


def test_better_and_worse_are_described_once_beside_the_first_setting(tmp_path: Path):
    run = write_language_models(tmp_path, values=(0.25, 0.005, 1.0, 2.0))
    scores = run.scores()
    for place, (value, verdict) in enumerate([(-0.5, "lower"), (-0.25, "lower"), (0.125, "higher")], 1):
        bounds = {"value": value, "interval": [value - 0.1, value + 0.1], "pairs": 2, "verdict": verdict}
        scores["differences"].append({"setting": place, "reference": 0, "metric": "perplexity", **bounds})
    write_json(run.path / "scores.json", scores)
    _, better, worse = details(read_results(run))
    assert better == (
        "Perplexity lower than kappa 0.25: kappa 0.005 −0.5000 [−0.6000, −0.4000]; kappa 1 −0.2500 [−0.3500, −0.1500]."
    )
    assert worse == "Perplexity higher than kappa 0.25: kappa 2 +0.1250 [+0.02500, +0.2250]."


def test_predictions_stand_beside_counting_pairs(section):
    (figure,) = section("How well they predict").figures
    assert figure.name == "forest-perplexity"
    assert figure.alt.startswith("Dot plot of Perplexity: kappa 0.25 8.500 ")
    assert figure.alt.endswith("; counting pairs 9.000.")
