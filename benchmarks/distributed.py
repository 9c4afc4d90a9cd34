"""One dictionary over two processes of one thread each, beside one process of one thread, and of two.

As a module it is one process: `python -m benchmarks.distributed RANK SIZE MEETING THREADS WIDTH FEATURES BATCH STEPS`.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from statistics import median
from time import perf_counter

import torch

from benchmarks.figure import Figure
from unbraid import Dictionary, TopK, Training
from unbraid.dictionaries.lists import Inputs
from unbraid.dictionaries.training.fast_step import fast_step
from unbraid.dictionaries.training.sharded_step import sharded_step
from unbraid.dictionaries.training.step import State
from unbraid.members import stack_configs
from unbraid.mesh import ALONE, Mesh
from unbraid.pipeline.executors import THREADS
from unbraid.randomness import stream

SIZES = {"d 768, f 16,384": (768, 16_384, 2048, 12)}
"""Width of the inputs, features, samples in a batch, steps that are timed."""
SMALL = {"d 64, f 1,024": (64, 1024, 256, 5)}
K, GOAL, ROUNDS = 32, 1.5, 1 if os.environ.get("SMALL") else 3


def distributed() -> Iterator[Figure]:
    """How much faster two processes step than one, each process with a core of its own. `SMALL=1`: a size to try it."""
    for name, size in (SMALL if os.environ.get("SMALL") else SIZES).items():
        rounds = [[_seconds(*how, size) for how in ((1, 1), (2, 1), (1, 2))] for _ in range(ROUNDS)]  # in turns
        one, split, threads = (median(turn) for turn in zip(*rounds, strict=True))
        yield Figure(f"two processes / one, one thread each, {name}", one / split, GOAL, "higher", "×")
        yield Figure(f"one process, two threads / one thread, {name}", one / threads, 1.0, "higher", "×")


def _seconds(processes: int, threads: int, size: tuple[int, ...]) -> float:
    """Of a step of top-k by so many processes of so many threads."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | dict.fromkeys(THREADS, str(threads)) | {"GLOO_SOCKET_IFNAME": "lo"}
        words = [f"file://{folder}/meeting", str(threads), *map(str, size)]
        command = [sys.executable, "-m", "benchmarks.distributed"]
        started = [
            subprocess.Popen([*command, str(rank), str(processes), *words], stdout=subprocess.PIPE, env=environment)
            for rank in range(processes)
        ]
        answers = [json.loads(process.communicate()[0]) for process in started]
    return max(answers)


def _steps(rank: int, processes: int, meeting: str, *sizes: int) -> float:
    """Median seconds of this process's steps; alone it takes the usual fast step."""
    threads, width, features, batch, steps = sizes
    torch.set_num_threads(threads)
    mesh = ALONE if processes == 1 else Mesh.join(rank, processes, meeting).in_shards(processes)
    dictionary, training = Dictionary(d_sae=features, activation=TopK(k=K)), stack_configs([Training(batch=batch)])
    state = State.start(dictionary, width, {}, [0], rows=mesh.features(features))
    took: list[float] = []
    for position in range(3 + steps):
        x = torch.from_numpy(stream(0, "inputs", position).standard_normal((batch, width), dtype="float32"))
        mesh.command()
        began = perf_counter()
        if processes == 1:
            fast_step(state, Inputs(x), training, {})
        else:
            sharded_step(state, Inputs(x), training, {}, features, mesh)
        took.append(perf_counter() - began)
    mesh.leave()
    return median(took[3:])


if __name__ == "__main__":
    print(json.dumps(_steps(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], *map(int, sys.argv[4:]))))
