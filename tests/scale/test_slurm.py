"""Jobs as submitit starts them, by its local executor: what Slurm itself does with them was never seen here."""

import os
import signal
import threading
from pathlib import Path

import pytest

from tests.pipeline.running import Recorded
from tests.pipeline.small_stages import Adds, Counts, NotesThreads, Small
from tests.scale.test_ray import litter, number_of, processes, reached, wait_for
from unbraid.errors import UserError
from unbraid.pipeline.cluster import OnCluster
from unbraid.pipeline.executors import Needs
from unbraid.pipeline.slurm import Slurm
from unbraid.pipeline.stage import Stage
from unbraid.signals import StopSignals
from unbraid.storage import leases
from unbraid.storage.cache import Cache

pytestmark = [pytest.mark.scale, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(autouse=True)
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Jobs import what the test imports, and leave their files in a folder of the test's."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setattr(leases, "SECONDS", 4.0)
    monkeypatch.chdir(tmp_path)


def make_all(stages: list[Stage], folder: Path) -> Recorded:
    progress, cache = Recorded(), Cache(folder / "cache")
    executor, needs = OnCluster(Slurm(cluster="local")), {stage.key: Needs() for stage in stages}
    progress.plan([stage.task() for stage in stages], executor.workers(stages, needs))
    with StopSignals("unbraid resume x") as signals:
        executor.execute(stages, needs, cache, progress, signals)
    return progress


def test_jobs_make_stages_inputs_first_with_one_thread(tmp_path: Path):
    one, threads = Small("one", 1, str(tmp_path)), NotesThreads("threads", 2, str(tmp_path))
    total = Adds("total", 10, str(tmp_path), (one,))
    progress = make_all([one, threads, total], tmp_path)
    assert number_of(total, tmp_path) == 1
    assert (tmp_path / "threads-2").read_text() == "1 1"
    assert progress.said == ["stage 1"]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    assert litter(tmp_path) == []


def test_a_job_that_is_killed_is_submitted_again_and_goes_on(tmp_path: Path):
    stage = Counts("counting", 1, str(tmp_path), length=100)

    def kill() -> None:
        wait_for(lambda: reached(stage, tmp_path) >= 20)
        os.kill(processes(tmp_path, 1)[0], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    progress = make_all([stage], tmp_path)
    thread.join()
    assert len(processes(tmp_path, 1)) == 2
    assert number_of(stage, tmp_path) == 1 + sum(range(100))
    assert "is handed out again: job" in progress.said[0]
    assert litter(tmp_path) == []


def test_a_machine_without_slurm_says_so():
    with pytest.raises(UserError, match="--on slurm was given and there is no sbatch here; accepted: a machine that"):
        Slurm()
