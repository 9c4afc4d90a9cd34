"""Rules and verdicts: each outcome by hand; and simulated, how often claims are decided with and without an effect."""

import math
from collections import Counter
from itertools import product

import numpy as np
import pytest
from scipy import stats

from unbraid.metrics.intervals import Estimate, estimate
from unbraid.metrics.sign_flips import Combine, least_replicates, replicates_for
from unbraid.studies.verdicts import (
    Above,
    Below,
    Evidence,
    Measurement,
    Rule,
    Within,
    judge,
)

SPREAD = np.linspace(-1, 1, 8)
"""Of eight replicates around their mean."""


def measurement(mean: float, spread: float = 0.0, zero: float = 0.0, replicates: int = 8) -> Measurement:
    values = [mean + spread * step for step in SPREAD[:replicates]]
    return Measurement(estimate(values), len(values), None, zero, values=tuple(values))


def verdict(rule: Rule, measured: Measurement, smallest: float = 0.02) -> str:
    return judge([rule.evidence(measured, smallest)]).verdict


@pytest.mark.parametrize(
    ("rule", "mean", "spread", "expected"),
    [
        (Above(), 0.1, 0.05, "holds"),
        (Above(), -0.1, 0.05, "opposite"),
        (Above(), 0.03, 0.2, "undecided"),
        (Above(), 0.01, 0.005, "no effect"),  # sure, and too small to matter
        (Above(), -0.01, 0.005, "no effect"),
        (Above(), 0.0, 0.0, "no effect"),
        (Above(), 0.03, 0.02, "holds"),  # every replicate above 0
        (Above(margin=0.05), 0.1, 0.02, "holds"),
        (Above(margin=0.05), 0.03, 0.01, "opposite"),  # there is an effect, and not of the size that is claimed
        (Above(margin=0.05), 0.0, 0.01, "no effect"),
        (Above(margin=-0.05), 0.0, 0.01, "holds"),  # no worse than .05: nothing is needed for that
        (Above(margin=-0.05), -0.1, 0.02, "opposite"),
        (Below(), -0.1, 0.05, "holds"),
        (Below(), 0.1, 0.05, "opposite"),
        (Below(), 0.03, 0.2, "undecided"),
        (Below(), -0.01, 0.005, "no effect"),
        (Below(margin=0.1), 0.05, 0.02, "holds"),
        (Below(margin=0.1), 0.0, 0.01, "holds"),
        (Below(margin=0.1), 0.15, 0.02, "opposite"),
        (Within(), 0.0, 0.01, "holds"),
        (Within(), 0.0, 0.0, "holds"),
        (Within(), 0.1, 0.02, "opposite"),
        (Within(), -0.1, 0.02, "opposite"),
        (Within(), 0.02, 0.02, "undecided"),
        (Within(), 0.0, 0.2, "undecided"),
        (Within(margin=0.2), 0.1, 0.02, "holds"),
    ],
)
def test_replicates_are_read(rule: Rule, mean: float, spread: float, expected: str):
    assert verdict(rule, measurement(mean, spread)) == expected


def test_rules_measure_from_chance():
    assert verdict(Above(), measurement(0.25, 0.01, zero=0.19)) == "holds"
    assert verdict(Above(), measurement(0.25, 0.01, zero=0.3)) == "opposite"
    assert verdict(Above(), measurement(0.2, 0.01, zero=0.19)) == "no effect"
    assert verdict(Within(), measurement(0.2, 0.005, zero=0.19)) == "holds"


def test_too_few_replicates_or_no_value_decide_nothing():
    assert verdict(Above(), measurement(0.1, replicates=7)) == "undecided"
    assert verdict(Above(), measurement(0.0, replicates=7)) == "undecided"
    eight = measurement(0.1)
    assert Above().evidence(eight, 0.02, parts=6).p_for == 2.0**-7
    assert Above().evidence(eight, 0.02, parts=7).p_for == 1.0, "seven parts need nine"
    nan = Measurement(Estimate(math.nan, None), 8, None, values=(0.1,) * 7 + (math.nan,))
    assert verdict(Above(), nan) == "undecided"


