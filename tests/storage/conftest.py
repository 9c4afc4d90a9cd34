"""Small runs of every kind, made once, for the tests that damage them."""

import os
from pathlib import Path

import pytest
import torch
from unbraid.reports.findings import Findings

from tests.storage.scenarios import CONFIGS, STOPPED, Scenario, claim, finish, stop
from unbraid.reports.canvas import Picture, Plate
from unbraid.studies import ledger


@pytest.fixture(scope="session")
def no_report_writer_yet():
    """Reports with one picture, which is not a picture.

    And without any page: the report of a pipeline cannot be written until the branch `reports` is merged. Then drop the
    last line, and this sentence.
    """
    plate = Plate("Scores", "A caption", [Picture("score-mmcs", b"dots", "dots")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unbraid.reports.page.draw", lambda findings: [plate])
        patch.setattr("unbraid.reports.page.page", lambda findings, drawn: repr([_read(one) for one in findings]))
        yield


def _read(findings: Findings) -> list[object]:
    """All that a page is made of, in an order of its own: arrays of a file come in any."""
    arrays = [sorted((name, array.tolist()) for name, array in tables.items()) for tables in findings.tables]
    arrays += [sorted((name, array.tolist()) for name, array in tables.items()) for tables in findings.tracking]
    words = [findings.config, findings.settings, findings.differences, findings.logs, findings.language_model]
    return [*words, findings.stories, findings.texts, findings.features, arrays]


@pytest.fixture(scope="session")
def quick(no_report_writer_yet):
    """One thread, no waiting for disks, and the claims of the tests."""
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        patch.setattr("unbraid.storage.environment._commit", lambda: None)
        patch.setattr(ledger, "CLAIMS", claim())
        yield


@pytest.fixture(scope="session")
def scenarios(quick, tmp_path_factory) -> dict[str, Scenario]:
    """Every kind finished, and those that can be stopped, by name."""
    home: Path = tmp_path_factory.mktemp("scenarios")
    made = {kind: finish(home / kind, kind) for kind in CONFIGS}
    return made | {f"stopped-{kind}": stop(home / f"stopped-{kind}", kind) for kind in STOPPED}
