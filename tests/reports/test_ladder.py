"""A ladder's figures: what is drawn at equal L0 is what the closed forms of `ladders.py` say."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from tests.reports import ladders
from tests.reports.ladders import MECHANISMS, NEEDS, SEEDS, WEIGHTS, write_ladder
from unbraid.metrics import absorption as planted_absorption
from unbraid.metrics.intervals import estimate
from unbraid.reports import equal_l0_figures, figures, rung_figures
from unbraid.reports.addition_figures import Effect, additions, draw_effect, effects
from unbraid.reports.bands import MOST_POINTS, Band
from unbraid.reports.canvas import blank
from unbraid.reports.equal_l0_figures import absorbed, bars, correlations, draw_bar
from unbraid.reports.findings import Findings, read_findings
from unbraid.reports.ladder import Case, Ladder, read_ladder, shared_l0
from unbraid.reports.pareto_figures import distinct, front, highlighted, pareto, points
from unbraid.reports.probing_figures import chosen, probe_line, probing
from unbraid.reports.rung_figures import rungs, total_loss, usage
from unbraid.reports.sections import scored


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    return read_findings(write_ladder(tmp_path_factory.mktemp("ladders") / "ladder", judged=True))


@pytest.fixture(scope="module")
def ladder(findings: Findings) -> Ladder:
    found = read_ladder(findings)
    assert found is not None
    return found


@pytest.fixture
def unsaved(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Figures are kept as objects, to be measured; rendering them is what takes time."""
    kept: list[Figure] = []

    def png(figure: Figure) -> bytes:
        kept.append(figure)
        return b""

    for name in ("addition", "equal_l0", "pareto", "probing", "rung"):
        monkeypatch.setattr(f"unbraid.reports.{name}_figures.png", png)
    return kept


def test_rungs_climb_from_plain_to_all_and_say_what_they_add(ladder: Ladder):
    assert [case.name for case in ladder.rungs] == ["plain", *[f"run-{rung}" for rung in range(1, 9)], "all"]
    assert ladder.rung_title(ladder.cases["run-3"]) == "run-3: + dynamic pairs"
    assert ladder.rung_title(ladder.cases["all"]) == "all: + reallocation"
    assert ladder.title(ladder.cases["all"]) == "all"
    assert ladder.title(ladder.cases["alone-adaptive_tau"]) == "adaptive tau alone"
    assert ladder.mechanisms == MECHANISMS


def test_a_mechanism_is_held_against_what_has_everything_but_it(ladder: Ladder):
    found = {(one.mechanism, one.where): one for one in ladder.additions()}
    assert len(found) == 2 * len(MECHANISMS)
    assert found["pair_orthogonality", "alone"].ours.name == "run-1"
    assert found["adaptive_tau", "alone"].reference.name == "run-1"
    assert found["adaptive_neighbourhoods", "alone"].reference.name == "alone-lateral_inhibition"
    assert found["adaptive_l1", "alone"].reference.name == "plain"
    assert found["reallocation", "in company"].reference.name == "run-8"
    assert found["pair_orthogonality", "in company"].beside == ["adaptive_tau", "dynamic_pairs"]
    assert found["adaptive_tau", "in company"].beside == []


@pytest.mark.parametrize("metric", ["recovered", "absorption"])
def test_what_a_mechanism_adds_at_equal_l0_is_the_closed_form(ladder: Ladder, metric: str):
    """Scores are straight in log L0 with one slope, so the difference at equal L0 is that of the offsets."""
    found = effects(ladder, metric)
    assert len(found) == 2 * len(MECHANISMS)
    for one in found:
        gone = one.addition.ours.mechanisms - one.addition.reference.mechanisms - {"sparsity"}
        if one.matched:
            each = [ladders.effect(metric, set(gone), seed) for seed in SEEDS]
            assert one.difference.estimate.value == pytest.approx(np.mean(each), abs=1e-12)
            assert one.difference.estimate.interval == pytest.approx(estimate(each).interval, abs=1e-12)
            ends = [
                ladders.l0(case.name, weight, seed)
                for case in (one.addition.ours, one.addition.reference)
                for weight in (0.3, 0.03)
                for seed in SEEDS
            ]
            low, high = np.reshape(ends, (2, 2, -1)).transpose(1, 0, 2).reshape(2, -1)
            assert one.l0 == pytest.approx((low.max(), high.min()))
    apart = [one.addition.mechanism for one in found if not one.matched]
    assert apart == ["lateral_inhibition", "adaptive_neighbourhoods"]


def test_without_an_l0_in_common_the_difference_is_at_equal_strength(ladder: Ladder):
    one = next(one for one in effects(ladder, "recovered") if not one.matched)
    case = "alone-lateral_inhibition"
    each = [
        np.mean([ladders.score("recovered", case, w, s) - ladders.score("recovered", "plain", w, s) for w in WEIGHTS])
        for s in SEEDS
    ]
    assert one.difference.estimate.value == pytest.approx(np.mean(each), abs=1e-12)


