"""Stages in this process or in worker processes: what is made, said and raised is the same."""

import os
import signal
import time
from multiprocessing.context import BaseContext
from pathlib import Path

import pytest
import torch

from tests.killing import LAUNCHER
from tests.pipeline.running import Recorded, results, run_config
from tests.pipeline.small_stages import (
    Adds,
    Breaks,
    Endless,
    EndsAnyway,
    NotesThreads,
    NotFiniteOnce,
    SavesWhenStopped,
    Slow,
    Small,
    Vanishes,
)
from unbraid.errors import Lost, NotFinite, Stopped, UserError
from unbraid.pipeline.executors import PROCESSES, execute, pooled_stages, workers_for
from unbraid.pipeline.stage import Context, Stage, in_order, make, to_make
from unbraid.progress import Silent, TaskProgress
from unbraid.signals import StopSignals
from unbraid.storage.cache import Cache
from unbraid.storage.files import read_json

PATIENCE_SECONDS = 60


@pytest.fixture
def two_threads(monkeypatch: pytest.MonkeyPatch):
    """As on a machine with two cores: two workers."""
    monkeypatch.setattr("torch.get_num_threads", lambda: 2)


@pytest.fixture
def launched(two_threads, monkeypatch: pytest.MonkeyPatch):
    """Two workers that need not import everything first, which takes five seconds each."""
    monkeypatch.setattr("unbraid.pipeline.executors.PROCESSES", LAUNCHER)


def make_all(stages: list[Stage], folder: Path, progress: Recorded | None = None) -> Recorded:
    progress, cache = progress or Recorded(), Cache(folder / "cache")
    missing = to_make(stages, cache, progress.say)
    pooled = pooled_stages(in_order(stages))
    progress.plan([stage.task() for stage in missing], workers_for(missing, pooled))
    with StopSignals("unbraid resume x") as signals:
        execute(missing, pooled, cache, progress, signals)
    return progress


def four(stage: type[Small], folder: Path, **settings: object) -> list[Stage]:
    return [stage(f"stage {number}", number, str(folder), **settings) for number in range(4)]


def noted(folder: Path, word: str) -> dict[str, str]:
    return {path.name.split("-")[1]: path.read_text() for path in folder.glob(f"{word}-*")}


def wait_until(condition) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def is_alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_every_stage_is_made_in_another_process_and_reported(tmp_path: Path, launched):
    progress = make_all(four(Small, tmp_path), tmp_path)
    made = noted(tmp_path, "made")
    assert sorted(made) == ["0", "1", "2", "3"]
    assert str(os.getpid()) not in made.values()
    assert sorted(progress.said) == [f"stage {number}" for number in range(4)]
    assert progress._time.share() == 1


def test_with_one_thread_or_one_stage_no_process_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    make_all(four(Small, tmp_path), tmp_path)
    assert set(noted(tmp_path, "made").values()) == {str(os.getpid())}
    monkeypatch.setattr("torch.get_num_threads", lambda: 2)
    make_all([Small("alone", 9, str(tmp_path))], tmp_path)
    assert noted(tmp_path, "made")["9"] == str(os.getpid())


def test_what_workers_make_does_not_depend_on_what_is_there_already(tmp_path: Path, launched):
    """A worker has one thread, this process all: a sum would round otherwise, and a resumed run end with other bits."""
    stages = four(Small, tmp_path)
    for stage in stages[:3]:
        make_one(stage, tmp_path / "cache")
    assert noted(tmp_path, "made")["2"] == str(os.getpid())
    make_all(stages, tmp_path)
    assert noted(tmp_path, "made")["3"] != str(os.getpid())
    assert pooled_stages(stages) == {stage.key for stage in stages}
    assert pooled_stages(stages[:1]) == frozenset()


def test_a_stage_waits_for_its_inputs_in_other_workers(tmp_path: Path, launched):
    numbers = tuple(four(Small, tmp_path))
    total = Adds("total", 10, str(tmp_path), numbers)
    double = Adds("double", 11, str(tmp_path), (total, numbers[3]))
    make_all([double], tmp_path)
    assert read_json(Cache(tmp_path / "cache").folder(total.key) / "number.json") == 0 + 1 + 2 + 3
    assert read_json(Cache(tmp_path / "cache").folder(double.key) / "number.json") == 6 + 3


def test_what_a_stage_refuses_is_raised_here(tmp_path: Path, launched):
    with pytest.raises(NotFinite, match=r"^the loss of member 0 is not finite at step 7; look there$"):
        make_all(four(NotFiniteOnce, tmp_path), tmp_path)


def test_a_bug_keeps_its_traceback(tmp_path: Path, launched):
    with pytest.raises(RuntimeError, match="no such thing"):
        make_all(four(Breaks, tmp_path), tmp_path)


@pytest.mark.parametrize(
    ("by_signal", "end"),
    [(False, "ended with exit code 3"), (True, "was killed by SIGKILL, as happens when memory runs out")],
)
def test_a_worker_that_dies_is_reported_and_no_other_stage_begun(tmp_path: Path, launched, by_signal: bool, end: str):
    sentence = rf"^the process at work on 'stage \d' {end}; what was saved is kept; go on with: unbraid resume x$"
    with pytest.raises(Lost, match=sentence):
        make_all(four(Vanishes, tmp_path, by_signal=by_signal), tmp_path)
    assert noted(tmp_path, "begun").keys() <= {"0", "1"}


