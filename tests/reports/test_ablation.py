"""Figures of an ablation: what is drawn at equal L0 is what the closed forms of `ablation_runs.py` say."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure as MatplotlibFigure

from tests.reports import ablation_runs
from tests.reports.ablation_runs import MECHANISMS, NEEDS, SEEDS, WEIGHTS, write_ablation
from unbraid.metrics import absorption as planted_absorption
from unbraid.metrics.intervals import estimate
from unbraid.reports import ablation_step_figures, equal_l0_figures
from unbraid.reports.ablation import Ablation, Case, read_ablation, shared_l0
from unbraid.reports.ablation_step_figures import steps, total_loss, usage
from unbraid.reports.bands import MOST_POINTS, Band
from unbraid.reports.canvas import blank
from unbraid.reports.equal_l0_figures import absorbed, bars, correlations, draw_bar
from unbraid.reports.mechanism_effect_figures import Effect, additions, draw_effect, effects
from unbraid.reports.pareto_figures import distinct, front, highlighted, pareto, points
from unbraid.reports.probing_figures import chosen, probe_line, probing
from unbraid.reports.run_results import RunResults, read_results
from unbraid.reports.sections import SECTIONS
from unbraid.reports.text_sections import all_scores


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> RunResults:
    return read_results(write_ablation(tmp_path_factory.mktemp("ablations") / "ablation", evaluated=True))


@pytest.fixture(scope="module")
def ablation(results: RunResults) -> Ablation:
    found = read_ablation(results)
    assert found is not None
    return found


@pytest.fixture
def unsaved(monkeypatch: pytest.MonkeyPatch) -> list[MatplotlibFigure]:
    """Figures are kept as objects, to be measured; rendering them is what takes time."""
    kept: list[MatplotlibFigure] = []

    def png(figure: MatplotlibFigure) -> bytes:
        kept.append(figure)
        return b""

    for name in ("mechanism_effect", "equal_l0", "pareto", "probing", "ablation_step"):
        monkeypatch.setattr(f"unbraid.reports.{name}_figures.png", png)
    return kept


def test_steps_climb_from_plain_to_all_and_say_what_they_add(ablation: Ablation):
    assert [case.name for case in ablation.steps] == ["plain", *[f"run-{step}" for step in range(1, 9)], "all"]
    assert ablation.step_title(ablation.cases["run-3"]) == "run-3: + dynamic pairs"
    assert ablation.step_title(ablation.cases["all"]) == "all: + reallocation"
    assert ablation.title(ablation.cases["all"]) == "all"
    assert ablation.title(ablation.cases["alone-adaptive_tau"]) == "adaptive tau alone"
    assert ablation.mechanisms == MECHANISMS


def test_a_mechanism_is_held_against_what_has_everything_but_it(ablation: Ablation):
    found = {(one.mechanism, one.where): one for one in ablation.additions()}
    assert len(found) == 2 * len(MECHANISMS)
    assert found["pair_orthogonality", "alone"].ours.name == "run-1"
    assert found["adaptive_tau", "alone"].reference.name == "run-1"
    assert found["adaptive_neighbourhoods", "alone"].reference.name == "alone-lateral_inhibition"
    assert found["adaptive_l1", "alone"].reference.name == "plain"
    assert found["reallocation", "combined"].reference.name == "run-8"
    assert found["pair_orthogonality", "combined"].beside == ["adaptive_tau", "dynamic_pairs"]
    assert found["adaptive_tau", "combined"].beside == []


@pytest.mark.parametrize("metric", ["recovered", "absorption"])
def test_what_a_mechanism_adds_at_equal_l0_is_the_closed_form(ablation: Ablation, metric: str):
    """Scores are straight in log L0 with one slope, so the difference at equal L0 is that of the offsets."""
    found = effects(ablation, metric)
    assert len(found) == 2 * len(MECHANISMS)
    for one in found:
        gone = one.addition.ours.mechanisms - one.addition.reference.mechanisms - {"sparsity"}
        if one.matched:
            each = [ablation_runs.effect(metric, set(gone), seed) for seed in SEEDS]
            assert one.difference.estimate.value == pytest.approx(np.mean(each), abs=1e-12)
            assert one.difference.estimate.interval == pytest.approx(estimate(each).interval, abs=1e-12)
            ends = [
                ablation_runs.l0(case.name, weight, seed)
                for case in (one.addition.ours, one.addition.reference)
                for weight in (0.3, 0.03)
                for seed in SEEDS
            ]
            low, high = np.reshape(ends, (2, 2, -1)).transpose(1, 0, 2).reshape(2, -1)
            assert one.l0 == pytest.approx((low.max(), high.min()))
    apart = [one.addition.mechanism for one in found if not one.matched]
    assert apart == ["lateral_inhibition", "adaptive_neighbourhoods"]


def test_without_an_l0_in_common_the_difference_is_at_equal_strength(ablation: Ablation):
    one = next(one for one in effects(ablation, "recovered") if not one.matched)
    case = "alone-lateral_inhibition"
    each = [
        np.mean(
            [
                ablation_runs.score("recovered", case, w, s) - ablation_runs.score("recovered", "plain", w, s)
                for w in WEIGHTS
            ]
        )
        for s in SEEDS
    ]
    assert one.difference.estimate.value == pytest.approx(np.mean(each), abs=1e-12)


def _effect(ablation: Ablation, matched: bool) -> Effect:
    return next(one for one in effects(ablation, "recovered") if one.matched == matched)


@pytest.mark.parametrize("matched", [True, False])
def test_a_forest_draws_the_interval_and_the_mean_hollow_where_l0_differs(ablation: Ablation, matched: bool):
    one = _effect(ablation, matched)
    _, axes = blank("")
    draw_effect(axes, -2.0, one)
    bar, mark = axes.get_lines()
    assert tuple(bar.get_xdata()) == one.difference.estimate.interval
    assert list(mark.get_xdata()) == [one.difference.estimate.value]
    assert (mark.get_markerfacecolor() != "white") == matched


@pytest.mark.usefixtures("unsaved")
def test_the_forest_has_every_mechanism_and_says_what_is_not_separable(results: RunResults):
    section = additions(results)
    assert [one.name.removeprefix("adds-") for one in section.figures] == [
        *("recovered", "explained_variance", "dead"),
        *("redundancy", "correlation", "absorption"),
        *("probe_1", "probe_5"),
    ]
    mean = np.mean([ablation_runs.effect("recovered", {"dynamic_pairs"}, seed) for seed in SEEDS])
    assert f"dynamic pairs combined +{mean:.3f} [" in section.figures[0].alt
    assert "lateral inhibition alone" in section.figures[0].alt
    assert "not at equal L0" in section.figures[0].alt
    for name, needed in NEEDS.items():
        assert f"{name} alone needs {needed}".replace("_", " ") in section.caption
    assert "Of 144 intervals about 7" in section.caption
    assert section.numbers.count('<th scope="row">') == 144


def test_the_l0_all_is_read_at_is_one_that_most_cases_have(ablation: Ablation):
    cases = list(ablation.cases.values())
    l0 = shared_l0(cases, "absorption", ablation.plain)
    assert l0 is not None

    def holds(case: str, at: float) -> bool:
        return all(
            ablation_runs.l0(case, max(WEIGHTS), s) <= at <= ablation_runs.l0(case, min(WEIGHTS), s) for s in SEEDS
        )

    most = max(sum(holds(case, at) for case in ablation_runs.cases()) for at in np.geomspace(0.05, 20, 2000))
    assert sum(holds(case, l0) for case in ablation_runs.cases()) >= most
    assert holds("plain", l0)


def test_bars_are_the_closed_form_at_that_l0(ablation: Ablation):
    rows = bars(ablation, list(ablation.cases.values()), "absorption", 4.0)
    level, slope, *_ = ablation_runs.LEVELS["absorption"]
    for case, bar in zip(ablation_runs.cases(), rows, strict=True):
        if case == "alone-lateral_inhibition" or case.startswith("published"):
            continue
        own = set() if case.startswith("published") else ablation_runs.cases()[case]
        each = [
            level + slope * math.log(4.0) + ablation_runs.effect("absorption", own, s) + 0.004 * math.cos(s)
            for s in SEEDS
        ]
        assert bar.mean is not None
        assert bar.mean.value == pytest.approx(np.mean(each), abs=1e-12)
        assert bar.mean.interval == pytest.approx(estimate(each).interval, abs=1e-12)
    missing = next(bar for bar in rows if bar.title == "lateral inhibition alone")
    assert missing.mean is None
    assert (missing.chance, missing.ceiling) == (0.001, 0.0)


def test_a_bar_ends_at_the_mean_and_its_interval_and_chance_are_drawn(ablation: Ablation):
    (row,) = bars(ablation, [ablation.plain], "correlation", 4.0)
    assert row.mean is not None
    _, axes = blank("")
    draw_bar(axes, 0.0, row, "black")
    assert axes.patches[0].get_width() == row.mean.value
    interval, chance, ceiling = (list(line.get_xdata()) for line in axes.get_lines())
    assert (tuple(interval), chance, ceiling) == (row.mean.interval, [0.12] * 2, [0.08] * 2)


@pytest.mark.usefixtures("unsaved")
def test_absorption_is_shown_in_groups_with_the_warning(results: RunResults):
    section = absorbed(results)
    assert [one.name for one in section.figures] == [f"absorption-{place}" for place in (1, 2, 3, 4)]
    assert all("plain 0." in one.alt for one in section.figures)
    assert "lateral inhibition alone not on its path" in section.figures[1].alt
    assert equal_l0_figures.WARNING in section.caption
    assert planted_absorption.WARNING == equal_l0_figures.WARNING
    (figure,) = correlations(results).figures
    assert figure.name == "feature_correlations"


def test_a_band_is_the_mean_and_interval_at_points_with_both_ends():
    rng = np.random.default_rng(0)
    x, values = np.arange(1000), rng.normal(size=(5, 1000))
    band = Band.over_seeds(x, values)
    assert len(band.x) == MOST_POINTS
    assert (band.x[0], band.x[-1]) == (0, 999)
    np.testing.assert_allclose(band.mean, values[:, band.x].mean(0))
    assert (band.low[7], band.high[7]) == estimate(values[:, band.x[7]].tolist()).interval


def test_the_loss_is_the_sum_of_its_terms(results: RunResults, ablation: Ablation):
    curve = total_loss(results, ablation.cases["run-4"].middle)
    assert curve is not None
    wanted = [
        [ablation_runs.reconstruction("run-4", step, s) + 0.1 + 0.01 * s for step in ablation_runs.STEPS] for s in SEEDS
    ]
    np.testing.assert_allclose(curve.values, wanted)


def test_usage_is_sorted_rates_and_the_dead_share(results: RunResults, ablation: Ablation):
    band, dead = usage(results, ablation.cases["run-4"].middle)
    amount = [5 + seed % 2 for seed in SEEDS]
    assert dead.value == pytest.approx(np.mean(amount) / ablation_runs.LEARNED)
    rates = results.table(ablation.cases["run-4"].middle, "density")
    assert band.mean[0] == pytest.approx(rates.max(1).mean())
    assert band.mean[-1] == 0
    assert (np.diff(band.mean) <= 0).all()
    assert (band.x[0], band.x[-1]) == (100 / ablation_runs.LEARNED, 100)


def test_small_plots_draw_each_step_beside_plain(results: RunResults, unsaved: list[MatplotlibFigure]):
    section = steps(results)
    assert [one.name for one in section.figures] == ["training_curves", "sparsity_evolution", "feature_usage"]
    _, l0, _ = unsaved
    assert len(l0.axes) == 10
    beside, own, _ = l0.axes[4].get_lines()
    factor = 1 + 20 * math.exp(-ablation_runs.STEPS[-1] / 200)
    for line, case in ((beside, "plain"), (own, "run-4")):
        ends = np.mean([ablation_runs.l0(case, 0.1, seed) * factor for seed in SEEDS])
        assert line.get_ydata()[-1] == pytest.approx(ends)
    assert "(weight 0.1)" in section.caption


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
    results: RunResults, ablation: Ablation, unsaved: list[MatplotlibFigure]
):
    section = pareto(results)
    assert [one.name for one in section.figures] == [
        *("pareto-l0-explained_variance", "pareto-l0-recovered", "pareto-explained_variance-recovered"),
        "pareto-l0-probe_1",
    ]
    assert [case.name for case in highlighted(ablation)][:3] == ["plain", "run-1", "all"]
    lines = [np.array(line.get_xydata()) for line in unsaved[1].axes[0].get_lines()]
    plain = [
        [np.mean([ablation_runs.score(metric, "plain", weight, s) for s in SEEDS]) for metric in ("l0", "recovered")]
        for weight in WEIGHTS
    ]
    assert any(line.shape == (3, 2) and np.allclose(line, plain) for line in lines)
    across, up = points(ablation.plain, "l0", "recovered")[0]
    assert any(tuple(line[:, 0]) == across.interval and np.allclose(line[:, 1], plain[0][1]) for line in lines)
    assert any(tuple(line[:, 1]) == up.interval and np.allclose(line[:, 0], plain[0][0]) for line in lines)


def test_without_a_truth_the_first_mechanism_alone_and_those_that_explain_most_are_highlighted(ablation: Ablation):
    def blind(case: Case) -> Case:
        known = [
            replace(one, scores={name: score for name, score in one.scores.items() if name != "recovered"})
            for one in case.settings
        ]
        return Case(case.name, case.mechanisms, known)

    kept = {name: blind(case) for name, case in ablation.cases.items() if not name.startswith(("run-", "without-"))}
    names = [case.name for case in highlighted(Ablation(kept))]
    assert names[:3] == ["plain", "alone-adaptive_tau", "all"]
    assert len(names) == 5


@pytest.mark.usefixtures("unsaved")
def test_scores_on_a_model_stand_beside_the_others(results: RunResults, ablation: Ablation):
    """Each mechanism adds .004 to every probe, whatever the L0."""
    assert results.settings[0].value("probe_1") == 0.66
    found = {(one.addition.mechanism, one.addition.where): one for one in effects(ablation, "probe_1")}
    assert found["adaptive_tau", "alone"].difference.estimate.value == pytest.approx(0.004)
    assert "adds-probe_1" in [one.name for one in additions(results).figures]
    said = all_scores(results).numbers
    assert "Evaluated on stories15M, blocks.3.hook_resid_post" in said
    assert "A probe on one coordinate of the activations: 0.630." in said
    assert "Letters are &lt;few&gt;." in said


def test_a_case_of_two_names_is_highlighted_once(ablation: Ablation):
    names = [case.name for case in highlighted(ablation)]
    assert len(names) == 5
    again = Case("run-9", ablation.cases["all"].mechanisms, ablation.cases["all"].settings)
    assert [case.name for case in highlighted(Ablation({**ablation.cases, "run-9": again}))] == names
    assert [case.name for case in distinct([again, ablation.cases["all"], ablation.cases["published-all"]])] == [
        *("run-9", "published-all")
    ]


def test_probing_is_drawn_for_a_few_beside_raw_and_random(results: RunResults, unsaved: list[MatplotlibFigure]):
    section = probing(results)
    assert {one["setting"]["mechanisms.sparsity.weight"] for one in chosen(results)} == {0.1}
    assert f"Drawn: {len(chosen(results))} of {len(ablation_runs.cases()) * len(WEIGHTS)} settings" in section.caption
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
    results = read_results(make_run())
    assert read_ablation(results) is None
    for draw_section in (additions, absorbed, correlations, pareto, probing, steps):
        assert not draw_section(results).figures


def test_bars_lines_forests_and_small_plots_are_rendered(
    results: RunResults, ablation: Ablation, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("unbraid.reports.mechanism_effect_figures.SHOWN", ("recovered",))
    drawn = [figure for section in (correlations, probing, additions) for figure in section(results).figures]
    assert len(drawn) == 3
    for figure in (*drawn, ablation_step_figures._l0(results, ablation)):
        assert figure is not None
        assert figure.png.startswith(b"\x89PNG\r\n")


@pytest.mark.usefixtures("unsaved")
def test_an_ablation_of_one_seed_is_drawn_without_intervals(tmp_path: Path):
    results = read_results(write_ablation(tmp_path / "one", seeds=[3]))
    for draw_section in (absorbed, additions, steps):
        drawn = draw_section(results).figures
        assert drawn
        assert not any("[" in figure.alt for figure in drawn)
    assert {absorbed, additions, correlations, pareto, probing, steps} <= set(SECTIONS.values())


def test_the_scale_of_small_plots_holds_all_lines():
    figure, _ = blank("")
    ablation_step_figures._scale(figure, [np.array([0.1, 5.0]), np.array([2.0])])
    assert figure.axes[0].get_yscale() == "log"


def without_ceilings(results: RunResults) -> RunResults:
    settings = [
        replace(one, scores={name: replace(score, ceiling=None) for name, score in one.scores.items()})
        for one in results.settings
    ]
    return replace(results, settings=settings)


@pytest.mark.parametrize("section", [additions, correlations])
def test_axes_speak_of_a_ceiling_only_where_there_is_one(results: RunResults, unsaved: list[MatplotlibFigure], section):
    section(results)
    with_one = [figure.axes[0].get_xlabel() for figure in unsaved]
    unsaved.clear()
    section(without_ceilings(results))
    without = [figure.axes[0].get_xlabel() for figure in unsaved]
    assert any("orrelation" in label and "down to the ceiling" in label for label in with_one)
    assert [label.replace(", down to the ceiling", "") for label in with_one] == without
