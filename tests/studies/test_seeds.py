"""Every claim of every seed: its study ships, resolves at each scale, and has the settings and replicates it needs."""

from pathlib import Path

import pytest

from unbraid.runs import Run
from unbraid.statistics import FEWEST_PAIRS
from unbraid.studies.claims import Claim
from unbraid.studies.ledger import CLAIMS
from unbraid.studies.plans import SCALES, asked_of, study_of
from unbraid.studies.results import matches
from unbraid.sweeps.grid import expand


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_the_study_can_answer(claim: Claim, scale: str, tmp_path: Path, pretend_to_capture, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pretend_to_capture(asked_of(claim, scale)[0])
    study = study_of([claim], scale, tmp_path)
    assert study.run == Run(tmp_path / study.run.name)
    members = expand(study.config, "test")
    for where in claim.selections():
        chosen = [member for member in members if matches(member.setting, study.config, where)]
        assert chosen, where
        assert len({member.replicate() for member in chosen}) >= FEWEST_PAIRS


def test_ids_begin_with_their_seed_and_are_the_keys():
    assert all(name == claim.id and name.startswith(f"{claim.seed}-") for name, claim in CLAIMS.items())
