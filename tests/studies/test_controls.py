"""Controls: a claim whose study could not have shown it is undecided, whatever its parts say."""

import pytest
from pydantic import ValidationError

from unbraid.metrics.intervals import estimate
from unbraid.report.ledger import deciding
from unbraid.studies.claims import Claim, Part
from unbraid.studies.ledger import CLAIMS, judge_claim
from unbraid.studies.measures import Level
from unbraid.studies.verdicts import Above, Below, Evidence, Measurement, judge

FOR, AGAINST, NEITHER, NOTHING = (
    Evidence(0.008, 1.0),
    Evidence(1.0, 0.008),
    Evidence(0.4, 1.0),
    Evidence(0.008, 1.0, no_effect=True),
)


def measured(values: list[float]) -> Measurement:
    return Measurement(estimate(values), len(values), None, values=tuple(values))


UP, DOWN = ([sign * (1 + 0.1 * i) for i in range(8)] for sign in (1, -1))
FLAT = [0.001 * (-1) ** i for i in range(8)]


def claim(*parts: Part) -> Claim:
    return Claim(
        id="tiny/wins-back",
        statement="It wins back.",
        quote="Won back.",
        published="",
        study="quickstart",
        parts=parts,
    )


def part(rule: Above | Below, *, control: bool) -> Part:
    return Part(what="control" if control else "part", control=control, measure=Level(metric="mmcs", of={}), rule=rule)


@pytest.mark.parametrize("parts", [[FOR], [AGAINST], [NOTHING], [FOR, AGAINST]])
@pytest.mark.parametrize("combine", ["all", "any"])
def test_a_control_that_holds_changes_nothing_but_p(parts: list[Evidence], combine):
    with_control, without = judge(parts, combine, [FOR]), judge(parts, combine)
    assert (with_control.verdict, with_control.parts) == (without.verdict, without.parts)
    assert with_control.p == max(without.p, 0.008)


@pytest.mark.parametrize(("control", "word"), [(AGAINST, "opposite"), (NEITHER, "undecided"), (NOTHING, "no effect")])
@pytest.mark.parametrize("parts", [[FOR], [AGAINST], [NOTHING]])
def test_a_control_that_does_not_hold_leaves_the_claim_undecided(parts: list[Evidence], control: Evidence, word: str):
    verdict = judge(parts, "all", [FOR, control])
    assert (verdict.verdict, verdict.controls) == ("undecided", ("holds", word))
    assert verdict.p > 0.05


def test_controls_are_no_parts_of_holms_rule():
    """Two parts at p = .02 of an `any` claim: .04 of two tests, which would be .1 of five."""
    parts = [Evidence(0.02, 1.0), Evidence(0.02, 1.0)]
    assert judge(parts, "any", [FOR] * 3).verdict == "holds"
    assert judge([*parts, *[Evidence(1.0, 1.0)] * 3], "any").verdict == "undecided"


def test_nothing_was_lost_so_there_is_nothing_to_win_back():
    """The control asks for a loss; measured is none, so the gain decides nothing, and the row shows the control."""
    wins_back = claim(part(Above(), control=False), part(Below(), control=True))
    assert judge_claim(wins_back, [measured(UP), measured(DOWN)])[0].verdict == "holds"
    verdict, parts = judge_claim(wins_back, [measured(UP), measured(FLAT)])
    assert (verdict.verdict, [each["verdict"] for each in parts]) == ("undecided", ["holds", "no effect"])
    shown = deciding({"combine": "all", "parts": parts})
    assert shown is not None
    assert shown["control"]


def test_words_stay_with_their_parts_whatever_their_order():
    mixed = claim(part(Below(), control=True), part(Above(), control=False), part(Below(), control=True))
    _, parts = judge_claim(mixed, [measured(DOWN), measured(FLAT), measured(UP)])
    assert [each["verdict"] for each in parts] == ["holds", "no effect", "opposite"]


def test_not_reproduced_is_no_effect_beside_a_control_that_holds():
    claimed = claim(part(Above(), control=False), part(Above(), control=True))
    assert judge_claim(claimed, [measured(FLAT), measured(UP)])[0].verdict == "no effect"


def test_controls_alone_claim_nothing():
    with pytest.raises(ValidationError, match="all parts are controls"):
        claim(part(Above(), control=True))


def test_replicates_are_counted_by_the_parts_that_claim():
    eight = claim(part(Above(), control=False), *[part(Above(), control=True)] * 7)
    assert (eight.claimed, eight.replicates) == (1, 8)
    assert claim(*[part(Above(), control=False)] * 8).replicates == 9


@pytest.mark.parametrize("claim_id", [claim_id for claim_id in CLAIMS if "/capacity-" in claim_id])
def test_who_wins_back_has_lost_something(claim_id: str):
    """The interaction of size and constraints; and as a control the loss at the small size, of the same settings."""
    gain, loss = CLAIMS[claim_id].parts
    assert (gain.control, loss.control) == (False, True)
    assert gain.measure.to_dict()["kind"] == "contrast"
    assert gain.measure.selections()[2:] == loss.measure.selections()
