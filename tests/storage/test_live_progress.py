"""A run at work says how far it is; the file is gone when it ends, and one that a killed run left misleads nobody."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.storage.scenarios import LEARNING, WORLD
from unbraid.storage.runs import Run

RECORD = {"share": 0.5, "seconds_left": None, "task": "t", "tasks": {"done": 0, "all": 1}, "line": {}, "curve": []}
FACTS = {"kind": "dictionaries", "leading": "l0", "sections": []}


def begin(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "unbraid", *words, "-q"], cwd=folder, stderr=subprocess.DEVNULL)


def wait_for(run: Run, process: subprocess.Popen[bytes], points: int) -> dict:
    """The first record with so many points."""
    for _ in range(1200):
        if (record := run.progress()) and len(record["curve"]) >= points:
            return record
        assert process.poll() is None, process.returncode
        time.sleep(0.05)
    raise AssertionError("no progress was written")


@pytest.fixture
def folder(tmp_path):
    settings = LEARNING.replace("steps = 20", "steps = 200000").replace("every = 5", "every = 50")
    (tmp_path / "config.toml").write_text(WORLD + settings)
    return tmp_path


def test_a_run_at_work_says_how_far_it_is_until_it_is_stopped_and_again_when_resumed(folder):
    run, path = Run(folder / "runs/run"), folder / "runs/run/progress.json"
    process = begin(folder, "run", "config.toml", "--name", "run")
    record = wait_for(run, process, 2)
    assert 0 < record["share"] < 1
    assert record["tasks"] == {"done": 0, "all": 2}
    assert record["task"].endswith("training")
    assert len(record["curve"]) <= 200
    assert {"step", "L0"} <= record["line"].keys()
    process.kill()
    process.wait()
    assert path.is_file()
    assert run.status()["state"] == "killed"
    assert run.progress() is None
    process = begin(folder, "resume", "run")
    assert wait_for(run, process, 1)["share"] > 0
    process.send_signal(signal.SIGTERM)
    process.wait()
    assert run.status()["state"] == "stopped"
    assert not path.exists()
    assert run.progress() is None
    assert not list(run.path.glob(".*.part"))


@pytest.mark.parametrize("content", [b"", b'{"share": 0.5', b"\xff\x00", b"[]", b'{"share": 1}', b"[" * 100_000])
def test_a_torn_record_is_as_none(tmp_path, content):
    run = Run.create(tmp_path, "run", "seed = 0\n", FACTS)
    with run.locked():
        run.set_progress(RECORD)
        assert run.progress() == RECORD
        (run.path / "progress.json").write_bytes(content)
        assert run.progress() is None
        assert Run.open(run.path).status()["state"] == "running"


def test_a_record_is_no_part_of_a_finished_run(tmp_path):
    run = Run.create(tmp_path, "run", "seed = 0\n", FACTS)
    with run.locked():
        run.set_progress(RECORD)
        run.finish(1.0)
    assert not (run.path / "progress.json").exists()
    assert "progress.json" not in json.loads((run.path / "checksums.json").read_text())["files"]
    (run.path / "progress.json").write_text("left by whoever was killed at the very end")
    Run.open(run.path).verify()
    assert run.progress() is None
