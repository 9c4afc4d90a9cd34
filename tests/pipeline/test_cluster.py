"""Whoever drives a cluster: lost, frozen and other people's workers; here on processes, on Ray in tests/scale."""

import os
import shutil
import signal
import threading
import time
from pathlib import Path

import pytest

from tests.pipeline.process_cluster import ProcessCluster
from tests.pipeline.running import Recorded
from tests.pipeline.small_stages import Adds, Breaks, Counts, NotesThreads, NotFiniteOnce, Small, Vanishes
from unbraid.config.plugins import Plugin
from unbraid.errors import Lost, NotFinite, Stopped, UserError
from unbraid.pipeline import cluster as clusters
from unbraid.pipeline.cluster import OnCluster
from unbraid.pipeline.executors import Needs
from unbraid.pipeline.stage import Stage, to_make
from unbraid.signals import StopSignals
from unbraid.storage import leases
from unbraid.storage.cache import Cache
from unbraid.storage.files import read_json
from unbraid.storage.store import Store
from unbraid.work import executor_for

PATIENCE_SECONDS = 60


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Leases that lapse soon; and no litter in the machine's temporary folder."""
    monkeypatch.setattr(leases, "SECONDS", 1.0)
    monkeypatch.setattr(clusters, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(clusters, "LOOK_SECONDS", 0.1)
    yield
    shutil.rmtree(clusters._scratch(f"file://{tmp_path}/store"), ignore_errors=True)


def make_all(
    stages: list[Stage], folder: Path, cluster: ProcessCluster, store: Store | None = None, progress=None
) -> Recorded:
    progress, cache = progress or Recorded(), Cache(folder / "cache")
    missing = to_make(stages, cache, progress.say)
    needs, executor = {stage.key: Needs() for stage in missing}, OnCluster(cluster, store)
    progress.plan([stage.task() for stage in missing], executor.workers(missing, needs))
    with StopSignals("unbraid resume x") as signals:
        executor.execute(missing, needs, cache, progress, signals)
        executor.fetch(stages, cache, progress)
    return progress


def number_of(stage: Stage, folder: Path) -> int:
    return read_json(Cache(folder / "cache").folder(stage.key) / "number.json")


def wait_for(condition) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def litter(folder: Path) -> list[str]:
    return [path.name for path in (folder / "cache").iterdir() if path.name.startswith(".")]


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir()}


def beginnings(folder: Path, number: int) -> list[int]:
    """The steps that processes began a counting stage at, in order."""
    paths = sorted(folder.glob(f"begun-*-at-*-{number}"), key=lambda path: path.stat().st_mtime_ns)
    return [int(path.name.split("-")[3]) for path in paths]


@pytest.mark.parametrize("without_a_disk", [False, True])
def test_stages_are_made_elsewhere_inputs_first_and_what_they_say_is_heard(tmp_path: Path, without_a_disk: bool):
    store = Store(f"file://{tmp_path}/store") if without_a_disk else None
    numbers = tuple(Small(f"stage {number}", number, str(tmp_path)) for number in range(3))
    total = Adds("total", 10, str(tmp_path), numbers)
    progress = make_all([total], tmp_path, ProcessCluster(), store)
    assert number_of(total, tmp_path) == 3
    assert (tmp_path / "made-10").read_text() != str(os.getpid())
    assert sorted(progress.said) == ["stage 0", "stage 1", "stage 2"]
    assert progress._time.share() == 1
    assert litter(tmp_path) == []
    assert not make_all([total], tmp_path, ProcessCluster(), store).planned


def test_what_was_made_here_before_is_given_to_who_needs_it(tmp_path: Path):
    store, one = Store(f"file://{tmp_path}/store"), Small("one", 1, str(tmp_path))
    make_all([one], tmp_path, ProcessCluster())
    total = Adds("total", 10, str(tmp_path), (one,))
    make_all([total], tmp_path, ProcessCluster(), store)
    assert number_of(total, tmp_path) == 1
    assert Store(store.url).has(one.key)


