"""Small runs of every kind, made once, for the tests that damage them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.storage.scenarios import CONFIGS, STOPPED, Scenario, claim, finish, stop
from unbraid.reports.canvas import Figure, Section
from unbraid.reports.run_results import RunResults
from unbraid.reports.text_sections import all_scores, differences
from unbraid.studies import ledger


def draw_data(results: RunResults) -> list[Section]:
    """One figure, which is the data that figures are drawn from: drawing takes seconds."""
    figure = Figure("score-mmcs", repr(_read(results)).encode(), "data")
    return [Section("Data", "A caption", [figure]), all_scores(results), differences(results)]


def _read(results: RunResults) -> list[object]:
    """All that a page is made of, in an order of its own: arrays of a file come in any."""
    arrays = [
        sorted((name, array.tolist()) for name, array in tables.items())
        for tables in (*results.tables, *results.tracking)
    ]
    words = [results.config, results.settings, results.differences, results.logs]
    return [*words, results.stories, results.texts, results.features, arrays]


@contextmanager
def quick_runs() -> Iterator[None]:
    """Nothing is drawn, nobody waits for disks, and the claims are those of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unbraid.reports.page.draw", draw_data)
        patch.setattr(os, "fsync", lambda handle: None)
        patch.setattr("unbraid.storage.runs._commit", lambda: None)
        patch.setattr(ledger, "CLAIMS", claim())
        yield


@pytest.fixture
def quick() -> Iterator[None]:
    with quick_runs():
        yield


@pytest.fixture(scope="session")
def scenarios(tmp_path_factory) -> dict[str, Scenario]:
    """Every kind finished, and those that can be stopped, by name."""
    home: Path = tmp_path_factory.mktemp("scenarios")
    with quick_runs():
        made = {kind: finish(home / kind, kind) for kind in CONFIGS}
        return made | {f"stopped-{kind}": stop(home / f"stopped-{kind}", kind) for kind in STOPPED}
