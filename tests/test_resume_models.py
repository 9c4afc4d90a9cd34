"""Models trained side by side, stopped in any way there is: no process is left, and the run ends with the same bits."""

import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.killing import (
    MODELS,
    finish,
    kill,
    kill_until_it_ends,
    launch,
    left_of,
    litter,
    make,
    none_is_left,
    results,
    wait_for_progress,
    workers_of,
    written,
)
from tests.test_cli import launch as launch_anew
from unbraid.storage.runs import Run

KILLS = 3


@pytest.fixture(scope="module")
def never_stopped(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """By one process, one model after the other."""
    return finish(make(tmp_path_factory.mktemp("whole"), "whole", MODELS))


@pytest.fixture
def victim(tmp_path: Path) -> Run:
    return make(tmp_path / "runs", "victim", MODELS)


def sentences(said: Path) -> list[str]:
    """All that was said but the note that other threads work now than made the run."""
    return [line for line in said.read_text().splitlines() if not line.startswith("note: threads was 1")]


def test_killed_again_and_again_it_ends_with_the_same_bits(never_stopped: Run, tmp_path: Path):
    (tmp_path / "c.toml").write_text(MODELS)
    process = launch("run", tmp_path / "c.toml", "--runs", tmp_path / "runs", "--name", "victim", "-q", threads=2)
    run, began = Run(tmp_path / "runs/victim"), time.monotonic()
    while len(written(tmp_path)) < 8 and time.monotonic() < began + 60:
        time.sleep(0.002)
    assert len(workers_of(process.pid or 0)) == 2
    kill(process)
    assert run.status()["state"] == "killed"
    kill_until_it_ends(run, random.Random(2), KILLS - 1, threads=2)
    assert results(run) == results(never_stopped)
    assert litter(run.path.parent) == []


@pytest.mark.parametrize("moment", ["starting", "training"])
def test_ctrl_c_stops_every_process_and_says_how_to_resume(moment: str, victim: Run, never_stopped: Run):
    """At a terminal all processes get the signal, and those just starting have not got round to ignoring it."""
    two = {**os.environ, "OMP_NUM_THREADS": "2"}
    process = launch_anew("resume", victim.path, env=two, start_new_session=True)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (
        len(workers_of(process.pid)) == 2 if moment == "starting" else list(victim.path.parent.rglob("step-*.json"))
    ):
        time.sleep(0.002)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)  # until the last process that could say something is gone
    assert process.returncode == 130, err
    assert err.splitlines()[-1].startswith("unbraid: stopped and saved ")
    assert err.splitlines()[-1].endswith(f"; go on with: unbraid resume {victim.path}")
    assert "Traceback" not in err
    assert not left_of(process.pid)
    assert victim.status()["state"] == "stopped"
    assert results(finish(victim)) == results(never_stopped)
    assert litter(victim.path.parent) == []


def test_workers_whose_parent_is_killed_leave_by_themselves(victim: Run, never_stopped: Run, tmp_path: Path):
    process = launch("resume", victim.path, "-q", threads=2, said=tmp_path / "said")
    wait_for_progress(process, victim.path.parent)
    assert len(workers_of(process.pid or 0)) == 2
    process.kill()
    process.join()
    assert none_is_left(process.pid or 0)
    assert sentences(tmp_path / "said") == []
    assert not (victim.path / "scores.json").exists()
    assert results(finish(victim)) == results(never_stopped)
    assert litter(victim.path.parent) == []


def test_a_worker_that_is_killed_stops_the_run_in_one_sentence(victim: Run, never_stopped: Run, tmp_path: Path):
    process = launch("resume", victim.path, "-q", threads=2, said=tmp_path / "said")
    wait_for_progress(process, victim.path.parent)
    os.kill(workers_of(process.pid or 0)[0], signal.SIGKILL)
    process.join(60)
    assert process.exitcode == 1
    (sentence,) = sentences(tmp_path / "said")
    assert sentence.startswith("unbraid: the process at work on '")
    assert "was killed by SIGKILL" in sentence
    assert sentence.endswith(f"; go on with: unbraid resume {victim.path}")
    assert victim.status()["state"] == "failed"
    assert not left_of(process.pid or 0)
    assert results(finish(victim)) == results(never_stopped)
    assert litter(victim.path.parent) == []