def test_a_lost_worker_is_replaced_and_its_work_gone_on_with(tmp_path: Path):
    stage, cluster = Counts("counting", 1, str(tmp_path)), ProcessCluster()

    def kill() -> None:
        saved = tmp_path / "cache" / f".{stage.key}.1" / "checkpoints" / "step.json"
        wait_for(lambda: saved.is_file() and int(saved.read_text() or 0) >= 10)
        cluster.jobs[0][1].kill()

    thread = threading.Thread(target=kill)
    thread.start()
    progress = make_all([stage], tmp_path, cluster)
    thread.join()
    assert progress.said == ["'counting' is handed out again: its process died"]
    first, second = beginnings(tmp_path, 1)
    assert (first, second >= 9) == (0, True)
    assert number_of(stage, tmp_path) == 1 + sum(range(40))
    assert litter(tmp_path) == []


def test_a_stage_that_is_lost_again_and_again_ends_the_run(tmp_path: Path):
    with pytest.raises(Lost, match=r"^'gone' was lost 3 times: its process died; .* go on with: unbraid resume x$"):
        make_all([Vanishes("gone", 0, str(tmp_path))], tmp_path, ProcessCluster())


def test_who_was_frozen_past_its_lease_cannot_write_over_who_took_its_place(tmp_path: Path):
    """SIGSTOP at step 10; another finishes; SIGCONT, while a slow stage keeps the run going: it counts to its end."""
    stage = Counts("frozen", 1, str(tmp_path), frozen_at=10)
    slow, cluster = Counts("slow", 2, str(tmp_path), length=120, seconds=0.03), ProcessCluster()
    cluster.spared = True
    place, seen = Cache(tmp_path / "cache").folder(stage.key), {}

    def thaw() -> None:
        wait_for(lambda: (place / "checksums.json").is_file() and not (place / "checkpoints").exists())
        seen.update(contents(place))
        frozen = cluster.of("frozen")[0]
        os.kill(frozen.pid or 0, signal.SIGCONT)
        frozen.join(PATIENCE_SECONDS)
        seen["exit"] = frozen.exitcode

    thread = threading.Thread(target=thaw)
    thread.start()
    progress = make_all([stage, slow], tmp_path, cluster)
    thread.join()
    assert seen.pop("exit") == 0, "it went on to its end"
    assert (tmp_path / "outcome-1-0").read_text() == "superseded"
    assert (tmp_path / "outcome-1-1").read_text() == "made"
    assert contents(place) == seen
    assert beginnings(tmp_path, 1) == [0, 10], "the second went on from where the first was stopped"
    assert any("has said nothing for" in sentence for sentence in progress.said)
    assert number_of(stage, tmp_path) == 1 + sum(range(40))
    assert litter(tmp_path) == [], "what the first made is gone"


def test_a_second_driver_waits_for_the_first_ones_workers(tmp_path: Path):
    """As when a driver is killed and its jobs go on, or two runs need one stage: it is made once."""
    stage = Counts("counting", 1, str(tmp_path), length=60)
    first, second = ProcessCluster(), ProcessCluster()
    threads = [threading.Thread(target=make_beside, args=(stage, tmp_path, each)) for each in (first, second)]
    threads[0].start()
    wait_for(lambda: beginnings(tmp_path, 1))
    threads[1].start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert beginnings(tmp_path, 1) == [0]
    assert number_of(stage, tmp_path) == 1 + sum(range(60))
    assert litter(tmp_path) == []