def _effect(ladder: Ladder, matched: bool) -> Effect:
    return next(one for one in effects(ladder, "recovered") if one.matched == matched)


@pytest.mark.parametrize("matched", [True, False])
def test_a_forest_draws_the_interval_and_the_mean_hollow_where_l0_differs(ladder: Ladder, matched: bool):
    one = _effect(ladder, matched)
    _, axes = blank("")
    draw_effect(axes, -2.0, one)
    bar, mark = axes.get_lines()
    assert tuple(bar.get_xdata()) == one.difference.estimate.interval
    assert list(mark.get_xdata()) == [one.difference.estimate.value]
    assert (mark.get_markerfacecolor() != "white") == matched


@pytest.mark.usefixtures("unsaved")
def test_the_forest_tells_every_mechanism_and_what_cannot_be_had_apart(findings: Findings):
    plate = additions(findings)
    assert [one.name.removeprefix("adds-") for one in plate.pictures] == [
        *("recovered", "explained_variance", "dead"),
        *("redundancy", "correlation", "absorption"),
        *("probe_1", "probe_5"),
    ]
    mean = np.mean([ladders.effect("recovered", {"dynamic_pairs"}, seed) for seed in SEEDS])
    assert f"dynamic pairs in company +{mean:.3f} [" in plate.pictures[0].alt
    assert "lateral inhibition alone" in plate.pictures[0].alt
    assert "not at equal L0" in plate.pictures[0].alt
    for name, needed in NEEDS.items():
        assert f"{name} alone stands on {needed}".replace("_", " ") in plate.caption
    assert "Of 144 intervals about 7" in plate.caption
    assert plate.numbers.count('<th scope="row">') == 144


def test_the_l0_all_is_read_at_is_one_that_most_cases_have(ladder: Ladder):
    cases = list(ladder.cases.values())
    l0 = shared_l0(cases, "absorption", ladder.plain)
    assert l0 is not None

    def holds(case: str, at: float) -> bool:
        return all(ladders.l0(case, max(WEIGHTS), s) <= at <= ladders.l0(case, min(WEIGHTS), s) for s in SEEDS)

    most = max(sum(holds(case, at) for case in ladders.cases()) for at in np.geomspace(0.05, 20, 2000))
    assert sum(holds(case, l0) for case in ladders.cases()) >= most
    assert holds("plain", l0)


def test_bars_are_the_closed_form_at_that_l0(ladder: Ladder):
    rows = bars(ladder, list(ladder.cases.values()), "absorption", 4.0)
    level, slope, *_ = ladders.LEVELS["absorption"]
    for case, bar in zip(ladders.cases(), rows, strict=True):
        if case == "alone-lateral_inhibition" or case.startswith("published"):
            continue
        own = set() if case.startswith("published") else ladders.cases()[case]
        each = [
            level + slope * math.log(4.0) + ladders.effect("absorption", own, s) + 0.004 * math.cos(s) for s in SEEDS
        ]
        assert bar.mean is not None
        assert bar.mean.value == pytest.approx(np.mean(each), abs=1e-12)
        assert bar.mean.interval == pytest.approx(estimate(each).interval, abs=1e-12)
    missing = next(bar for bar in rows if bar.title == "lateral inhibition alone")
    assert missing.mean is None
    assert (missing.chance, missing.ceiling) == (0.001, 0.0)


def test_a_bar_ends_at_the_mean_and_its_interval_and_chance_are_drawn(ladder: Ladder):
    (row,) = bars(ladder, [ladder.plain], "correlation", 4.0)
    assert row.mean is not None
    _, axes = blank("")
    draw_bar(axes, 0.0, row, "black")
    assert axes.patches[0].get_width() == row.mean.value
    interval, chance, ceiling = (list(line.get_xdata()) for line in axes.get_lines())
    assert (tuple(interval), chance, ceiling) == (row.mean.interval, [0.12] * 2, [0.08] * 2)


@pytest.mark.usefixtures("unsaved")
def test_absorption_is_shown_in_groups_with_the_warning(findings: Findings):
    plate = absorbed(findings)
    assert [one.name for one in plate.pictures] == [f"absorption-{place}" for place in (1, 2, 3, 4)]
    assert all("plain 0." in one.alt for one in plate.pictures)
    assert "lateral inhibition alone not on its path" in plate.pictures[1].alt
    assert equal_l0_figures.WARNING in plate.caption
    assert planted_absorption.WARNING == equal_l0_figures.WARNING
    (picture,) = correlations(findings).pictures
    assert picture.name == "feature_correlations"


