"""Designs that an audit asked for: gains over the start, uniform starts, fresh replicates, budgets that suffice."""

import pytest

from unbraid.config import read_toml
from unbraid.metrics.catalog import get
from unbraid.pipeline.expand import written_members
from unbraid.studies.ledger import CLAIMS
from unbraid.studies.measures import LessOver
from unbraid.studies.plans import SCALES, study_config
from unbraid.studies.shipped import find_config

SEEN = {0, 1, 2, 3, 4}
"""Seeds of the runs after which the studies below were designed anew."""
FRESH = (
    *(
        "head-constraints/constraints",
        "head-constraints/strong",
        "head-constraints/capacity",
        "head-constraints/routes",
    ),
    *("gauge/uniformity", "gauge/temperature", "gauge/irreps"),
)
GAINS = [
    pytest.param(claim, part.measure, id=f"{claim.id} {part.what}")
    for claim in CLAIMS.values()
    for part in claim.parts
    if isinstance(part.measure, LessOver) and part.measure.over
]


@pytest.mark.parametrize(("claim", "measure"), GAINS)
def test_what_is_subtracted_is_a_metric_of_the_same_unit(claim, measure: LessOver):
    assert measure.over is not None
    assert get(measure.over).unit == get(measure.metric).unit


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(("claim", "measure"), [each for each in GAINS if "untrained_sharpness" in str(each.values[1])])
def test_sharpness_that_training_gave_is_measured_from_a_uniform_start(claim, measure: LessOver, scale: str):
    """Tokens .02 apart: the published start, at which every head is uniform at these temperatures."""
    config, path = study_config(claim, scale)
    for setting, tree in written_members(config, str(path)):
        if all(setting.get(name) == value for name, value in measure.selections()[0].items()):
            assert tree["model"]["init"] == "published"


@pytest.mark.parametrize("name", FRESH)
def test_a_study_designed_after_a_look_has_fresh_replicates(name: str):
    data = read_toml(find_config(name))
    for sweep in (data["sweep"], data["scales"]["standard"].get("sweep", {})):
        assert not SEEN & set(sweep.get("replicate", ()))
        assert not {"seed", "world.seed"} & sweep.keys()
    assert {claim.study for claim in CLAIMS.values()} >= {name}


def test_architectures_have_rates_and_budgets_of_their_own_and_must_have_learned():
    """Each claim on an architecture has as controls that it and softmax reached 95 %."""
    claims = [claim for claim in CLAIMS.values() if claim.study == "head-constraints/routes"]
    assert len(claims) == 4
    for claim in claims:
        controls = [part.measure for part in claim.parts if part.control]
        assert {measure.metric for measure in controls} == {"reached_95"}
        claimed = {
            case
            for part in claim.parts
            if not part.control
            for where in part.measure.selections()
            for case in where.values()
        }
        assert {case for measure in controls for where in measure.selections() for case in where.values()} == claimed
    training = {
        setting["case"]: tree["model"]["training"]
        for setting, tree in written_members(read_toml(find_config("head-constraints/routes")), "routes")
    }
    assert training["hopfield"]["steps"] > training["softmax"]["steps"]
    assert training["hopfield"]["learning_rate"] < training["softmax"]["learning_rate"]
