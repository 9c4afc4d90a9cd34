"""Measures on results written by hand, where every value can be worked out on paper."""

import math
from typing import Any

import pytest

from unbraid.errors import UserError
from unbraid.studies.measures import Cell, Contrast, Difference, EqualL0, Level, Matched, Nearer, Panels, Relative
from unbraid.studies.results import Results
from unbraid.studies.verdicts import NOTHING, Above

CONFIG = {"world": {"n_features": 8}, "dictionary": {"d_sae": 8}}


def summary(setting: dict[str, Any], replicates: str = "abcde", chance: float | None = None, **metrics: list[float]):
    return {
        "label": str(setting),
        "setting": setting,
        "members": [{"stack": 0, "member": i, "seed": i, "replicate": name} for i, name in enumerate(replicates)],
        "metrics": {name: {"chance": chance, "ceiling": 2.5, "members": values} for name, values in metrics.items()},
    }


def results(*summaries: dict[str, Any]) -> Results:
    return Results(list(summaries), CONFIG)


FIVE = [1.0, 2.0, 3.0, 4.0, 5.0]


def test_a_level_stands_on_its_chance():
    measurement = Level(metric="mmcs", of={"weight": 1}).measure(results(summary({"weight": 1}, chance=2.5, mmcs=FIVE)))
    assert (measurement.estimate.value, measurement.chance, measurement.zero, measurement.pairs) == (3.0, 2.5, 2.5, 5)


def test_a_difference_is_paired_by_replicate_not_by_place():
    one, other = summary({"weight": 1}, mmcs=FIVE), summary({"weight": 2}, "edcba", mmcs=[4.9, 3.9, 2.9, 1.9, 0.9])
    measurement = Difference(metric="mmcs", of={"weight": 1}, minus={"weight": 2}).measure(results(one, other))
    assert measurement.estimate.interval == pytest.approx((0.1, 0.1))
    assert measurement.values == pytest.approx((0.1,) * 5)


def test_the_chance_of_a_difference_is_the_difference_of_chances():
    summaries = summary({"weight": 1}, chance=0.3, mmcs=FIVE), summary({"weight": 2}, chance=0.1, mmcs=FIVE)
    measurement = Difference(metric="mmcs", of={"weight": 1}, minus={"weight": 2}).measure(results(*summaries))
    assert measurement.chance == pytest.approx(0.2)


def test_a_relative_difference_is_a_share_of_the_other():
    one, other = (
        summary({"weight": 1}, mmcs=[90.0, 180.0, 45.0, 9.0, 18.0]),
        summary({"weight": 2}, mmcs=[100.0, 200.0, 50.0, 10.0, 20.0]),
    )
    measurement = Relative(metric="mmcs", of={"weight": 1}, minus={"weight": 2}).measure(results(one, other))
    assert measurement.estimate.interval == pytest.approx((-0.1, -0.1))
    assert (measurement.pairs, measurement.chance) == (5, None)


def test_a_contrast_is_one_difference_less_another_in_the_same_replicate():
    summaries = (
        summary({"case": "a", "task": 1}, mmcs=FIVE),
        summary({"case": "b", "task": 1}, mmcs=[0.0, 1.0, 1.0, 4.0, 5.0]),
        summary({"case": "a", "task": 2}, "edcba", mmcs=[1.0, 0.0, 2.0, 2.0, 1.0]),
        summary({"case": "b", "task": 2}, mmcs=[0.0] * 5),
    )
    a, b = {"case": "a"}, {"case": "b"}
    measurement = Contrast(
        metric="mmcs", of={**a, "task": 1}, minus={**b, "task": 1}, than={**a, "task": 2}, than_minus={**b, "task": 2}
    ).measure(results(*summaries))
    assert measurement.estimate.value == pytest.approx(((1 - 1) + (1 - 2) + (2 - 2) + (0 - 0) + (0 - 1)) / 5)
    assert measurement.pairs == 5