def test_a_band_is_the_mean_and_interval_at_points_with_both_ends():
    rng = np.random.default_rng(0)
    x, values = np.arange(1000), rng.normal(size=(5, 1000))
    band = Band.over_seeds(x, values)
    assert len(band.x) == MOST_POINTS
    assert (band.x[0], band.x[-1]) == (0, 999)
    np.testing.assert_allclose(band.mean, values[:, band.x].mean(0))
    assert (band.low[7], band.high[7]) == estimate(values[:, band.x[7]].tolist()).interval


def test_the_loss_is_the_sum_of_its_terms(findings: Findings, ladder: Ladder):
    curve = total_loss(findings, ladder.cases["run-4"].middle)
    assert curve is not None
    wanted = [[ladders.reconstruction("run-4", step, s) + 0.1 + 0.01 * s for step in ladders.STEPS] for s in SEEDS]
    np.testing.assert_allclose(curve.values, wanted)


def test_usage_is_sorted_rates_and_the_dead_share(findings: Findings, ladder: Ladder):
    band, dead = usage(findings, ladder.cases["run-4"].middle)
    amount = [5 + seed % 2 for seed in SEEDS]
    assert dead.value == pytest.approx(np.mean(amount) / ladders.LEARNED)
    rates = findings.table(ladder.cases["run-4"].middle, "density")
    assert band.mean[0] == pytest.approx(rates.max(1).mean())
    assert band.mean[-1] == 0
    assert (np.diff(band.mean) <= 0).all()
    assert (band.x[0], band.x[-1]) == (100 / ladders.LEARNED, 100)


def test_small_plots_draw_each_rung_beside_plain(findings: Findings, unsaved: list[Figure]):
    plate = rungs(findings)
    assert [one.name for one in plate.pictures] == ["training_curves", "sparsity_evolution", "feature_usage"]
    _, l0, _ = unsaved
    assert len(l0.axes) == 10
    beside, own, _ = l0.axes[4].get_lines()
    factor = 1 + 20 * math.exp(-ladders.STEPS[-1] / 200)
    for line, case in ((beside, "plain"), (own, "run-4")):
        ends = np.mean([ladders.l0(case, 0.1, seed) * factor for seed in SEEDS])
        assert line.get_ydata()[-1] == pytest.approx(ends)
    assert "(weight 0.1)" in plate.caption


def test_the_front_is_what_nothing_beats():
    rng = np.random.default_rng(1)
    found = [tuple(point) for point in rng.uniform(size=(60, 2)).tolist()]
    for lower in (True, False):
        sign = -1 if lower else 1

        def beats(a: tuple[float, float], b: tuple[float, float], sign: int = sign) -> bool:
            return sign * a[0] >= sign * b[0] and a[1] >= b[1] and a != b

        wanted = sorted(point for point in found if not any(beats(other, point) for other in found))
        assert front(found, lower) == wanted


def test_paths_are_drawn_with_intervals_where_they_are_measured(
    findings: Findings, ladder: Ladder, unsaved: list[Figure]
):
    plate = pareto(findings)
    assert [one.name for one in plate.pictures] == [
        *("pareto-l0-explained_variance", "pareto-l0-recovered", "pareto-explained_variance-recovered"),
        "pareto-l0-probe_1",
    ]
    assert [case.name for case in highlighted(ladder)][:3] == ["plain", "run-1", "all"]
    lines = [np.array(line.get_xydata()) for line in unsaved[1].axes[0].get_lines()]
    plain = [
        [np.mean([ladders.score(metric, "plain", weight, s) for s in SEEDS]) for metric in ("l0", "recovered")]
        for weight in WEIGHTS
    ]
    assert any(line.shape == (3, 2) and np.allclose(line, plain) for line in lines)
    across, up = points(ladder.plain, "l0", "recovered")[0]
    assert any(tuple(line[:, 0]) == across.interval and np.allclose(line[:, 1], plain[0][1]) for line in lines)
    assert any(tuple(line[:, 1]) == up.interval and np.allclose(line[:, 0], plain[0][0]) for line in lines)


def test_without_a_truth_the_first_mechanism_alone_and_those_that_explain_most_are_highlighted(ladder: Ladder):
    def blind(case: Case) -> Case:
        known = [
            replace(one, scores={name: score for name, score in one.scores.items() if name != "recovered"})
            for one in case.settings
        ]
        return Case(case.name, case.mechanisms, known)

    kept = {name: blind(case) for name, case in ladder.cases.items() if not name.startswith(("run-", "without-"))}
    names = [case.name for case in highlighted(Ladder(kept))]
    assert names[:3] == ["plain", "alone-adaptive_tau", "all"]
    assert len(names) == 5


