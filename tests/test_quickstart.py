"""The demo and the quickstart do what README says of them. Slow: whole runs."""

import time
from pathlib import Path

import pytest

from unbraid import cli
from unbraid.storage.runs import Run

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_the_quickstart_recovers_most_of_the_truth_within_three_minutes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    began = time.monotonic()
    words = ["run", str(ROOT / "configs" / "quickstart.toml"), "--runs", str(tmp_path), "--name", "q", "-q"]
    assert cli.guarded(lambda: cli.app(words)) == 0
    assert time.monotonic() - began < 180
    for setting in Run.open(tmp_path / "q").scores()["settings"]:
        mmcs = setting["metrics"]["mmcs"]
        assert len(mmcs["members"]) >= 5
        assert mmcs["interval"][0] >= 0.9
        assert mmcs["chance"] == pytest.approx(0.188, abs=0.01)  # published for 512 directions in 256 dimensions


@pytest.mark.slow
def test_the_demo_runs_the_whole_pipeline_within_three_minutes(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    began = time.monotonic()
    words = ["run", str(ROOT / "configs" / "pipeline" / "demo.toml"), "--runs", str(tmp_path), "--name", "d", "-q"]
    assert cli.guarded(lambda: cli.app(words)) == 0
    assert time.monotonic() - began < 180
    for setting in Run.open(tmp_path / "d").scores()["settings"]:
        scores = setting["metrics"]
        assert scores["accuracy"]["value"] >= 0.99
        assert len(scores["phi"]["members"]) == 5
        assert scores["phi"]["chance"] < scores["phi"]["value"] < scores["phi"]["ceiling"]
