"""On a real Ray cluster of several nodes: nodes and drivers killed, workers frozen, two drivers; the same bits."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.pipeline.running import Recorded, run_config
from tests.pipeline.small_stages import Counts, NotesThreads
from tests.scale.conftest import ROOT, add_node
from unbraid.config import JsonDict, to_toml
from unbraid.errors import Lost, UserError
from unbraid.pipeline.cluster import OnCluster
from unbraid.pipeline.executors import Needs
from unbraid.pipeline.ray_cluster import RayCluster
from unbraid.pipeline.stage import Stage
from unbraid.signals import StopSignals
from unbraid.storage import leases
from unbraid.storage.cache import Cache
from unbraid.storage.files import read_json
from unbraid.storage.runs import Run
from unbraid.storage.store import Store

pytestmark = [pytest.mark.scale, pytest.mark.filterwarnings("ignore")]  # Ray's own, of files and sockets
PATIENCE_SECONDS = 180
KILLS = int(os.environ.get("UNBRAID_KILLS", "4"))
"""Random kills of workers, nodes and drivers in one run; the figure to reach is for 20."""
CONFIG: JsonDict = {
    "world": {"dimensions": 12, "n_features": 16, "active": 2.0},
    "dictionary": {"d_sae": 16},
    "training": {"steps": 1500, "batch": 64},
    "mechanisms": {"sparsity": {"weight": 0.1}},
    "evaluation": {"samples": 512},
    "checkpoints": {"log_every": 100, "every": 20},
    "sweep": {"world.seed": [0, 1, 2]},
}
FILES = ("weights.safetensors", "log.jsonl", "scores.json", "tables.safetensors", "members.json")
DRIVE = """
import sys
from unbraid.storage import leases
leases.SECONDS = 4.0
import unbraid.cli.work as work
def write_line(runs, path):
    path.write_text("a report\\n")
    return path
work.write_report = write_line
from unbraid.cli import app, guarded
sys.exit(guarded(lambda: app(sys.argv[1:])))
"""
"""A driver whose leases lapse soon, and whose report is one line."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(leases, "SECONDS", 4.0)