def test_a_signal_that_finds_no_stage_in_training_still_stops_the_run(tmp_path: Path, launched):
    """As when it comes while models are evaluated: what is not begun is not passed over in silence."""
    with pytest.raises(Stopped, match=r"^stopped with [12] of 4 stages done; go on with: unbraid resume x$"):
        make_all(four(EndsAnyway, tmp_path), tmp_path)
    assert noted(tmp_path, "begun").keys() <= {"0", "1"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_lets_every_stage_at_work_save_and_begins_no_other(tmp_path: Path, launched, number: int):
    with pytest.raises(Stopped) as stopped:
        make_all(four(SavesWhenStopped, tmp_path, number_sent=int(number)), tmp_path)
    assert stopped.value.signal == number
    begun, saved = noted(tmp_path, "begun"), noted(tmp_path, "saved")
    assert begun == saved
    assert {"0"} <= begun.keys() <= {"0", "1"}
    assert isinstance(stopped.value, UserError)


def test_every_library_of_a_worker_has_one_thread(tmp_path: Path, two_threads, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)
    make_all(four(NotesThreads, tmp_path), tmp_path)
    assert noted(tmp_path, "threads") == dict.fromkeys("0123", "1 1")
    assert os.environ["OMP_NUM_THREADS"] == "2"
    assert "NUMBA_NUM_THREADS" not in os.environ


def coordinate_endless(folder: Path) -> None:
    torch.set_num_threads(2)
    make_all(four(Endless, folder), folder)


def test_a_parent_that_dies_takes_its_workers_with_it(tmp_path: Path):
    parent = LAUNCHER.Process(target=coordinate_endless, args=(tmp_path,))
    parent.start()
    wait_until(lambda: len([pid for pid in noted(tmp_path, "begun").values() if pid]) == 2)
    workers = [int(process) for process in noted(tmp_path, "begun").values()]
    assert all(map(is_alive, workers))
    parent.kill()
    parent.join()
    wait_until(lambda: not any(map(is_alive, workers)))


def make_one(stage: Stage, cache: Path) -> None:
    progress = Silent()
    progress.plan([stage.task()])
    make(stage, Cache(cache), TaskProgress(progress, 0), StopSignals("unbraid resume x"))


def test_of_two_processes_that_want_one_stage_one_waits_and_it_is_made_once(tmp_path: Path):
    stage = Slow("slow", 7, str(tmp_path))
    processes = [LAUNCHER.Process(target=make_one, args=(stage, tmp_path / "cache")) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(PATIENCE_SECONDS)
    assert [process.exitcode for process in processes] == [0, 0]
    assert len((tmp_path / "made").read_text().split()) == 1
    assert Cache(tmp_path / "cache").has(stage.key, print)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [stage.key], "no lock is left"


def test_whoever_waits_for_another_process_can_be_stopped(tmp_path: Path):
    stage, cache = Slow("slow", 7, str(tmp_path)), Cache(tmp_path / "cache")
    signals = StopSignals("unbraid resume x")
    signals.received = signal.SIGTERM
    with (
        cache.making(stage.key, lambda: False),
        pytest.raises(UserError, match=r"^stopped while another process makes"),
    ):
        make(stage, Cache(cache.path), TaskProgress(Silent(), 0), signals)
    assert not (tmp_path / "made").exists()


MODELS = """
kind = "models"
[world]
people = 2
places = 3
rounds = 2
kind = "stories"
[model]
d_model = 8
heads = 2
layers = 1
d_ff = 8
[model.training]
steps = 6
batch = 8
[model.evaluation]
stories = 20
heads = 10
[cases.plain]
[cases.orthogonality.constraints.orthogonality]
weight = 0.1
[cases.dropout.model]
dropout = 0.1
"""
PIPELINE = """
kind = "pipeline"
[world]
kind = "stories"
people = 2
places = 3
rounds = 2
[model]
d_model = 8
heads = 2
layers = 1
d_ff = 8
[model.training]
steps = 6
batch = 8
[model.evaluation]
stories = 20
heads = 10
[activations]
stories = 200
[dictionary]
d_sae = 8
[training]
steps = 8
batch = 32
[evaluation]
samples = 200
[sweep]
"model.seed" = [0, 1]
"""


@pytest.mark.parametrize(
    ("config", "processes"), [(MODELS, PROCESSES), (PIPELINE, LAUNCHER)], ids=["models", "pipeline"]
)
def test_in_process_and_in_workers_the_same_bits_are_made(
    config: str, processes: BaseContext, tmp_path: Path, monkeypatch
):
    names = ("weights.safetensors", "log.jsonl", "scores.json", "tables.safetensors")
    here = run_config(tmp_path / "here", "run", config)
    monkeypatch.setattr("torch.get_num_threads", lambda: 2)
    monkeypatch.setattr("unbraid.pipeline.executors.PROCESSES", processes)
    monkeypatch.setattr("unbraid.pipeline.executors._Worker.take", counted := Counted())
    workers = run_config(tmp_path / "workers", "run", config)
    assert counted.stages >= 4, "workers made some"
    assert results(workers, *names) == results(here, *names)


class Counted:
    """Counts the stages that workers are given."""

    def __init__(self) -> None:
        from unbraid.pipeline.executors import _Worker

        self.take, self.stages = _Worker.take, 0

    def __get__(self, worker, _kind):
        def take(index, stage):
            self.stages += stage is not None
            self.take(worker, index, stage)

        return take


def test_a_stage_reads_its_inputs_and_nothing_else(tmp_path: Path):
    """Else it may be made before what it reads, or while that is made again."""
    one, other = four(Small, tmp_path)[:2]
    context = Context(tmp_path, Cache(tmp_path), TaskProgress(Silent(), 0), StopSignals("resume"), frozenset({one.key}))
    assert context.of(one) == tmp_path / one.key
    with pytest.raises(TypeError, match="not among its inputs"):
        context.of(other)
