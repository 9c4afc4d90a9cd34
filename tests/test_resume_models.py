"""Models taught side by side, stopped in any way there is: no process is left, and the run ends with the same bits."""

import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.killing import kill, kill_until_it_ends, launch, left_of, make, newest, wait_for_progress
from tests.sweeps.test_model_work import CONFIG as SHORT
from tests.sweeps.test_model_work import results as kept_of
from tests.test_cli import launch as launch_anew
from unbraid.config import JsonDict
from unbraid.pipeline.executors import execute
from unbraid.progress import Silent
from unbraid.storage.runs import Run

CONFIG = SHORT.replace("steps = 9", "steps = 40").replace("seed = [0, 1]", '"model.d_ff" = [8, 10, 12]')
"""Other sizes, so that no two are taught together."""
KILLS = 3
SOON = 5.0
"""Seconds that a process may take to notice that it has nobody to work for."""


def results(run: Run) -> dict[str, Any]:
    """Everything a run ends with that must not depend on how it got there: all but the seconds it took."""
    return {**kept_of(run), "scores.json": without_seconds(json.loads((run.path / "scores.json").read_text()))}


def without_seconds(scores: JsonDict) -> JsonDict:
    for setting in scores["settings"]:
        assert setting["metrics"].pop("seconds")
    scores["differences"] = [one for one in scores["differences"] if one["metric"] != "seconds"]
    return scores


@pytest.fixture(scope="module")
def never_stopped(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """By one process, one model after the other."""
    run = make(tmp_path_factory.mktemp("whole"), "whole", CONFIG)
    execute(run, Silent())
    return run


@pytest.fixture
def victim(tmp_path: Path) -> Run:
    return make(tmp_path, "victim", CONFIG)


def sentences(said: Path) -> list[str]:
    """All that was said but the note that other threads work now than made the run."""
    return [line for line in said.read_text().splitlines() if not line.startswith("note: threads was 1")]


def hands_of(session: int) -> list[int]:
    return [pid for pid, command in left_of(session).items() if "spawn_main" in command]


def none_is_left(session: int) -> bool:
    """Whether all processes of a session are gone soon."""
    deadline = time.monotonic() + SOON
    while left_of(session) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not left_of(session)


def test_killed_again_and_again_it_ends_with_the_same_bits(never_stopped: Run, tmp_path: Path):
    (tmp_path / "c.toml").write_text(CONFIG)
    process = launch("run", tmp_path / "c.toml", "--runs", tmp_path, "--name", "victim", "-q", threads=2)
    wait_for_progress(process, tmp_path)
    run, began = Run(tmp_path / "victim"), time.monotonic()
    while len(newest(run.path)) < 8 and time.monotonic() < began + 60:
        time.sleep(0.002)
    assert len(hands_of(process.pid or 0)) == 2
    kill(process)
    assert run.status()["state"] == "killed"
    kill_until_it_ends(run, random.Random(2), KILLS - 1, threads=2)
    assert results(run) == results(never_stopped)


@pytest.mark.parametrize("moment", ["starting", "teaching"])
def test_ctrl_c_stops_every_process_and_says_how_to_resume(moment: str, victim: Run, never_stopped: Run):
    """At a terminal all processes get the signal, and those just starting have not got round to ignoring it."""
    two = {**os.environ, "OMP_NUM_THREADS": "2"}
    process = launch_anew("resume", victim.path, env=two, start_new_session=True)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (
        len(hands_of(process.pid)) == 2 if moment == "starting" else list(victim.path.rglob("step-*.json"))
    ):
        time.sleep(0.002)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)  # until the last process that could say something is gone
    assert process.returncode == 130, err
    assert err.splitlines()[-1].startswith("unbraid: stopped and saved at step ")
    assert err.splitlines()[-1].endswith(f"; go on with: unbraid resume {victim.path}")
    assert "Traceback" not in err
    assert not left_of(process.pid)
    assert victim.status()["state"] == "stopped"
    execute(victim, Silent())
    assert results(victim) == results(never_stopped)


def test_hands_whose_parent_is_killed_leave_by_themselves(victim: Run, never_stopped: Run, tmp_path: Path):
    process = launch("resume", victim.path, "-q", threads=2, said=tmp_path / "said")
    wait_for_progress(process, victim.path)
    assert len(hands_of(process.pid or 0)) == 2
    process.kill()
    process.join()
    assert none_is_left(process.pid or 0)
    assert sentences(tmp_path / "said") == []
    assert not (victim.path / "scores.json").exists()
    execute(victim, Silent())
    assert results(victim) == results(never_stopped)


def test_a_hand_that_is_killed_stops_the_run_in_one_sentence(victim: Run, never_stopped: Run, tmp_path: Path):
    process = launch("resume", victim.path, "-q", threads=2, said=tmp_path / "said")
    wait_for_progress(process, victim.path)
    os.kill(hands_of(process.pid or 0)[0], signal.SIGKILL)
    process.join(60)
    assert process.exitcode == 1
    (sentence,) = sentences(tmp_path / "said")
    assert sentence.startswith("unbraid: the process at work on stack ")
    assert "was killed by SIGKILL" in sentence
    assert sentence.endswith(f"; go on with: unbraid resume {victim.path}")
    assert victim.status()["state"] == "failed"
    assert not left_of(process.pid or 0)
    execute(victim, Silent())
    assert results(victim) == results(never_stopped)
