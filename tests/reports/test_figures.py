"""Figures: what is drawn is what was measured."""

from dataclasses import replace

import numpy as np
import pytest

from unbraid.reports.canvas import COLOURS, DASHES, MARKERS, blank, make_log, setting_style, shared
from unbraid.reports.feature_figures import _draw_blocks, cosines, firing_rates
from unbraid.reports.recovery_figures import _Recovery, recovery
from unbraid.reports.run_results import Score, read_results
from unbraid.reports.score_figures import row_key, scores
from unbraid.reports.training_figures import _draw, curves


@pytest.fixture
def results(make_run):
    return read_results(make_run())


@pytest.mark.parametrize(
    ("sections", "changes"),
    [
        ((cosines, firing_rates), {"learned": 4}),
        ((cosines, firing_rates), {"learned": 40}),
        ((cosines,), {"true": 150, "learned": 300}),
        ((firing_rates,), {"dead": 12}),
        ((recovery, firing_rates), {"equal_rates": True}),
        ((curves,), {"steps": (10,)}),
        ((scores, recovery, cosines, firing_rates), {"weights": (1.0,), "seeds": (0,), "true": 1, "learned": 1}),
        ((curves, recovery), {"world_seeds": (0, 1), "name": "dollars $_ and 字"}),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_odd_shapes_are_drawn(make_run, sections, changes):
    results = read_results(make_run(**changes))
    for section in (draw_section(results) for draw_section in sections):
        assert len(section.caption) > 80
        assert all(figure.png.startswith(b"\x89PNG\r\n") for figure in section.figures)


def test_a_caption_says_when_settings_are_left_out(make_run):
    results = read_results(make_run(weights=tuple(range(1, 13)), seeds=(0,)))
    assert "Drawn: 8 of the 12 settings" in firing_rates(results).caption
    section = recovery(results)
    assert len(section.figures) == 4
    assert "Drawn: 4 of the 12 settings" in section.caption


def test_what_was_not_found_is_described_in_the_figure(make_run):
    (figure,) = firing_rates(read_results(make_run(dead=5))).figures
    assert "weight 0.05: 5 dead of 12" in figure.alt


def test_a_figure_drawn_twice_has_the_same_bytes(results):
    assert firing_rates(results) == firing_rates(results)


def test_a_block_shows_its_largest_cosine(results):
    _, axes = blank(results.source)
    table = np.zeros((3, 5))
    table[2, 4], table[0, 1] = 0.9, -0.5
    image = _draw_blocks(axes, table, 2, 2).get_array()
    assert np.array_equal(image, [[0, 0, 0], [0, 0, 0.9]])
    assert (axes.get_xlim(), axes.get_ylim()) == ((0.5, 5.5), (3.5, 0.5))


def test_curves_draw_every_member_thin_and_their_mean_bold(results):
    _, axes = blank(results.source)
    setting = results.settings[1]
    curve = results.curve(setting, "l0")
    _draw(axes, setting_style(results, setting), setting.label, curve)
    *thin, bold = axes.get_lines()
    assert [line.get_ydata()[0] for line in thin] == [11, 12, 13]
    assert bold.get_ydata().tolist() == [12] * 4
    assert bold.get_linewidth() > 2 * thin[0].get_linewidth()


def _arrays(results):
    setting = results.settings[0]
    return results.probabilities(setting), results.table(setting, "best_cosine")


def test_recovery_is_ordered_by_firing_probability_or_ranked_where_all_are_equal(make_run):
    results = read_results(make_run(weights=(0.1,)))
    found = _Recovery.of(*_arrays(results))
    assert (np.diff(found.x) > 0).all()
    assert np.array_equal(found.cosines, results.table(results.settings[0], "best_cosine")[:, ::-1])
    results = read_results(make_run(name="equal", weights=(0.1,), equal_rates=True))
    found = _Recovery.of(*_arrays(results))
    assert found.ranked
    assert (np.diff(found.cosines.mean(0)) <= 0).all()


def test_styles_tell_settings_apart_by_colour_dashes_and_marker_alone(make_run):
    results = read_results(make_run(weights=tuple(range(1, 9)), seeds=(0,)))
    styles = [setting_style(results, setting) for setting in results.settings]
    for part in ("colour", "dashes", "marker"):
        assert len({getattr(one, part) for one in styles}) == 8
    assert len(COLOURS) == len(DASHES) == len(MARKERS) == 8


def test_chance_that_differs_between_settings_is_drawn_as_a_range(results):
    assert shared(results.settings, "mmcs", "chance") == [(0.189, "chance")]
    first, second = results.settings
    low = {"mmcs": first.scores["mmcs"], "l0": first.scores["l0"]}
    other = type(second)(1, second.label, second.places, second.replicates, {"mmcs": second.scores["recovered"]})
    changed = type(first)(0, first.label, first.places, first.replicates, low)
    assert shared([changed, other], "mmcs", "chance") == [(0.0, "lowest chance"), (0.189, "highest chance")]
    assert shared(results.settings, "l0", "chance") == []


@pytest.mark.parametrize(("low", "high"), [(1e-8, 1.0), (0.002, 0.03), (0.03, 0.04)])
def test_ticks_of_a_log_scale_are_plain_numbers_and_few(results, low, high):
    figure, axes = blank(results.source)
    make_log(axes, "x", low, high)
    figure.canvas.draw()
    labels = [tick.get_text() for tick in axes.get_xticklabels()]
    shown = [label for label, place in zip(labels, axes.get_xticks(), strict=True) if low <= place <= high]
    assert 1 <= len(shown) <= 9
    assert all(float(label) > 0 for label in shown)


def test_a_ceiling_is_in_the_key_and_in_the_heading_only_where_there_is_one(results):
    bounded, free = (Score(0.5, None, 0.1, ceiling, [0.5]) for ceiling in (1.0, None))
    assert [mark.get_label() for mark in row_key([free, bounded])][-2:] == ["chance", "ceiling"]
    assert [mark.get_label() for mark in row_key([free])][-1] == "chance"
    assert scores(results).heading == "Scores against chance and ceiling"
    assert "oracle" in scores(results).caption
    free = [replace(one, scores={"mmcs": replace(one.scores["mmcs"], ceiling=None)}) for one in results.settings]
    unbounded = replace(results, settings=free, tables=[{}])
    assert scores(unbounded).heading == "Scores against chance"
    assert "no ceiling" in scores(unbounded).caption
