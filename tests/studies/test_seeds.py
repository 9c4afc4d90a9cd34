"""Every claim of every seed: its study ships, resolves at each scale, and has the settings and replicates it needs."""

from pathlib import Path

import pytest
import torch

from unbraid.capture.manifest import read_manifest
from unbraid.runs import Run
from unbraid.statistics import FEWEST_PAIRS
from unbraid.studies.claims import Claim
from unbraid.studies.ledger import CLAIMS
from unbraid.studies.plans import SCALES, asked_of, study_of
from unbraid.studies.results import matches
from unbraid.sweeps.grid import expand
from unbraid.worlds.activations import source_of


@pytest.fixture
def pretend_to_capture(tmp_path, keep_as_shards, monkeypatch):
    """Activations of nothing, where a study says that it has those of a model: a machine need not have the model."""
    monkeypatch.chdir(tmp_path)

    def pretend(claim: Claim, scale: str) -> None:
        source = source_of(asked_of(claim, scale)[0].get("world", {}))
        if source is not None:
            keep_as_shards(source.folder, torch.randn(400, 12))
            manifest = read_manifest(source.folder)
            told = {"model": source.model, "text": source.text, "site": source.site, "dtype": source.dtype}
            manifest.model_copy(update={"origin": manifest.origin.model_copy(update=told)}).write(source.folder)

    return pretend


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_the_study_can_answer(claim: Claim, scale: str, tmp_path: Path, pretend_to_capture):
    pretend_to_capture(claim, scale)
    study = study_of(claim, scale, tmp_path)
    assert study.run == Run(tmp_path / study.run.name)
    members = expand(study.config, "test")
    for part in claim.parts:
        for where in part.statistic.selections():
            chosen = [member for member in members if matches(member.setting, study.config, where)]
            assert chosen, where
            assert len({member.replicate() for member in chosen}) >= FEWEST_PAIRS


def test_ids_begin_with_their_seed_and_are_the_keys():
    assert all(name == claim.id and name.startswith(f"{claim.seed}-") for name, claim in CLAIMS.items())
