"""The feature index beside the training of the dictionaries it is of: seconds and bytes, and its formula at 16,384.

Every setting of the demo is trained, one thread, and then indexed three times; the least of these counts.
"""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from scipy import sparse

from benchmarks.figure import Figure
from unbraid.config import read_toml
from unbraid.evaluation.feature_index import Rows, index_features, index_seconds, neighbours
from unbraid.pipeline.dictionary_stages import EvaluateStack, write_feature_index
from unbraid.pipeline.expand import expand
from unbraid.pipeline.stage import Context, in_order, make
from unbraid.progress import Silent, TaskProgress
from unbraid.signals import StopSignals
from unbraid.storage.cache import Cache
from unbraid.storage.feature_index import INDEX
from unbraid.studies.shipped import find_config

TIMES = 3
LARGE, ROWS, EVENTS, DIMENSIONS = 16_384, 8192, 32, 512
"""A large dictionary: its features, the rows that are indexed, what fires at each, and its dimensions."""


def feature_index() -> Iterator[Figure]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory() as folder:
            yield from _of_the_demo(Path(folder))
        yield from _large()
    finally:
        torch.set_num_threads(threads)


def _of_the_demo(folder: Path) -> Iterator[Figure]:
    plan = expand(read_toml(find_config("pipeline/demo")), "demo")
    cache, silent, signals = Cache(folder), Silent(), StopSignals("the same command")
    progress = TaskProgress(silent, 0)
    for stack in plan.stacks:
        for stage in stack.first.stages(stack):
            if not isinstance(stage, EvaluateStack):
                continue
            training = 0.0
            for needed in in_order([stage.training]):
                silent.plan([needed.task()])
                began = time.perf_counter()
                make(needed, cache, progress, signals)
                training = time.perf_counter() - began  # of the last, the dictionaries
            context = Context(folder, cache, progress, signals, frozenset(other.key for other in stage.inputs))
            name, features = (
                stack.members[0].setting["case"],
                len(stack.members) * stage.training.members[0].dictionary.d_sae,
            )
            yield Figure(f"index / training: {name}", _seconds(stage, context) / training, 0.15, "lower", "×")
            yield Figure(f"a feature on disk: {name}", (folder / INDEX).stat().st_size / features, 2000, "lower", "B")


def _seconds(stage: EvaluateStack, context: Context) -> float:
    took: list[float] = []
    for _ in range(TIMES):
        began = time.perf_counter()
        write_feature_index(stage.training.trained(context), stage.opened_world(context), stage, context)
        took.append(time.perf_counter() - began)
    return min(took)


def _large() -> Iterator[Figure]:
    """What the formula says of a large dictionary, beside what it takes."""
    rng, events = np.random.default_rng(0), ROWS * EVENTS
    row = np.repeat(np.arange(ROWS), EVENTS)
    pairs = (row, rng.integers(0, LARGE, events))
    codes = sparse.csr_array((rng.random(events) + 0.1, pairs), shape=(ROWS, LARGE))
    words = [f"word {number}" for number in range(5000)]
    tokens, documents = rng.integers(0, len(words), ROWS), np.arange(ROWS) // 64
    rows = Rows(torch.zeros(ROWS, 1), sparse.csr_array((ROWS, 0)), [], tokens, documents, words)
    began = time.perf_counter()
    own = index_features(codes, rows) | neighbours(torch.randn(LARGE, DIMENSIONS))
    took = time.perf_counter() - began
    yield Figure(f"{LARGE:,} features: seconds", took, index_seconds(events, LARGE, DIMENSIONS), "lower", "s")
    yield Figure(
        f"{LARGE:,} features: a feature", sum(part.nbytes for part in own.values()) / LARGE, 2000, "lower", "B"
    )
