"""Start runs in processes of their own and kill them; one launcher has imported everything, so a start is quick."""

import json
import multiprocessing
import os
import random
import signal
import sys
import time
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from unbraid import cli, work
from unbraid.config import read_toml, to_toml
from unbraid.pipeline.expand import expand
from unbraid.storage.checksums import PROGRESS
from unbraid.storage.runs import Run

LAUNCHER = multiprocessing.get_context("forkserver")
LAUNCHER.set_forkserver_preload(
    [
        *("unbraid.cli", "unbraid.work", "unbraid.pipeline.kinds", "tests.pipeline.small_stages", "scipy.stats"),
        *(
            "kmedoids",
            "sklearn.cluster",
            "sklearn.decomposition",
            "sklearn.linear_model",
            "sklearn.manifold",
            "sklearn.svm",
        ),
    ]
)
SOON = 5.0
"""Seconds that a process may take to notice that it has nobody to work for."""

DICTIONARIES = """
[world]
dimensions = 16
n_features = 24
active = 3.0
[training]
steps = 300
batch = 64
clip = 1.0
warmup_steps = 10
decay_steps = 50
[dictionary]
d_sae = 32
pre_bias = true
[mechanisms.sparsity]
weight = 0.1
[evaluation]
samples = 1024
[checkpoints]
log_every = 2
every = 3
[tracking]
checks = 6
samples = 300
[sweep]
"dictionary.activation" = [{ kind = "relu" }, { kind = "topk", k = 4 }]
"training.learning_rate" = [1e-3, 1e-2]
seed = [0, 1]
"""
BASELINES = """
[world]
dimensions = 12
n_features = 20
active = 3.0
[samples]
n = 400
[evaluation]
samples = 512
[sweep]
baseline = [
    { kind = "kmeans", n_components = 20 },
    { kind = "kmedoids", n_components = 20 },
    { kind = "pca", n_components = 12 },
    { kind = "ica", n_components = 12 },
]
seed = [0, 1]
"""
MODELS = """
kind = "models"
[world]
kind = "stories"
people = 2
places = 3
rounds = 2
[model]
d_model = 8
heads = 2
layers = 2
d_ff = 8
[model.training]
steps = 40
batch = 8
learning_rate = 1e-2
[model.evaluation]
stories = 40
heads = 24
shown = 1
[checkpoints]
log_every = 2
every = 3
[cases.none]
[cases.orthogonality.constraints.orthogonality]
weight = 0.1
[sweep]
"model.d_ff" = [8, 10, 12]
"""
"""Other sizes, so that no two are trained together."""
LANGUAGE_MODELS = """
kind = "language_models"
[world]
kind = "text"
context = 12
characters = 5000
validation = 400
[model]
d_model = 8
heads = 2
layers = 2
d_ff = 8
[model.training]
steps = 30
batch = 8
learning_rate = 1e-2
[model.evaluation]
stories = 40
heads = 24
shown = 1
[checkpoints]
log_every = 2
every = 3
[sweep]
"model.d_ff" = [8, 10]
"""
PIPELINE = """
kind = "pipeline"
[world]
kind = "stories"
rounds = 2
[model]
d_model = 16
heads = 2
layers = 1
d_ff = 16
[model.training]
steps = 30
batch = 16
[model.evaluation]
stories = 64
heads = 16
shown = 1
[activations]
site = "blocks.0.hook_attn_out"
stories = 300
[dictionary]
d_sae = 16
[training]
steps = 40
batch = 128
learning_rate = 1e-2
[mechanisms.sparsity]
weight = 1.0
[samples]
n = 512
[evaluation]
samples = 400
[checkpoints]
log_every = 5
every = 5
[cases.l1]
[cases.top-k]
dictionary.activation = { kind = "topk", k = 4 }
[cases.pca.baseline]
kind = "pca"
n_components = 16
[sweep]
"model.seed" = [0, 1]
"""
EMBEDDING = """
kind = "embedding"
[world]
dimensions = 16
n_features = 32
active = 3.0
[embedding]
perplexity = 10.0
iterations = 250
[samples]
n = 150
[sweep]
"world.decay" = [0.95, 1.0]
"world.seed" = [0, 1]
"""
CONFIGS = {
    "dictionaries": DICTIONARIES,
    "baselines": BASELINES,
    "models": MODELS,
    "language_models": LANGUAGE_MODELS,
    "pipeline": PIPELINE,
    "embedding": EMBEDDING,
}
"""A small run of every kind."""


def make(parent: Path, name: str, text: str) -> Run:
    parent.mkdir(parents=True, exist_ok=True)
    (parent / f"{name}.toml").write_text(text)
    plan = expand(read_toml(parent / f"{name}.toml"), name)
    return Run.create(parent, name, to_toml(plan.config), plan.facts())


def launch(*words: object, threads: int = 1, said: Path | None = None, drawn: bool = False) -> BaseProcess:
    """A command of `unbraid`, in a session of its own with all that it starts; `said` gets its standard error.

    Unless it is `drawn`, a report is one line: drawing takes longer than all the rest.
    """
    process = LAUNCHER.Process(target=obey, args=([str(word) for word in words], threads, said, drawn))
    process.start()
    return process


