"""Small runs of every kind, made once, for the tests that damage them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.storage.scenarios import CONFIGS, STOPPED, Scenario, claim, finish, stop
from unbraid.figures import Section, Table, draw
from unbraid.results import TABLES, RunResults
from unbraid.studies import ledger


def draw_data(results: RunResults) -> list[Section]:
    """The data that figures are drawn from, as words: drawing takes seconds."""
    data = Table(("table", "data"), [[name, getattr(results, name).to_csv()] for name in TABLES])
    stacks = range(len(results.run.stacks()))
    words = [repr([results.notes(stack, name) for name in ("stories", "texts", "features")]) for stack in stacks]
    arrays = [sorted((name, array.tolist()) for name, array in results.arrays(stack).items()) for stack in stacks]
    rest = Table(("what", "data"), [["words", repr(words)], ["arrays", repr(arrays)]])
    return [Section("data", "Data", [], [data, rest]), *draw(results, ["all_scores", "differences"])]


@contextmanager
def quick_runs() -> Iterator[None]:
    """Nothing is drawn, nobody waits for disks, and the claims are those of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unbraid.report.page.draw", draw_data)
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