def drive(*words: str, address: str, folder: Path) -> subprocess.Popen:
    environment = {**os.environ, "RAY_ADDRESS": address, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", DRIVE, *words, "--runs", str(folder), "--on", "ray"]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen) -> tuple[int, str]:
    _, said = process.communicate(timeout=PATIENCE_SECONDS)
    return process.returncode, said


def make_all(stages: list[Stage], folder: Path, address: str, store: Store | None = None, threads: int = 1) -> Recorded:
    progress, cache = Recorded(), Cache(folder / "cache")
    executor = OnCluster(RayCluster(address), store)
    needs = {stage.key: Needs(threads=threads) for stage in stages}
    progress.plan([stage.task() for stage in stages], executor.workers(stages, needs))
    with StopSignals("unbraid resume x") as signals:
        executor.execute(stages, needs, cache, progress, signals)
        executor.fetch(stages, cache, progress)
    return progress


def wait_for(condition) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def processes(folder: Path, number: int) -> list[int]:
    """Those that began a counting stage, the first first."""
    paths = sorted(folder.glob(f"begun-*-at-*-{number}"), key=lambda path: path.stat().st_mtime_ns)
    return [int(path.name.split("-")[1]) for path in paths]


def node_of(process: int, members: list):
    """The node whose raylet started this process."""
    parent = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    raylets = {node.all_processes["raylet"][0].process.pid: node for node in members}
    return raylets[parent]


def number_of(stage: Stage, folder: Path) -> int:
    return read_json(Cache(folder / "cache").folder(stage.key) / "number.json")


def litter(folder: Path) -> list[str]:
    return [path.name for path in (folder / "cache").iterdir() if path.name.startswith(".")]


def reached(stage: Stage, folder: Path) -> int:
    """The step that the newest attempt at a stage has saved."""
    saved = [path / "checkpoints" / "step.json" for path in Cache(folder / "cache").attempts(stage.key)[-1:]]
    with suppress(OSError, ValueError):
        return int(saved[0].read_text()) if saved else 0
    return 0


def written(run: Run) -> dict[str, bytes]:
    return {f"{folder.name}/{name}": (folder / name).read_bytes() for folder in run.stacks() for name in FILES}


@pytest.mark.parametrize("without_a_disk", [False, True], ids=["shared disk", "store"])
def test_stages_are_made_on_the_cluster_with_the_threads_of_this_machine(tmp_path: Path, nodes, without_a_disk: bool):
    cluster, _ = nodes(2)
    store = Store(f"file://{tmp_path}/store") if without_a_disk else None
    stages = [NotesThreads(f"threads {number}", number, str(tmp_path)) for number in range(3)]
    make_all(stages, tmp_path, cluster.address, store)
    assert [(tmp_path / f"threads-{number}").read_text() for number in range(3)] == ["1 1"] * 3
    assert litter(tmp_path) == []
    with pytest.raises(UserError, match=r"takes 8 threads, 0 GPUs and 0.0 GiB, which no node has \(the largest has 1"):
        make_all([Counts("wide", 9, str(tmp_path))], tmp_path, cluster.address, threads=8)


def test_a_node_killed_mid_stage_is_replaced_by_another(tmp_path: Path, nodes):
    cluster, members = nodes(2)
    stage = Counts("counting", 1, str(tmp_path), length=1000)

    def kill() -> None:
        wait_for(lambda: reached(stage, tmp_path) >= 30)
        cluster.remove_node(node_of(processes(tmp_path, 1)[0], members), allow_graceful=False)

    thread = threading.Thread(target=kill)
    thread.start()
    progress = make_all([stage], tmp_path, cluster.address)
    thread.join()
    assert any("is handed out again" in sentence for sentence in progress.said), progress.said
    assert len(processes(tmp_path, 1)) == 2
    assert number_of(stage, tmp_path) == 1 + sum(range(1000))
    assert litter(tmp_path) == []


def test_a_worker_frozen_past_its_lease_cannot_write_over_who_took_its_place(tmp_path: Path, nodes):
    """The third stage goes on until the first worker, awake again, has counted to its end."""
    cluster, _ = nodes(3)
    stage = Counts("frozen", 1, str(tmp_path), frozen_at=10)
    slow = Counts("slow", 2, str(tmp_path), length=800, seconds=0.05)
    cache, seen = Cache(tmp_path / "cache"), {}
    place = cache.folder(stage.key)

    def thaw() -> None:
        wait_for(lambda: (place / "checksums.json").is_file() and not (place / "checkpoints").exists())
        seen.update({path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in place.iterdir()})
        frozen = processes(tmp_path, 1)[0]
        state = (Path("/proc") / str(frozen) / "stat").read_text().rpartition(")")[2].split()[0]
        os.kill(frozen, signal.SIGCONT)
        seen["state"] = state

    thread = threading.Thread(target=thaw)
    thread.start()
    progress = make_all([stage, slow], tmp_path, cluster.address)
    thread.join()
    assert seen.pop("state") == "T", "it was frozen until the other was done"
    assert {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in place.iterdir()} == seen
    assert len(processes(tmp_path, 1)) == 2
    assert any("has said nothing for" in sentence for sentence in progress.said)
    assert litter(tmp_path) == []


def test_two_drivers_on_one_run(tmp_path: Path, nodes):
    """On one run the second is refused; on two runs that share stages each is made once."""
    cluster, _ = nodes(2)
    (tmp_path / "small.toml").write_text(to_toml(CONFIG))
    first = drive("run", str(tmp_path / "small.toml"), "--name", "one", address=cluster.address, folder=tmp_path)
    wait_for(lambda: list((tmp_path / "cache").glob(".leases/*/*.json")))
    again = drive("resume", "one", address=cluster.address, folder=tmp_path)
    beside = drive("run", str(tmp_path / "small.toml"), "--name", "two", address=cluster.address, folder=tmp_path)
    code, said = ended(again)
    assert (code, "is being written by another process" in said) == (2, True), said
    assert [ended(process)[0] for process in (first, beside)] == [0, 0]
    assert written(Run(tmp_path / "one")) == written(Run(tmp_path / "two"))
    assert litter(tmp_path) == []


def test_ctrl_c_saves_and_resuming_gives_the_same_bits(tmp_path: Path, nodes):
    cluster, _ = nodes(2)
    here = run_config(tmp_path / "here", "run", CONFIG)
    (tmp_path / "small.toml").write_text(to_toml(CONFIG))
    first = drive("run", str(tmp_path / "small.toml"), "--name", "run", address=cluster.address, folder=tmp_path)
    wait_for(lambda: list((tmp_path / "cache").glob(".train*/checkpoints/*.json")))
    first.send_signal(signal.SIGINT)
    code, said = ended(first)
    assert (code, "and saved" in said) == (130, True), said
    assert Run(tmp_path / "run").status()["state"] == "stopped"
    code, said = ended(drive("resume", "run", address=cluster.address, folder=tmp_path))
    assert code == 0, said
    assert written(Run(tmp_path / "run")) == written(here)
    assert litter(tmp_path) == []


def test_after_random_kills_of_workers_nodes_and_driver_the_same_bits(tmp_path: Path, nodes):
    """Each falls a moment after something more was saved; enough steps that there is time for all of them."""
    cluster, members = nodes(2)
    config = {**CONFIG, "training": {"steps": 1000 * KILLS, "batch": 64}}
    here = run_config(tmp_path / "here", "run", config)
    (tmp_path / "small.toml").write_text(to_toml(config))
    dice, kills = random.Random(os.environ.get("UNBRAID_SEED", "0")), []
    driver = drive("run", str(tmp_path / "small.toml"), "--name", "run", address=cluster.address, folder=tmp_path)
    run = Run(tmp_path / "run")
    wait_for(lambda: (run.path / "run.json").is_file())
    while len(kills) < KILLS and not run.is_finished:
        if driver.poll() is not None:
            driver = drive("resume", "run", address=cluster.address, folder=tmp_path)
        wait_until_further(driver, tmp_path, progressed(tmp_path))
        time.sleep(dice.uniform(0, 0.5))
        kills += kill_something(dice, cluster, members, driver, tmp_path)
    said = [ended(driver)]
    while not run.is_finished and len(said) < 5:  # a driver that was killed, or whose stage was lost too often
        said.append(ended(drive("resume", "run", address=cluster.address, folder=tmp_path)))
    assert run.is_finished, said
    assert written(run) == written(here), kills
    assert litter(tmp_path) == []
    assert len(kills) >= KILLS // 2, kills


def progressed(folder: Path) -> set[str]:
    """What is saved, by name: it changes with every checkpoint and stage."""
    found: set[str] = set()
    with suppress(OSError):
        found = {
            str(path)
            for path in (folder / "cache").rglob("*.json")
            if "checkpoints" in path.parts or path.name == "checksums.json"
        }
    return found


def wait_until_further(driver: subprocess.Popen, folder: Path, before: set[str]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while driver.poll() is None and progressed(folder) == before and time.monotonic() < deadline:
        time.sleep(0.05)


def kill_something(dice: random.Random, cluster, members: list, driver: subprocess.Popen, folder: Path) -> list[str]:
    """A worker at work, a node (another comes in its place), or the driver; what was killed."""
    match dice.choice(["worker", "worker", "node", "driver"]):
        case "node":
            node = members.pop(dice.randrange(len(members)))
            cluster.remove_node(node, allow_graceful=False)
            members.append(add_node(cluster))
            return ["node"]
        case "driver":
            driver.kill()
            driver.wait()
            return ["driver"]
        case _:
            for path in (folder / "cache").glob(".leases/*/*.json"):
                with suppress(OSError, ValueError, KeyError, UserError):
                    os.kill(int(read_json(path)["process"]), signal.SIGKILL)
                    return ["worker"]
            return []


def test_where_nobody_answers_is_one_sentence():
    with pytest.raises(UserError, match=r"^cannot reach Ray at 127.0.0.1:1: .*; accepted: the address of a cluster"):
        RayCluster("127.0.0.1:1").open()


def test_what_workers_raise_comes_home(tmp_path: Path, nodes):
    from tests.pipeline.small_stages import NotFiniteOnce, Vanishes
    from unbraid.errors import NotFinite

    cluster, _ = nodes(1)
    with pytest.raises(NotFinite, match="the loss of member 0 is not finite at step 7; look there"):
        make_all([NotFiniteOnce("bad", 1, str(tmp_path))], tmp_path, cluster.address)
    with pytest.raises(Lost, match=r"^'gone' was lost 3 times: its process died;"):
        make_all([Vanishes("gone", 0, str(tmp_path))], tmp_path, cluster.address)