def test_the_words_carry_the_numbers():
    assert "above 0.15 " in Above(margin=0.15).words(0.02)
    assert "±0.02;" in Above().words(0.02)
    assert "no effect" not in Above(margin=-0.02).words(0.02)
    assert "below 0 " in Below().words(0.02)
    assert "no effect" not in Below(margin=0.1).words(0.02)
    assert "within ±0.02 " in Within().words(0.02)
    assert "within ±0.5 " in Within(margin=0.5).words(0.02)


FOR, AGAINST, NONE, OPEN = Evidence(0.01, 1.0), Evidence(1.0, 0.01), Evidence(0.01, 1.0, True), Evidence(0.3, 1.0)
WEAKLY_FOR, WEAKLY_AGAINST = Evidence(0.03, 1.0), Evidence(1.0, 0.03)


@pytest.mark.parametrize(
    ("parts", "of_all", "of_any"),
    [
        ([FOR, FOR], ("holds", 0.01), ("holds", 0.02)),
        ([FOR, OPEN], ("undecided", 0.3), ("holds", 0.02)),
        ([WEAKLY_FOR, OPEN], ("undecided", 0.3), ("undecided", 0.06)),
        ([FOR, AGAINST], ("opposite", 0.02), ("holds", 0.02)),
        ([FOR, WEAKLY_AGAINST], ("undecided", 0.06), ("holds", 0.02)),
        ([AGAINST, AGAINST], ("opposite", 0.02), ("opposite", 0.01)),
        ([AGAINST, OPEN], ("opposite", 0.02), ("undecided", 0.6)),
        ([WEAKLY_AGAINST, WEAKLY_AGAINST], ("undecided", 0.06), ("opposite", 0.03)),
        ([FOR, NONE], ("no effect", 1.0), ("holds", 0.02)),
        ([AGAINST, NONE], ("opposite", 0.02), ("no effect", 1.0)),
        ([OPEN, NONE], ("no effect", 1.0), ("undecided", 0.6)),
        ([NONE, NONE], ("no effect", 1.0), ("no effect", 1.0)),
    ],
)
def test_parts_combine_by_all_or_any(parts: list[Evidence], of_all: tuple[str, float], of_any: tuple[str, float]):
    for combine, (word, p) in (("all", of_all), ("any", of_any)):
        judged = judge(parts, combine)
        assert (judged.verdict, judged.p) == (word, pytest.approx(p))


def test_any_is_the_mirror_image_of_all():
    mirrored = {"holds": "opposite", "opposite": "holds", "undecided": "undecided"}
    rng = np.random.default_rng(0)
    for _ in range(200):
        p, sides = rng.choice([0.008, 0.02, 0.04, 0.2, 1.0], 3).tolist(), rng.random(3) < 0.5
        parts = [Evidence(one, 1.0) if side else Evidence(1.0, one) for one, side in zip(p, sides, strict=True)]
        turned = [Evidence(part.p_against, part.p_for) for part in parts]
        assert judge(turned, "any").verdict == mirrored[judge(parts, "all").verdict]
        assert judge(turned, "any").p == judge(parts, "all").p


# ---- How often claims are decided: simulated studies -----------------------------------------------------


def simulate(
    rule: Rule, effects: list[float], replicates: int, combine: Combine, claims: int, shared: float = 0.0
) -> Counter[str]:
    """Verdicts on claims whose parts have these effects, in deviations of a replicate; `shared` is the correlation of
    parts, as of one baseline that all are compared with.

    The smallest effect of interest is next to nothing, so that *no effect* hides no verdict. The interval, of which
    only that depends, is Student's, which costs less than 10,000 resamples.
    """
    rng, words = np.random.default_rng(replicates + len(effects)), Counter[str]()
    reach = float(stats.t.ppf(0.975, replicates - 1)) / math.sqrt(replicates)
    for _ in range(claims):
        common = rng.standard_normal(replicates)
        parts = math.sqrt(shared) * common + math.sqrt(1 - shared) * rng.standard_normal((len(effects), replicates))
        parts += np.array(effects)[:, None]
        evidence: list[Evidence] = []
        for values in parts:
            mean, half = float(values.mean()), reach * float(values.std(ddof=1))
            measured = Measurement(
                Estimate(mean, (mean - half, mean + half)), replicates, None, values=tuple(values.tolist())
            )
            evidence.append(rule.evidence(measured, 1e-9, len(effects)))
        words[judge(evidence, combine).verdict] += 1
    return words


