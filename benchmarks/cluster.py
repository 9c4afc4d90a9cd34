"""What Ray costs: a sweep of stages on a warm cluster of two nodes, beside worker processes on the same two cores.

    python -m benchmarks.cluster [STAGES] [SECONDS]

Needs the extra `unbraid[ray]`. The stages are those of a plan, of a kind of its own: each multiplies matrices for about
so many seconds. Both ways make the same run, and the bits are compared. The cluster is warm, so what worker processes
take to start and import is measured by a run of nearly nothing, and taken off theirs.
"""

import importlib
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field

from benchmarks.figure import Figure
from unbraid.config import JsonDict, to_toml
from unbraid.pipeline.cluster import OnCluster
from unbraid.pipeline.executors import THIS_MACHINE, Executor
from unbraid.pipeline.expand import expand
from unbraid.pipeline.experiment import Experiment, MemberStack
from unbraid.pipeline.kinds import KINDS
from unbraid.pipeline.ray_cluster import RayCluster
from unbraid.pipeline.run import carry_out
from unbraid.pipeline.stage import Context, Stage
from unbraid.progress import Silent
from unbraid.signals import StopSignals
from unbraid.storage.files import write_json
from unbraid.storage.runs import Run

STAGES, SECONDS = 64, 5.0
MOST_OVERHEAD = 15.0
CORES = 2
SIZE = 256
"""Of the matrices."""
MEBIBYTE = 2**20


@dataclass(frozen=True)
class Multiply(Stage):
    """Multiply a matrix by itself so many times."""

    kind = "computing"
    side_by_side = True

    seed: int
    products: int

    @property
    def config(self) -> JsonDict:
        return {"seed": self.seed, "products": self.products}

    def run(self, context: Context) -> None:
        value = multiplied(self.seed, self.products)
        write_json(context.folder / "scores.json", {"values": {"mmcs": [value]}, "chance": {}, "ceiling": {}})


class Computing(Experiment):
    """A sweep of stages that compute and say nothing."""

    swept: ClassVar[tuple[str, ...]] = ("seed",)
    sections: ClassVar[tuple[str, ...]] = ("all_scores",)

    kind: Literal["computing"]
    """What kind of experiment this is."""
    products: int = Field(default=1, ge=1)
    """How many products a stage makes."""

    @property
    def leading(self) -> str:
        return "mmcs"

    def replicate(self) -> str:
        return str(self.seed)

    def shared(self) -> JsonDict:
        return self.to_dict()

    def memory(self) -> int:
        return 8 * SIZE * SIZE

    def stages(self, stack: MemberStack) -> tuple[Stage, ...]:
        return (Multiply(f"{stack.name} · computing", self.seed, self.products),)


def multiplied(seed: int, products: int) -> float:
    """Of an orthogonal matrix, whose powers stay as large as it is."""
    turn = torch.linalg.qr(torch.randn(SIZE, SIZE, generator=torch.Generator().manual_seed(seed)))[0]
    power = turn.clone()
    for _ in range(products):
        power = power @ turn
    return float(power.mean())


def products_in(seconds: float) -> int:
    """How many products one thread makes in so long."""
    torch.set_num_threads(1)
    multiplied(0, 100)
    began = time.perf_counter()
    multiplied(0, 1000)
    return max(1, round(1000 * seconds / (time.perf_counter() - began)))


def timed(folder: Path, name: str, config: JsonDict, executor: Executor) -> tuple[float, bytes]:
    """The seconds of a run that has a cache of its own, and its scores."""
    torch.set_num_threads(CORES)  # as on a machine with so many cores: so many worker processes
    plan = expand(config, name)
    run = Run.create(folder / name, "run", to_toml(plan.config), plan.facts())
    began = time.perf_counter()
    with StopSignals("") as signals:
        carry_out(run, plan, Silent(), signals, lambda made: made.path, executor=executor)
    return time.perf_counter() - began, (run.path / "scores.json").read_bytes()


def start_cluster() -> Any:
    """Two nodes of one processor each, and a head with none."""
    ray, utilities = (importlib.import_module(name) for name in ("ray", "ray.cluster_utils"))
    small = {"object_store_memory": 80 * MEBIBYTE}
    cluster = utilities.Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **small}
    )
    for _ in range(CORES):
        cluster.add_node(num_cpus=1, **small)
    ray.init(address=cluster.address, log_to_driver=False)
    return cluster


def main(stages: int = STAGES, seconds: float = SECONDS) -> int:
    KINDS["computing"] = Computing
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])
    config: JsonDict = {"kind": "computing", "products": products_in(seconds)}
    sweep = {**config, "sweep": {"seed": list(range(stages))}}
    warm = {"kind": "computing", "products": 10, "sweep": {"seed": list(range(2 * CORES))}}
    cluster, elsewhere = start_cluster(), OnCluster(RayCluster())
    with tempfile.TemporaryDirectory() as folder:
        timed(Path(folder), "warm", warm, elsewhere)
        start, _ = timed(Path(folder), "start", warm, THIS_MACHINE)
        here, expected = timed(Path(folder), "here", sweep, THIS_MACHINE)
        there, found = timed(Path(folder), "there", sweep, elsewhere)
    elsewhere.cluster.close()
    importlib.import_module("ray").shutdown()
    cluster.shutdown()
    print(f"{stages} stages of about {seconds:g} s: {here:.1f} s by worker processes, of which {start:.1f} s are their")
    print(f"start; {there:.1f} s by Ray")
    longer = 100 * (there / (here - start) - 1)
    print(Figure("Ray over worker processes, two cores", longer, MOST_OVERHEAD, "lower", "% longer"))
    print("the same bits" if found == expected else "OTHER BITS")
    return 0 if found == expected else 1


if __name__ == "__main__":
    from benchmarks import cluster as module  # so that stages are of a module that workers can import

    words = sys.argv[1:]
    sys.exit(module.main(int(words[0]) if words else STAGES, float(words[1]) if words[1:] else SECONDS))