def obey(words: list[str], threads: int, said: Path | None, drawn: bool) -> None:
    os.setsid()
    if said is not None:
        with said.open("w") as file:
            os.dup2(file.fileno(), sys.stderr.fileno())
    if not drawn:
        work.write_report = write_line
    torch.set_num_threads(threads)
    sys.exit(cli.guarded(lambda: cli.app(words)))


def write_line(_runs: list[Run], path: Path) -> Path:
    path.write_text("a report\n")
    return path


def finish(run: Run, threads: int = 1) -> Run:
    """Resume a run in a process of its own, to its end."""
    process = launch("resume", run.path, "-q", threads=threads)
    process.join(300)
    assert process.exitcode == 0
    return run


def kill(process: BaseProcess) -> None:
    """It and whatever it has started, all at once."""
    with suppress(ProcessLookupError):  # it has not begun a session yet, and is alone
        os.killpg(process.pid or 0, signal.SIGKILL)
    process.kill()
    process.join()


def kill_parent(process: BaseProcess) -> None:
    """It alone: its workers leave by themselves."""
    process.kill()
    process.join()
    assert none_is_left(process.pid or 0)


def kill_worker(process: BaseProcess) -> bool:
    """One of its workers, whereupon it ends by itself; whether there was one."""
    workers = workers_of(process.pid or 0)
    if not workers:
        return False
    with suppress(ProcessLookupError):
        os.kill(random.choice(workers), signal.SIGKILL)
    process.join(120)
    return True


def written(path: Path) -> set[str]:
    """What is on disk, by name: it changes with every checkpoint, stage and score.

    Without the record of progress, which a run writes as soon as it has a plan, before a worker has started.
    """
    return {str(file.relative_to(path)) for file in path.rglob("*.json") if file.name != PROGRESS}


def wait_for_progress(process: BaseProcess, path: Path, seconds: float = 60) -> None:
    """Until more is on disk, the process has ended, or so long."""
    before, deadline = written(path), time.monotonic() + seconds
    while process.is_alive() and written(path) == before and time.monotonic() < deadline:
        time.sleep(0.002)


def kill_until_it_ends(
    run: Run, dice: random.Random, most: int = sys.maxsize, threads: int = 1, drawn: bool = False
) -> int:
    """Kill and resume: most kills fall a random moment after the run has got a little further. Returns how many.

    The whole group is killed, or the parent alone, or one of the workers where there are any.
    """
    kills = 0
    while True:
        process = launch("resume", run.path, "-q", threads=threads, drawn=drawn)
        wait_for_progress(process, run.path.parent, dice.random() if dice.random() < 0.2 else 60)
        process.join(dice.uniform(0, 0.15) if kills < most else 300)
        if not process.is_alive():
            assert process.exitcode == 0
            return kills
        match dice.choice(["group", "parent", "worker"]):
            case "worker" if kill_worker(process):
                assert process.exitcode in (0, 1)  # 0: the worker had nothing more to do
                assert none_is_left(process.pid or 0)
            case "parent":
                kill_parent(process)
            case _:
                kill(process)
        kills += 1


def left_of(session: int) -> dict[int, str]:
    """The processes of a session that are still there, each with its command."""
    processes: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, _, _, its_session, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
            command = (folder / "cmdline").read_text()  # of one that is going, nothing
            if int(its_session) == session and state not in "ZX" and command:
                processes[int(folder.name)] = command
    return processes


def workers_of(session: int) -> list[int]:
    return [pid for pid, command in left_of(session).items() if "spawn_main" in command]


def none_is_left(session: int) -> bool:
    """Whether all processes of a session are gone soon."""
    deadline = time.monotonic() + SOON
    while left_of(session) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not left_of(session)


# What a run ends with

OF_THE_MOMENT = ("run.json", "status.json", "environment.json", "checksums.json", "report.html", "lock")
"""Files that say when, where and how long; the report shows the seconds of training, too."""


def results(run: Run) -> dict[str, Any]:
    """Every file a run ends with that must not depend on how it got there, without the seconds it took."""
    files = [path for path in sorted(run.path.rglob("*")) if path.is_file() and path.name not in OF_THE_MOMENT]
    kept = [path for path in files if path.relative_to(run.path).parts[0] != "figures"]
    return {str(path.relative_to(run.path)): _content(path) for path in kept}


def _content(path: Path) -> Any:
    return _without_seconds(json.loads(path.read_text())) if path.suffix == ".json" else path.read_bytes()


def _without_seconds(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_seconds(item) for name, item in value.items() if name != "seconds"}
    if isinstance(value, list):
        rows = [item for item in value if not (isinstance(item, dict) and item.get("metric") == "seconds")]
        return [_without_seconds(item) for item in rows]
    return value


def litter(parent: Path) -> list[str]:
    """What a finished run and its cache must not have: halves of files, locks, checkpoints, stages that nobody made."""
    names = [str(path.relative_to(parent)) for path in parent.rglob("*") if _is_litter(path)]
    unmade = [str(folder.relative_to(parent)) for folder in (parent / "cache").iterdir() if not _is_made(folder)]
    return sorted({*names, *unmade})


def _is_litter(path: Path) -> bool:
    return path.name.startswith(".") or path.name.endswith((".part", ".lock")) or path.name in ("checkpoints", "lock")


def _is_made(folder: Path) -> bool:
    return (folder / "checksums.json").is_file()