def make_beside(stage: Stage, folder: Path, cluster: ProcessCluster) -> None:
    """As `make_all`, for a thread: only the main one answers signals."""
    progress, cache = Recorded(), Cache(folder / "cache")
    progress.plan([stage.task()])
    OnCluster(cluster).execute([stage], {stage.key: Needs()}, cache, progress, StopSignals("unbraid resume x"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_signal_lets_workers_save_and_a_second_run_goes_on(tmp_path: Path, number: int):
    stages = [Counts(f"counting {index}", index, str(tmp_path), length=100) for index in range(2)]

    def interrupt() -> None:
        wait_for(lambda: beginnings(tmp_path, 0) and beginnings(tmp_path, 1))
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(Stopped, match=r"and saved stage [01] at step \d+; go on with: unbraid resume x$") as stopped:
        make_all(stages, tmp_path, ProcessCluster())
    thread.join()
    assert stopped.value.signal == number
    make_all(stages, tmp_path, ProcessCluster())
    for index, stage in enumerate(stages):
        first, second = beginnings(tmp_path, index)
        assert (first, second > 0) == (0, True)
        assert number_of(stage, tmp_path) == index + sum(range(100))
    assert litter(tmp_path) == []


def test_what_fails_stops_the_others_and_is_raised_here(tmp_path: Path):
    with pytest.raises(NotFinite, match=r"^the loss of member 0 is not finite at step 7; look there$"):
        make_all([NotFiniteOnce("bad", 1, str(tmp_path)), Counts("good", 2, str(tmp_path))], tmp_path, ProcessCluster())
    with pytest.raises(RuntimeError, match="no such thing"):
        make_all([Breaks("bug", 3, str(tmp_path))], tmp_path, ProcessCluster())


def test_what_a_run_of_this_machine_left_is_gone_on_with_and_the_other_way_round(tmp_path: Path):
    stage, cache = Counts("counting", 1, str(tmp_path), length=12), Cache(tmp_path / "cache")
    (cache.folder(stage.key) / "checkpoints").mkdir(parents=True)
    (cache.folder(stage.key) / "checkpoints" / "step.json").write_text("5")
    make_all([stage], tmp_path, ProcessCluster())
    assert beginnings(tmp_path, 1) == [5]
    assert litter(tmp_path) == []


def test_a_worker_that_is_not_where_the_driver_is_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    stage = Small("one", 1, str(tmp_path))
    monkeypatch.setattr(clusters, "versions", lambda: ("0.0", "0.0"))
    with pytest.raises(UserError, match=r"^a worker has unbraid and torch .*, the driver 0.0 and 0.0; accepted"):
        make_all([stage], tmp_path, ProcessCluster())
    monkeypatch.undo()
    monkeypatch.setattr(clusters._Driver, "_note", lambda *_: None)
    with pytest.raises(UserError, match=r"^a worker does not see .*; accepted: a folder on a disk that all"):
        make_all([stage], tmp_path, ProcessCluster())


def test_a_worker_has_the_threads_that_the_stage_has_here(tmp_path: Path):
    """That its environment says so too is the cluster's business: tests/scale."""
    stage, cluster = NotesThreads("threads", 1, str(tmp_path)), ProcessCluster()
    progress = Recorded()
    progress.plan([stage.task()])
    cache, needs = Cache(tmp_path / "cache"), {stage.key: Needs(threads=1)}
    OnCluster(cluster).execute([stage], needs, cache, progress, StopSignals("x"))
    assert cluster.jobs[0][0].needs.threads == 1
    assert (tmp_path / "threads-1").read_text().split()[0] == "1"


@pytest.mark.parametrize(
    ("on", "store", "sentence"),
    [
        ("moon", None, "--on 'moon' is no cluster; accepted: ray, ray://HOST:PORT, slurm or slurm://PARTITION"),
        (None, "file:///x", "--store is for a cluster, and this machine makes the stages; accepted: with --on"),
        ("ray", "nothing://x", "'nothing://x' cannot be opened"),
    ],
)
def test_what_is_no_cluster_is_refused(on: str | None, store: str | None, sentence: str):
    with pytest.raises(UserError) as refused:
        executor_for(on, store)
    assert str(refused.value).startswith(sentence)


def test_a_plugin_that_the_machines_have_not_got_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    plugins = {origin: Plugin(origin, "mine", "0" * 64, "mine.py", ()) for origin in ("file", "session", "package")}
    for origin in ("file", "session"):
        monkeypatch.setattr(clusters, "used_by", lambda *_, origin=origin: (plugins["package"], plugins[origin]))
        cluster = ProcessCluster()
        with pytest.raises(UserError, match=r"mine\.py was given with --on.*accepted: a plugin that is an installed"):
            make_all([Adds("total", 1, str(tmp_path))], tmp_path, cluster)
        assert not cluster.jobs
