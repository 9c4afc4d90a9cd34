"""The record on SynthSAEBench: SAELens' architectures by its own trainer, and ours, at equal samples, width and k.

    python -m benchmarks.synth_record --seeds 0 1 --rates 3e-4 1e-3            # trains what the file does not hold yet
    python -m benchmarks.synth_record --table                                  # what it holds, mean and 95 % interval

Every seed has a world of its own, made and saved by SAELens and read by us from that file; both sides learn from the
same batches of it. Every dictionary is scored twice, by SAELens' evaluator (`theirs`) and by ours (`ours`).
One line of JSON a dictionary is appended to --out; what is there already is not trained again, so it can run in pieces.

SAELens' autoencoders are scored as its runner does, as they are in training: batch top-k takes the k·b largest of a
batch. Ours are scored as they are used: batch top-k by its threshold. `standard` and `gated` have no k; give
--coefficients, and compare what ends at the L0 of the others. `jump-relu` is given k as its target L0.
"""

# pyright: reportMissingImports=false
# (SAELens lives in the environment that `make bench` makes)

import argparse
import json
import math
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.synth import their_model
from unbraid import BatchTopK, Dictionary, Matryoshka, Reallocation, Synth, TopK, Training, fit
from unbraid.codes import Codes
from unbraid.dictionaries.activations import Activation
from unbraid.dictionaries.auxk import AuxK
from unbraid.dictionaries.encoding import encode
from unbraid.dictionaries.mechanisms import Mechanism
from unbraid.dictionaries.stack import Stack
from unbraid.evaluation.dictionaries import _measure, _Reader
from unbraid.metrics.intervals import estimate
from unbraid.worlds.world import Batch

PENALISED = ("standard", "gated")
"""Architectures whose sparsity is a coefficient."""


@dataclass(frozen=True)
class Job:
    """One dictionary to train: what identifies its line."""

    side: str
    name: str
    seed: int
    rate: float
    steps: int
    batch: int
    k: int
    d_sae: int
    coefficient: float | None
    decay: float
    n_features: int
    dimensions: int
    samples: int


