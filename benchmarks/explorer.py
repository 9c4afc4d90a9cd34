"""The explorer with 50 runs, one of them a dictionary of 16,384 features: start, time of every page, and memory."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import httpx
import numpy as np

from benchmarks.figure import Figure
from unbraid.storage import feature_index as index
from unbraid.storage.files import Arrays, write_arrays
from unbraid.storage.runs import Run

FEATURES, DIMENSIONS, RUNS, ROWS, WORDS, CHECKS, REPEATS = 16_384, 64, 50, 200_000, 30_000, 20, 20
SEARCH = "/runs/large/features?search=word%20123"
SETTLED = 5.0
"""Seconds after the start, in which the server loads what charts need."""
ROOT = Path(__file__).parents[1]
MODELS = ROOT / "tests/regression/configs/constraints.toml"
LEDGER = ROOT / "docs/claims.json"
CLAIM = "head-constraints/independence-cost"
CONFIG = """
[world]
kind = "superposition"
dimensions = 8
n_features = 16
[dictionary]
d_sae = 16
[training]
steps = 20
batch = 64
[evaluation]
samples = 256
[tracking]
checks = 3
"""
PAGES = {
    "runs": "/runs",
    "concepts": "/runs/large/concepts",
    "one concept": "/runs/large/concepts/5",
    "features": "/runs/large/features?sort=phi",
    "one feature": "/runs/large/features/0/0/77",
    "directions": "/runs/large/directions",
    "the whole matrix": "/runs/large/directions/tile",
    "the whole matrix, exact": "/runs/large/directions/tile?exact=1",
    "a tile near by": "/runs/large/directions/tile?row=4096&column=4096&zoom=2",
    "timeline": "/runs/large/timeline",
    "try": "/runs/large/try",
    "one run": "/runs/large",
    "compare": "/compare?run=large&run=small-1",
    "compare, matched": "/compare?run=large&run=small-1&first=large/0/0&second=large/0/0",
    "the matched part": "/compare/matched?run=large&first=large/0/0&second=large/0/0",
    "heads": "/runs/models/heads",
    "claims": "/claims",
    "one claim": f"/claims?claim={CLAIM}",
}


@dataclass(frozen=True)
class Taken:
    """Milliseconds of one page: the first time, which reads and draws, and the median of all; wall and processor."""

    first: float
    median: float
    first_cpu: float
    mean_cpu: float

    def figures(self, name: str, goal: float) -> Iterator[Figure]:
        yield Figure(f"explorer: {name}, first", self.first, goal, "lower", "ms")
        yield Figure(f"explorer: {name}, median", self.median, goal, "lower", "ms")
        yield Figure(f"explorer: {name}, first, processor", self.first_cpu, goal, "lower", "ms")
        yield Figure(f"explorer: {name}, mean, processor", self.mean_cpu, goal, "lower", "ms")


def explorer() -> Iterator[Figure]:
    """Processor time is the figure to trust where other work runs beside it."""
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder) / "runs"
        make_runs(runs)
        yield from measure(runs)


def measure(runs: Path) -> Iterator[Figure]:
    """The server, begun as a person does, and every page of it."""
    command = [sys.executable, "-m", "unbraid", "explore", "--runs", str(runs), "--ledger", str(LEDGER), "--no-browser"]
    began = time.perf_counter()
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONWARNINGS": "ignore"}
    )
    try:
        assert server.stdout is not None
        address = server.stdout.readline().split()[-1]
        with httpx.Client(base_url=address.partition("/?")[0], timeout=120, follow_redirects=True) as client:
            _wait(client, address)
            yield Figure("explorer: start to the first page", time.perf_counter() - began, 2, "lower", "s")
            yield Figure("explorer: start, processor", _processor(server.pid) / 1e3, 2, "lower", "s")
            yield from _measured(client, server.pid)
    finally:
        server.terminate()
        server.wait()


def _measured(client: httpx.Client, process: int) -> Iterator[Figure]:
    time.sleep(SETTLED)
    for name, path in PAGES.items():
        yield from _taken(client, path, process).figures(name, 300)
    yield from _taken(client, SEARCH, process).figures(f"search in {FEATURES} features", 200)
    status = Path(f"/proc/{process}/status").read_text()
    for name, key in (("memory of the server", "VmRSS:"), ("memory, at most", "VmHWM:")):
        kilobytes = int(status.split(key)[1].split()[0])
        yield Figure(f"explorer: {name}", kilobytes / 1e3, 500, "lower", "MB")


def _wait(client: httpx.Client, address: str) -> None:
    for _ in range(1200):
        try:
            client.get(address).raise_for_status()
        except httpx.TransportError:
            time.sleep(0.02)
        else:
            return


def _taken(client: httpx.Client, path: str, process: int) -> Taken:
    wall, processor = [], [_processor(process)]
    for _ in range(REPEATS):
        start = time.perf_counter()
        client.get(path).raise_for_status()
        wall.append(1e3 * (time.perf_counter() - start))
        processor.append(_processor(process))
    mean = (processor[-1] - processor[1]) / (REPEATS - 1)
    return Taken(wall[0], median(wall), processor[1] - processor[0], mean)


def _processor(process: int) -> float:
    """Milliseconds that all threads of a process have run."""
    threads = Path(f"/proc/{process}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e6


def make_runs(runs: Path) -> None:
    """Fifty small runs, one of them of models; the first has arrays as large as those of a large dictionary."""
    runs.mkdir(parents=True)
    config = runs.parent / "small.toml"
    config.write_text(CONFIG)
    words = ["run", str(config), "--runs", str(runs), "--name", "large"]
    subprocess.run([sys.executable, "-m", "unbraid", *words], check=True, capture_output=True)
    for number in range(1, RUNS - 1):
        shutil.copytree(runs / "large", runs / f"small-{number}")
    run = Run.open(runs / "large")
    with run.adding("stacks"):
        enlarge(run.stack(0))
    models = ["run", str(MODELS), "--runs", str(runs), "--name", "models"]
    subprocess.run([sys.executable, "-m", "unbraid", *models], check=True, capture_output=True)


def enlarge(stack: Path) -> None:
    """Write random arrays of 16,384 features over those of a stack of one."""
    random = np.random.default_rng(0)
    learned = random.normal(size=(FEATURES, DIMENSIONS)).astype(np.float32)
    truth = learned + 0.5 * random.normal(size=learned.shape)
    share = random.random((1, FEATURES)).astype(np.float32)
    same = np.arange(FEATURES)[None]
    tables = dict.fromkeys(("best_cosine", "matched_cosine", "precision", "recall", "f1", "density"), share)
    tables |= {"match": same, "best_feature": same, "fate": random.integers(0, 5, (1, FEATURES))}
    tables |= {"probabilities": random.random(FEATURES) ** 3, "stability": share, "truth_cosine": share}
    write_arrays(stack / "tables.safetensors", tables)
    write_arrays(stack / "truth.safetensors", {"directions": truth.astype(np.float16)})
    write_arrays(stack / "weights.safetensors", {"decoder": learned[None], "encoder": learned[None]})
    counts = np.zeros((1, 1, CHECKS), dtype=np.int64)
    tracked: Arrays = dict.fromkeys(("learned", "moved", "unlearned", "still", "absent"), counts)
    tracked |= {"steps": np.arange(CHECKS), "thresholds": np.array([0.9])}
    tracked |= {"best": random.random((1, CHECKS, FEATURES)).astype(np.float32)}
    tracked |= {"entry": random.integers(0, FEATURES, (1, CHECKS, FEATURES)).astype(np.int32)}
    write_arrays(stack / "tracking.safetensors", tracked)
    index.write_index(stack, {0: _indexed(random)}, _contexts(random))


def _indexed(random: np.random.Generator) -> Arrays:
    def rows(count: int) -> np.ndarray:
        return random.integers(0, ROWS, (FEATURES, count)).astype(np.int32)

    def numbers(*shape: int) -> np.ndarray:
        return random.random((FEATURES, *shape)).astype(np.float16)

    kept = {"strongest": index.STRONGEST, "even": index.EVEN}
    kept |= dict.fromkeys(("agree", "without_concept", "without_feature"), index.EXAMPLES)
    own = {name: rows(count) for name, count in kept.items()}
    own |= {f"{name}_around": numbers(count, 2 * index.AROUND + 1) for name, count in kept.items()}
    own |= {f"{name}_value": numbers(kept[name]) for name in ("strongest", "even")}
    own |= {name: numbers() for name in ("rate", "mean", "largest", "low", "high", "phi", "precision", "recall")}
    own |= {"histogram": random.integers(0, 99, (FEATURES, index.BINS)).astype(np.int32)}
    own |= {"token": random.integers(0, WORDS, (FEATURES, index.TOKENS)).astype(np.int32)}
    own |= {"token_count": numbers(index.TOKENS), "concept": random.integers(0, FEATURES, FEATURES).astype(np.int32)}
    own |= {"neighbour": random.integers(0, FEATURES, (FEATURES, index.NEIGHBOURS)).astype(np.int32)}
    return own | {"neighbour_cosine": numbers(index.NEIGHBOURS)}


def _contexts(random: np.random.Generator) -> Arrays:
    contexts = {"tokens": random.integers(0, WORDS, ROWS).astype(np.int32), "documents": np.arange(ROWS) // 100}
    contexts |= {
        "truth_start": np.arange(ROWS + 1) * 2,
        "truth": random.integers(0, FEATURES, 2 * ROWS).astype(np.int32),
    }
    contexts |= {"truth_strength": random.random(2 * ROWS).astype(np.float16)}
    contexts |= index.pack_names("vocabulary", [f"word {number}" for number in range(WORDS)])
    return contexts | index.pack_names("concepts", [f"concept {number}" for number in range(FEATURES)])
