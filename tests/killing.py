"""Start runs in processes of their own and kill them; one launcher has imported everything, so a start is quick."""

import multiprocessing
import os
import random
import signal
import sys
import time
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch
from unbraid.sweeps.grid import resolve

from unbraid import cli
from unbraid.config import read_toml, to_toml
from unbraid.storage.runs import Run

LAUNCHER = multiprocessing.get_context("forkserver")
LAUNCHER.set_forkserver_preload(["unbraid.cli", "unbraid.sweeps.execute", "unbraid.reports.page"])


def make(parent: Path, name: str, text: str) -> Run:
    (parent / f"{name}.toml").write_text(text)
    return Run.create(parent, name, to_toml(resolve(read_toml(parent / f"{name}.toml"), name)))


def launch(*words: object, threads: int = 1, said: Path | None = None) -> BaseProcess:
    """A command of `unbraid`, in a session of its own with all that it starts; `said` gets its standard error."""
    process = LAUNCHER.Process(target=obey, args=([str(word) for word in words], threads, said))
    process.start()
    return process


def obey(words: list[str], threads: int, said: Path | None) -> None:
    os.setsid()
    if said is not None:
        with said.open("w") as file:
            os.dup2(file.fileno(), sys.stderr.fileno())
    torch.set_num_threads(threads)
    sys.exit(cli.guarded(lambda: cli.app(words)))


def kill(process: BaseProcess) -> None:
    """It and whatever it has started, all at once."""
    with suppress(ProcessLookupError):  # it has not begun a session yet, and is alone
        os.killpg(process.pid or 0, signal.SIGKILL)
    process.kill()
    process.join()


def newest(path: Path) -> set[str]:
    """What of a run is on disk, by name: it changes with every checkpoint, stack and score."""
    return {str(found.relative_to(path)) for found in path.rglob("*.json")}


def wait_for_progress(process: BaseProcess, path: Path, seconds: float = 60) -> None:
    """Until more is on disk, the process has ended, or so long."""
    before, deadline = newest(path), time.monotonic() + seconds
    while process.is_alive() and newest(path) == before and time.monotonic() < deadline:
        time.sleep(0.002)


def kill_until_it_ends(run: Run, dice: random.Random, most: int = sys.maxsize, threads: int = 1) -> int:
    """Kill and resume: most kills fall a random moment after the run has got a little further. Returns how many."""
    kills = 0
    while True:
        process = launch("resume", run.path, "-q", threads=threads)
        wait_for_progress(process, run.path, dice.random() if dice.random() < 0.2 else 60)
        process.join(dice.uniform(0, 0.15) if kills < most else 120)
        if not process.is_alive():
            assert process.exitcode == 0
            return kills
        kill(process)
        kills += 1


def left_of(session: int) -> dict[int, str]:
    """The processes of a session that are still there, each with its command."""
    found: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, _, _, its_session, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
            command = (folder / "cmdline").read_text()  # of one that is going, nothing
            if int(its_session) == session and state not in "ZX" and command:
                found[int(folder.name)] = command
    return found