@pytest.mark.usefixtures("unsaved")
def test_scores_on_a_model_stand_beside_the_others(findings: Findings, ladder: Ladder):
    """Each mechanism adds .004 to every probe, whatever the L0."""
    assert findings.settings[0].value("probe_1") == 0.66
    found = {(one.addition.mechanism, one.addition.where): one for one in effects(ladder, "probe_1")}
    assert found["adaptive_tau", "alone"].difference.estimate.value == pytest.approx(0.004)
    assert "adds-probe_1" in [one.name for one in additions(findings).pictures]
    said = scored(findings)
    assert "Evaluated on stories15M, blocks.3.hook_resid_post" in said
    assert "one coordinate of the activations themselves has 0.630" in said
    assert "Letters are &lt;few&gt;." in said


def test_a_case_of_two_names_is_highlighted_once(ladder: Ladder):
    names = [case.name for case in highlighted(ladder)]
    assert len(names) == 5
    again = Case("run-9", ladder.cases["all"].mechanisms, ladder.cases["all"].settings)
    assert [case.name for case in highlighted(Ladder({**ladder.cases, "run-9": again}))] == names
    assert [case.name for case in distinct([again, ladder.cases["all"], ladder.cases["published-all"]])] == [
        *("run-9", "published-all")
    ]


def test_probing_is_drawn_for_a_few_beside_raw_and_random(findings: Findings, unsaved: list[Figure]):
    plate = probing(findings)
    assert {one["setting"]["mechanisms.sparsity.weight"] for one in chosen(findings)} == {0.1}
    assert f"Drawn: {len(chosen(findings))} of {len(ladders.cases()) * len(WEIGHTS)} settings" in plate.caption
    labels = {str(text.get_text()) for text in unsaved[0].legends[0].get_texts()}
    assert {"plain, weight 0.1", "raw activations", "random dictionary", "knows nothing"} <= labels
    heights = [list(line.get_ydata()) for line in unsaved[0].axes[0].get_lines()]
    values = [0.66, 0.71, 0.77, 0.82, 0.85, 0.9, 0.93]
    for below in (0.0, 0.03, 0.08):
        assert any(len(each) == 7 and np.allclose(each, np.subtract(values, below)) for each in heights)
    assert [tick.get_text() for tick in unsaved[0].axes[0].get_xticklabels()] == [
        "1",
        "2",
        "5",
        "10",
        "20",
        "50",
        "all",
    ]


def test_a_single_replicate_has_the_error_of_the_texts():
    line = probe_line({"probe_5": {"value": 0.8, "interval": None, "error": 0.01}, "l0": {"value": 3.0}})
    assert line.values == {"5": 0.8}
    assert line.intervals["5"] == pytest.approx((0.7804, 0.8196))


def test_a_run_without_cases_has_none_of_these(make_run):
    findings = read_findings(make_run())
    assert read_ladder(findings) is None
    for draw_plate in (additions, absorbed, correlations, pareto, probing, rungs):
        assert not draw_plate(findings).pictures


def test_bars_lines_forests_and_small_plots_are_rendered(
    findings: Findings, ladder: Ladder, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("unbraid.reports.addition_figures.SHOWN", ("recovered",))
    drawn = [picture for plate in (correlations, probing, additions) for picture in plate(findings).pictures]
    assert len(drawn) == 3
    for picture in (*drawn, rung_figures._l0(findings, ladder)):
        assert picture is not None
        assert picture.png.startswith(b"\x89PNG\r\n")


@pytest.mark.usefixtures("unsaved")
def test_a_ladder_of_one_seed_is_drawn_without_intervals(tmp_path: Path):
    findings = read_findings(write_ladder(tmp_path / "one", seeds=[3]))
    for draw_plate in (absorbed, additions, rungs):
        drawn = draw_plate(findings).pictures
        assert drawn
        assert not any("[" in picture.alt for picture in drawn)
    assert {absorbed, additions, correlations, pareto, probing, rungs} <= set(figures.PLATES)


def test_the_scale_of_small_plots_holds_all_lines():
    figure, _ = blank("")
    rung_figures._scale(figure, [np.array([0.1, 5.0]), np.array([2.0])])
    assert figure.axes[0].get_yscale() == "log"


def without_ceilings(findings: Findings) -> Findings:
    settings = [
        replace(one, scores={name: replace(score, ceiling=None) for name, score in one.scores.items()})
        for one in findings.settings
    ]
    return replace(findings, settings=settings)


@pytest.mark.parametrize("plate", [additions, correlations])
def test_axes_speak_of_a_ceiling_only_where_there_is_one(findings: Findings, unsaved: list[Figure], plate):
    plate(findings)
    with_one = [figure.axes[0].get_xlabel() for figure in unsaved]
    unsaved.clear()
    plate(without_ceilings(findings))
    without = [figure.axes[0].get_xlabel() for figure in unsaved]
    assert any("orrelation" in label and "down to the ceiling" in label for label in with_one)
    assert [label.replace(", down to the ceiling", "") for label in with_one] == without
