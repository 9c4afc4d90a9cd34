"""Small runs of every kind, made once, for the tests that damage them."""

import os
from pathlib import Path

import pytest
import torch

from tests.storage.scenarios import CONFIGS, STOPPED, Scenario, claim, finish, stop
from unbraid.reports.canvas import Figure, Section
from unbraid.reports.run_results import RunResults
from unbraid.reports.text_sections import all_scores, differences
from unbraid.studies import ledger


@pytest.fixture(scope="session")
def data_for_figures():
    """Reports with one figure, which is the data that figures are drawn from: drawing takes seconds."""

    def draw(results: RunResults) -> list[Section]:
        figure = Figure("score-mmcs", repr(_read(results)).encode(), "data")
        return [Section("Data", "A caption", [figure]), all_scores(results), differences(results)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unbraid.reports.page.draw", draw)
        yield


def _read(results: RunResults) -> list[object]:
    """All that a page is made of, in an order of its own: arrays of a file come in any."""
    arrays = [
        sorted((name, array.tolist()) for name, array in tables.items())
        for tables in (*results.tables, *results.tracking)
    ]
    words = [results.config, results.settings, results.differences, results.logs]
    return [*words, results.stories, results.texts, results.features, arrays]


@pytest.fixture(scope="session")
def quick(data_for_figures):
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