def _their_config(job: Job) -> Any:
    from sae_lens import (
        BatchTopKTrainingSAEConfig,
        GatedTrainingSAEConfig,
        JumpReLUTrainingSAEConfig,
        MatryoshkaBatchTopKTrainingSAEConfig,
        StandardTrainingSAEConfig,
        TopKTrainingSAEConfig,
    )

    size: dict[str, Any] = {"d_in": job.dimensions, "d_sae": job.d_sae}
    widths = [job.d_sae // part for part in (16, 8, 4, 2, 1)]
    warm_up = job.steps // 4
    configs: dict[str, Callable[[], Any]] = {
        "standard": lambda: StandardTrainingSAEConfig(**size, l1_coefficient=job.coefficient, l1_warm_up_steps=warm_up),
        "top-k": lambda: TopKTrainingSAEConfig(**size, k=job.k),
        "batch-top-k": lambda: BatchTopKTrainingSAEConfig(**size, k=job.k),
        "jump-relu": lambda: JumpReLUTrainingSAEConfig(**size, target_l0=job.k, l0_warm_up_steps=warm_up),
        "gated": lambda: GatedTrainingSAEConfig(**size, l1_coefficient=job.coefficient, l1_warm_up_steps=warm_up),
        "matryoshka": lambda: MatryoshkaBatchTopKTrainingSAEConfig(**size, k=job.k, matryoshka_widths=widths),
    }
    return configs[job.name]()


THEIRS = ("standard", "top-k", "batch-top-k", "jump-relu", "gated", "matryoshka")
_OFF = AuxK(weight=0)
OURS: dict[str, Callable[[int], tuple[Activation, list[Mechanism]]]] = {
    "top-k-without": lambda k: (TopK(k=k, auxk=_OFF), []),
    "top-k": lambda k: (TopK(k=k), []),
    "top-k-reallocation": lambda k: (TopK(k=k), [Reallocation(every=250, until=0.7)]),
    "batch-top-k": lambda k: (BatchTopK(k=k), []),
    "batch-top-k-reallocation": lambda k: (BatchTopK(k=k), [Reallocation(every=250, until=0.7)]),
    "matryoshka": lambda k: (BatchTopK(k=k), [Matryoshka(weight=1.0)]),
    "matryoshka-reallocation": lambda k: (BatchTopK(k=k), [Matryoshka(weight=1.0), Reallocation(every=250, until=0.7)]),
}
"""Our rules, each with a pre-bias; what is added here can be asked for."""


class Samples:
    """Batches of our sampler in the two shapes that SAELens asks for: an iterator of inputs, and a generator of codes.

    It is the same world as SAELens' (`make bench ONLY=synth` holds the two together), drawn ten times as fast.
    """

    def __init__(self, world: Synth, batch: int, split: str) -> None:
        self.world, self.size, self.split, self.position = world, batch, split, 0

    def __iter__(self) -> "Samples":
        return self

    def __next__(self) -> torch.Tensor:
        return self._draw(self.size).x

    def sample(self, size: int) -> torch.Tensor:
        """Strengths of every planted feature."""
        return self._draw(size).truth.to_dense()[0]

    def _draw(self, size: int) -> Batch:
        self.position += 1
        return self.world.batch(self.position - 1, size, self.split)


def train_theirs(job: Job, world: Synth, model: Any) -> Any:
    """By SAELens' trainer as its runner sets it up, on the batches that ours learns from."""
    from sae_lens import LoggingConfig
    from sae_lens.registry import get_sae_training_class
    from sae_lens.synthetic import SyntheticSAERunnerConfig
    from sae_lens.training.sae_trainer import SAETrainer

    torch.manual_seed(job.seed)
    config = SyntheticSAERunnerConfig(
        synthetic_model=model.cfg,
        sae=_their_config(job),
        training_samples=job.steps * job.batch,
        batch_size=job.batch,
        lr=job.rate,
        lr_decay_steps=int(job.decay * job.steps),
        output_path=None,
        checkpoint_path=None,
        logger=LoggingConfig(log_to_wandb=False),
    )
    sae = get_sae_training_class(config.sae.architecture())[0](config.sae)
    provider = Samples(world, job.batch, "train")
    return SAETrainer(cfg=config.to_sae_trainer_config(), sae=sae, data_provider=provider).fit()


def train_ours(job: Job, world: Synth) -> Stack:
    """By `fit`, on our samples of the same world."""
    activation, mechanisms = OURS[job.name](job.k)
    dictionary = Dictionary(d_sae=job.d_sae, activation=activation, pre_bias=True)
    training = Training(steps=job.steps, batch=job.batch, learning_rate=job.rate, decay_share=job.decay)
    return fit(world, dictionary, mechanisms, training, seeds=[job.seed])


class AsSae:
    """A stack of one in the shape that SAELens' evaluator asks for."""

    def __init__(self, stack: Stack) -> None:
        self.stack, self.W_dec = stack, stack.directions[0]

    def eval(self) -> None:
        """Nothing differs in use."""

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """Codes of every latent."""
        return encode(self.stack, x).to_dense()[0]

    def decode(self, codes: torch.Tensor) -> torch.Tensor:
        """The reconstruction."""
        return self.stack.decode(Codes.dense(codes[None]))[0]


def scores_by_theirs(sae: Any, world: Synth, model: Any, job: Job) -> dict[str, float]:
    """SAELens' evaluator, on samples that no training has seen."""
    from sae_lens.synthetic import eval_sae_on_synthetic_data

    samples: Any = Samples(world, 0, "evaluation")
    result = eval_sae_on_synthetic_data(sae, model.feature_dict, samples, job.samples, 4096).to_dict()
    return {**result.pop("classification"), **result}


@torch.no_grad()
def scores_by_ours(sae: Any, world: Synth, job: Job) -> dict[str, float]:
    """All our scores, on samples of ours that no training has seen."""
    reader = _Reader.of(
        sae.W_dec.detach()[None],
        lambda batch: Codes.dense(sae.encode(batch.x)[None]),
        lambda codes, _: sae.decode(codes.values[0])[None],
        world,
    )
    return {name: float(value) for name, value in _measure([reader], world, job.samples).values.items()}


def run(job: Job, folder: Path) -> dict[str, Any]:
    """Train and score one; the line to append."""
    from sae_lens.synthetic import SyntheticModel

    model = SyntheticModel.load_from_disk(folder)
    world = Synth(path=str(folder), seed=job.seed)
    start = time.perf_counter()
    sae = train_theirs(job, world, model) if job.side == "theirs" else AsSae(train_ours(job, world))
    seconds = time.perf_counter() - start
    scores = {"theirs": scores_by_theirs(sae, world, model, job), "ours": scores_by_ours(sae, world, job)}
    return {**asdict(job), "seconds": seconds, "scores": scores}


def world_folder(job: Job, worlds: Path) -> Path:
    """Where the seed's world is; made by SAELens if it is not there."""
    folder = worlds / f"{job.n_features}-{job.dimensions}-{job.seed}"
    if not (folder / "synthetic_model.safetensors").is_file():
        roots = min(128, job.n_features // 16)
        world = Synth(n_features=job.n_features, dimensions=job.dimensions, roots=roots, seed=job.seed)
        their_model(world).save(folder)
    return folder


def lines_of(path: Path) -> list[dict[str, Any]]:
    """What the file holds; a last line that was cut short is left out."""
    kept = []
    for line in path.read_text().splitlines() if path.is_file() else []:
        try:
            kept.append(json.loads(line))
        except json.JSONDecodeError:
            print(f"{path}: a line was cut short and is left out", file=sys.stderr)
    return kept


def append(path: Path, line: dict[str, Any]) -> None:
    """One more line, after whatever a process that was stopped has left."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = not path.is_file() or path.read_bytes()[-1:] in (b"\n", b"")
    with path.open("a") as file:
        file.write(("" if whole else "\n") + json.dumps(line) + "\n")


def jobs_of(asked: argparse.Namespace) -> Iterator[Job]:
    """Seed by seed, so that a piece of the work is whole comparisons."""
    sides = [("theirs", name) for name in asked.theirs] + [("ours", name) for name in asked.ours]
    for seed in asked.seeds:
        for side, name in sides:
            coefficients = asked.coefficients if side == "theirs" and name in PENALISED else [None]
            for coefficient in coefficients:
                for rate in asked.rates:
                    yield Job(
                        side, name, seed, rate, asked.steps, asked.batch, asked.k, asked.d_sae or asked.n_features,
                        coefficient, asked.decay, asked.n_features, asked.dimensions, asked.samples,
                    )  # fmt: skip


def table(lines: list[dict[str, Any]]) -> Iterator[str]:
    """Settings by SAELens' F1 and MCC over seeds, with 95 % intervals, best first."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        shape = tuple(line[key] for key in ("side", "name", "rate", "coefficient", "steps", "batch", "k", "n_features"))
        groups[shape].append(line)
    heads = f"{'seeds':>6}{'F1':>22}{'MCC':>22}{'L0':>7}{'dead':>7}{'s':>7}"
    yield f"{'side · name · rate · coefficient · steps × batch · k · n':70}{heads}"

    def mean(name: str, of: list[dict[str, Any]]) -> float:
        return sum(line["scores"]["theirs"][name] for line in of) / len(of)

    for shape, of in sorted(groups.items(), key=lambda item: -mean("f1_score", item[1])):
        cells = []
        for name in ("f1_score", "mcc"):
            found = estimate([line["scores"]["theirs"][name] for line in of])
            interval = " [{:.3f}, {:.3f}]".format(*found.interval) if found.interval else ""
            cells.append(f"{found.value:.3f}{interval}")
        side, name, rate, coefficient, steps, batch, k, n = shape
        what = f"{side} · {name} · {rate:g} · {coefficient} · {steps} × {batch} · {k} · {n}"
        seconds = math.fsum(line["seconds"] for line in of) / len(of)
        facts = f"{mean('sae_l0', of):7.1f}{mean('dead_latents', of):7.0f}{seconds:7.0f}"
        yield f"{what:70}{len(of):6}{cells[0]:>22}{cells[1]:>22}{facts}"


def parsed(words: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--out", type=Path, default=Path("runs/synth-record.jsonl"), help="the file of lines")
    add("--worlds", type=Path, default=Path("runs/synth-worlds"), help="where SAELens' worlds are kept")
    add("--theirs", nargs="*", choices=THEIRS, default=THEIRS, help="SAELens' architectures")
    add("--ours", nargs="*", choices=list(OURS), default=list(OURS), help="our rules and mechanisms")
    add("--seeds", nargs="+", type=int, default=[0], help="each a world, data and a start of its own")
    add("--rates", nargs="+", type=float, default=[1e-3], help="learning rates")
    add("--coefficients", nargs="+", type=float, default=[1.0], help="L1 coefficients of standard and gated")
    add("--steps", type=int, default=4000)
    add("--batch", type=int, default=1024)
    add("--k", type=int, default=11)
    add("--decay", type=float, default=0.2, help="share of the steps in which the rate decays, on both sides")
    add("--n-features", type=int, default=2048)
    add("--dimensions", type=int, default=256)
    add("--d-sae", type=int, default=0, help="width of the dictionaries; 0: as many as features")
    add("--samples", type=int, default=50_000, help="to score on")
    add("--table", action="store_true", help="only print what the file holds")
    return parser.parse_args(words)


def main(words: list[str]) -> int:
    asked = parsed(words)
    done = {json.dumps({key: line[key] for key in Job.__annotations__}) for line in lines_of(asked.out)}
    missing = [] if asked.table else [job for job in jobs_of(asked) if json.dumps(asdict(job)) not in done]
    for number, job in enumerate(missing, 1):
        line = run(job, world_folder(job, asked.worlds))
        append(asked.out, line)
        theirs = line["scores"]["theirs"]
        print(
            f"{number}/{len(missing)} {job.side} {job.name} seed {job.seed} rate {job.rate:g}: F1 "
            f"{theirs['f1_score']:.3f} MCC {theirs['mcc']:.3f} L0 {theirs['sae_l0']:.1f} {line['seconds']:.0f} s",
            flush=True,
        )
    print("\n".join(table(lines_of(asked.out))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