def test_a_contrast_is_the_interaction_what_all_four_share_drops_out():
    """A constraint costs .3 at the small size and .1 at the large one; sizes and replicates differ by more."""
    luck = [0.5, -0.2, 0.0, 0.4, -0.3]
    accuracy = {("none", 1): 0.6, ("tight", 1): 0.3, ("none", 2): 0.9, ("tight", 2): 0.8}
    summaries = [
        summary({"case": case, "size": size}, accuracy=[level + own for own in luck])
        for (case, size), level in accuracy.items()
    ]
    wins_back = Contrast(
        metric="accuracy",
        of={"case": "tight", "size": 2},
        minus={"case": "none", "size": 2},
        than={"case": "tight", "size": 1},
        than_minus={"case": "none", "size": 1},
    )
    measurement = wins_back.measure(results(*summaries))
    assert measurement.estimate.value == pytest.approx(0.2)
    assert measurement.estimate.interval == pytest.approx((0.2, 0.2))


BEFORE = [0.5, 2.0, 2.0, 5.0, 4.5]


def test_a_level_over_another_metric_is_their_difference_from_0():
    level = Level(metric="sharpness", over="untrained_sharpness", of={"w": 1})
    measurement = level.measure(results(summary({"w": 1}, chance=0.7, sharpness=FIVE, untrained_sharpness=BEFORE)))
    assert measurement.estimate.value == pytest.approx((0.5 + 0 + 1 - 1 + 0.5) / 5)
    assert (measurement.zero, measurement.chance, measurement.pairs) == (0.0, None, 5)


def test_a_difference_over_another_metric_is_what_training_gave_more():
    """The other starts as sharp as it ends: nothing of its sharpness was learned, though it is sharper."""
    gained, sharp = (
        summary({"w": 1}, sharpness=FIVE, untrained_sharpness=BEFORE),
        summary({"w": 2}, "edcba", sharpness=[9.0] * 5, untrained_sharpness=[9.0] * 5),
    )
    over = Difference(metric="sharpness", over="untrained_sharpness", of={"w": 1}, minus={"w": 2})
    assert over.measure(results(gained, sharp)).estimate.value == pytest.approx(0.2)
    assert over.model_copy(update={"over": None}).measure(results(gained, sharp)).estimate.value == pytest.approx(-6)


def test_a_contrast_over_another_metric():
    settings = (summary({"w": w}, l2=[float(w * w)] * 5, l0=[1.0 + w] * 5) for w in range(4))
    contrast = Contrast(metric="l2", over="l0", of={"w": 0}, minus={"w": 1}, than={"w": 2}, than_minus={"w": 3})
    assert contrast.measure(results(*settings)).estimate.value == pytest.approx((-1 - (-1)) - (1 - 5))


def test_four_shared_replicates_are_four_pairs():
    summaries = summary({"weight": 1}, mmcs=FIVE), summary({"weight": 2}, "bcdef", mmcs=[0.0] * 5)
    measurement = Difference(metric="mmcs", of={"weight": 1}, minus={"weight": 2}).measure(results(*summaries))
    assert (measurement.pairs, measurement.estimate.value) == (4, 3.5)
    assert Above().evidence(measurement, 0.01) == NOTHING


def test_settings_are_averaged_over_what_is_not_chosen():
    summaries = [summary({"weight": w, "world.decay": d}, mmcs=[w * d] * 5) for w in (1.0, 3.0) for d in (1.0, 2.0)]
    assert results(*summaries).values("mmcs", {"weight": 3}) == dict.fromkeys("abcde", 4.5)
    assert results(*summaries).values("mmcs", {}) == dict.fromkeys("abcde", 3.0)


def test_the_ratio_is_learned_per_true_features():
    small, large = summary({"dictionary.d_sae": 4}, mmcs=FIVE), summary({"dictionary.d_sae": 32}, mmcs=[0.0] * 5)
    assert results(small, large).select({"ratio": 0.5}) == [small]
    assert results(small, large).select({"ratio": 4}) == [large]