CLAIMS = 2000
COMBINATIONS: tuple[Combine, ...] = ("all", "any")


def at_most(share: float, claims: int = CLAIMS) -> int:
    """What a simulation of this rate exceeds once in ten thousand."""
    return int(stats.binom.ppf(0.9999, claims, share))


@pytest.mark.parametrize("shared", [0.0, 0.5])
@pytest.mark.parametrize("combine", COMBINATIONS)
@pytest.mark.parametrize("parts", [1, 2, 5])
def test_without_an_effect_at_most_one_claim_in_twenty_is_decided(parts: int, combine: Combine, shared: float):
    words = simulate(Above(), [0.0] * parts, 8, combine, CLAIMS, shared)
    assert words["holds"] <= at_most(0.025)
    assert words["opposite"] <= at_most(0.025)
    assert words["holds"] + words["opposite"] <= at_most(0.05)
    if parts == 1:
        assert words["holds"] + words["opposite"] > 0.03 * CLAIMS  # it does decide as often as eight replicates can


@pytest.mark.parametrize("combine", COMBINATIONS)
@pytest.mark.parametrize("parts", [1, 2, 5])
def test_at_the_edge_of_its_band_a_claim_of_no_effect_is_seldom_decided(parts: int, combine: Combine):
    words = simulate(Within(margin=1.0), [1.0] * parts, 8, combine, CLAIMS // 2)
    assert words["holds"] + words["opposite"] <= at_most(0.05, CLAIMS // 2)


def test_one_part_that_holds_does_not_carry_a_claim_that_needs_all():
    words = simulate(Above(), [3.0, 0.0], 8, "all", CLAIMS)
    assert words["holds"] <= at_most(0.025)
    assert words["opposite"] <= at_most(0.025)


@pytest.mark.parametrize("effect", [1.0, 1.5])
@pytest.mark.parametrize("combine", COMBINATIONS)
@pytest.mark.parametrize("parts", [1, 2, 5])
def test_a_study_finds_the_effect_it_was_sized_for_four_times_in_five(parts: int, combine: Combine, effect: float):
    replicates = replicates_for(effect, 1.0, parts, combine)
    assert replicates >= least_replicates(parts)
    effects = [effect] * parts if combine == "all" else [effect, *[0.0] * (parts - 1)]
    claims = 600
    words = simulate(Above(), effects, replicates, combine, claims)
    assert words["holds"] >= claims - at_most(0.2, claims)
    assert words["opposite"] <= at_most(0.025, claims)


def test_an_effect_too_small_to_matter_is_called_none_by_the_interval_of_the_ledger():
    rng = np.random.default_rng(5)
    words = Counter[str]()
    for _ in range(60):
        values = rng.normal(0.005, 0.004, 8).tolist()
        measured = Measurement(estimate(values), 8, None, values=tuple(values))
        words[verdict(Above(), measured, smallest=0.02)] += 1
    assert words == {"no effect": 60}


def print_rates(claims: int = 20_000) -> None:
    """The simulated rates, with more claims than a test has time for: `python -m tests.studies.test_verdicts`."""
    for parts, combine in product((1, 2, 5), COMBINATIONS):
        null = simulate(Above(), [0.0] * parts, 8, combine, claims)
        replicates = replicates_for(1.0, 1.0, parts, combine)
        effects = [1.0] * parts if combine == "all" else [1.0, *[0.0] * (parts - 1)]
        holds = simulate(Above(), effects, replicates, combine, claims // 5)["holds"] / (claims // 5)
        decided = f"holds {null['holds'] / claims:.4f}, opposite {null['opposite'] / claims:.4f}"
        print(
            f"{parts} parts, {combine}: null {decided}; {replicates} replicates, effect 1 deviation: holds {holds:.3f}"
        )


if __name__ == "__main__":
    print_rates()