def test_any_of_several_values():
    summaries = [summary({"case": name}, mmcs=FIVE) for name in ("one", "two", "three")]
    assert results(*summaries).select({"case": ("three", "one")}) == [summaries[0], summaries[2]]


def test_a_table_that_was_swept_is_known_by_its_kind():
    one, other = (
        summary({"firing": {"kind": "a", "form": "x"}}, mmcs=FIVE),
        summary({"firing": {"kind": "b"}}, mmcs=FIVE),
    )
    assert results(one, other).select({"firing": "a"}) == [one]
    assert results(one, other).select({"firing": "a x"}) == [one]


def test_matched_interpolates_each_replicate():
    ours = [summary({"case": "ours", "w": w}, l0=[l0] * 5, mmcs=[m] * 5) for w, l0, m in ((1, 2, 0.6), (2, 6, 0.8))]
    theirs = [summary({"case": "theirs", "w": w}, l0=[l0] * 5, mmcs=[m] * 5) for w, l0, m in ((1, 8, 0.9), (2, 4, 0.1))]
    matched = Matched(metric="mmcs", of={"case": "ours"}, minus={"case": "theirs"}, times=2)
    measurement = matched.measure(results(*ours, *theirs))
    assert measurement.estimate.value == pytest.approx((0.6 + 0.2 * 3 / 4) - (0.1 + 0.8 / 4))
    assert measurement.pairs == 5


def test_matched_leaves_out_replicates_that_do_not_reach_the_level():
    ours = [summary({"case": "ours", "w": w}, l0=[l0] * 5, mmcs=FIVE) for w, l0 in ((1, 2), (2, 6))]
    theirs = [
        summary({"case": "theirs", "w": 1}, l0=[1.0] * 5, mmcs=FIVE),
        summary({"case": "theirs", "w": 2}, l0=[9.0, 9.0, 9.0, 9.0, 3.0], mmcs=FIVE),
    ]
    matched = Matched(metric="mmcs", of={"case": "ours"}, minus={"case": "theirs"}, times=2)
    assert matched.measure(results(*ours, *theirs)).pairs == 4


def path(case: str, *points: tuple[float, float], shift: float = 0.0) -> list[dict[str, Any]]:
    """A family of settings, one a point (L0, score); replicates differ by `shift` in their score."""
    return [
        summary({"case": case, "weight": w}, l0=[l0] * 5, probe_1=[score + shift * i for i in range(5)])
        for w, (l0, score) in enumerate(points)
    ]


EQUAL = EqualL0(metric="probe_1", of={"case": "ours"}, minus={"case": "theirs"})
E = math.e


def test_equal_l0_is_the_mean_gap_over_log_l0_where_both_paths_are():
    """Ours rises from 0 to 3 over log L0 0 … 3, theirs is .5: over the shared [1, 3] ours averages 2."""
    ours = path("ours", (E**3, 3.0), (1.0, 0.0), shift=10)
    theirs = path("theirs", (E, 0.5), (E**4, 0.5), shift=10)
    measurement = EQUAL.measure(results(*ours, *theirs))
    assert measurement.estimate.value == pytest.approx(1.5)
    assert measurement.estimate.interval == pytest.approx((1.5, 1.5))  # replicates differ by 40: only pairing sees it
    assert (measurement.pairs, measurement.chance, measurement.note) == (5, None, "at L0 2.718 to 20.09")
    assert measurement.values == pytest.approx((1.5,) * 5)


def test_equal_l0_at_one_l0():
    ours, theirs = path("ours", (1.0, 0.0), (E**3, 3.0)), path("theirs", (E, 0.5), (E**4, 0.5))
    at = EQUAL.model_copy(update={"at": E})
    measurement = at.measure(results(*ours, *theirs))
    assert (measurement.estimate.value, measurement.note) == (pytest.approx(0.5), "at L0 2.718")


def test_equal_l0_is_undecided_with_a_reason_where_no_l0_is_shared():
    measurement = EQUAL.measure(results(*path("ours", (1, 0.9), (2, 0.9)), *path("theirs", (4, 0.1), (8, 0.1))))
    assert math.isnan(measurement.estimate.value)
    assert measurement.note == "no L0 is on every path: 1 to 2 against 4 to 8"
    assert Above().evidence(measurement, 0.01) == NOTHING


def test_equal_l0_leaves_out_a_replicate_that_fires_nothing():
    ours = path("ours", (1, 0.9), (4, 0.9))
    for setting in ours:
        setting["metrics"]["l0"]["members"] = [*setting["metrics"]["l0"]["members"][:4], 0.0]
    measurement = EQUAL.measure(results(*ours, *path("theirs", (1, 0.1), (4, 0.1))))
    assert (measurement.pairs, measurement.estimate.value) == (4, pytest.approx(0.8))
    assert Above().evidence(measurement, 0.01) == NOTHING


def test_panels_are_nearer_to_one_label():
    cell = Cell(of={"weight": 1}, same=0.2, other=0.5)
    at_other = Panels(metric="mmcs", cells=(cell,)).measure(results(summary({"weight": 1}, mmcs=[0.5] * 5)))
    assert at_other.estimate.value == pytest.approx(0.09)
    at_same = Panels(metric="mmcs", cells=(cell,)).measure(results(summary({"weight": 1}, mmcs=[0.2] * 5)))
    assert at_same.estimate.value == pytest.approx(-0.09)


def test_an_error_shared_by_both_worlds_drops_out_of_panels():
    cells = Cell(of={"w": 1}, same=0.26, other=0.20), Cell(of={"w": 2}, same=0.20, other=0.26)
    for bias in (0.0, -0.5):
        ours = summary({"w": 1}, mmcs=[0.17 + bias] * 5), summary({"w": 2}, mmcs=[0.19 + bias] * 5)
        measurement = Panels(metric="mmcs", cells=cells).measure(results(*ours))
        assert measurement.estimate.value == pytest.approx((0.19 - 0.17) * (0.26 - 0.20))


def test_panels_in_ratios():
    cell = Cell(of={"weight": 1}, same=1e-4, other=4e-4)
    panels = Panels(metric="mmcs", cells=(cell,), ratio=True)
    middle = panels.measure(results(summary({"weight": 1}, mmcs=[2e-4] * 5)))
    assert middle.estimate.value == pytest.approx(0, abs=1e-12)
    above = panels.measure(results(summary({"weight": 1}, mmcs=[8e-4] * 5)))
    assert above.estimate.value == pytest.approx(8 * math.log(2) ** 2)


def test_what_the_study_lacks_is_refused():
    with pytest.raises(UserError, match="no setting with"):
        results(summary({"weight": 1}, mmcs=FIVE)).values("mmcs", {"weight": 2})
    with pytest.raises(UserError, match="did not measure 'dead'"):
        results(summary({"weight": 1}, mmcs=FIVE)).values("dead", {"weight": 1})


def test_nearer_is_a_distance_of_every_setting_not_of_their_mean():
    """Plain is at 1 and 5, 3 on average, 2 from 3 each; ours is at 2 and 3."""
    plain = [summary({"case": "plain", "w": w}, density=[v] * 5) for w, v in ((0, 1.0), (1, 5.0))]
    ours = [summary({"case": "ours", "w": w}, density=[v] * 5) for w, v in ((0, 2.0), (1, 3.0))]
    nearer = Nearer(metric="density", of={"case": "ours"}, minus={"case": "plain"}, target=3.0)
    measurement = nearer.measure(results(*plain, *ours))
    assert (measurement.estimate.value, measurement.pairs) == (pytest.approx(0.5 - 2.0), 5)
