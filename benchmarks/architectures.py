"""A training step of every rule from a random start, in bare float32 encoder products, beside our neighbours' steps.

Step and product are timed in turns, and the median of their ratios counts: another program's load falls on both alike.
The steps that compile or grow buffers are not counted: a copy of the state takes three of them first.

    python -m benchmarks.architectures [--small | --large] [--one-thread] [--late=60] [RULE …]

Relu, jump-relu and gated are measured at three starts: our default, SAELens' (its encoder is a tenth as long, its
jump-relu's threshold .01), and `firing_share = 0.01`. From the first two half of the features fire for long, so that
at the large size only the first steps are taken. `--one-thread` counts the processor's time at one thread, which the
load of a shared machine hardly changes.
"""

import copy
import math
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from statistics import median

import torch

from benchmarks.figure import Figure
from benchmarks.peers import Step, dictionary_learning_architecture, sae_lens_architecture
from unbraid import BatchTopK, Dictionary, Gated, JumpRelu, Matryoshka, Relu, Sparsity, Superposition, TopK, Training
from unbraid.dictionaries.activations import Activation
from unbraid.dictionaries.lists import Inputs
from unbraid.dictionaries.mechanisms import Mechanism
from unbraid.dictionaries.training.fit import advance
from unbraid.dictionaries.training.step import State
from unbraid.members import stack_configs

SIZES = {"small": (256, 4096, 16), "large": (768, 16384, 32)}
BATCH, BATCHES, EARLY, LATE = 2048, 16, range(1, 21), range(200, 221)
GOALS, PEER_GOALS = {"topk": 1.3, "batchtopk": 1.3}, {"topk": 6.5, "batchtopk": 6.5}
OTHERS, PEER_OTHERS = 1.6, 5.0
"""What is to be reached: bare products, and how many times as fast as SAELens."""
PENALISED = ("relu", "jumprelu", "gated")
STARTS = ("default", "SAELens'", "sparse")


def rules(k: int) -> dict[str, tuple[Activation, dict[str, Mechanism]]]:
    """Every rule as it is by default, with what makes it sparse."""
    penalised: dict[str, Mechanism] = {"sparsity": Sparsity()}
    return {
        "topk": (TopK(k=k), {}),
        "batchtopk": (BatchTopK(k=k), {}),
        "matryoshka": (BatchTopK(k=k), {"matryoshka": Matryoshka()}),
        "jumprelu": (JumpRelu(), penalised),
        "gated": (Gated(), penalised),
        "relu": (Relu(), penalised),
    }


class Case:
    """One rule at one size and start: its state, the batches it goes through, and the bare product beside it."""

    def __init__(self, rule: str, size: str, start: str = "default") -> None:
        dimensions, features, k = SIZES[size]
        activation, mechanisms = rules(k)[rule]
        self.mechanisms = {name: stack_configs([mechanism]) for name, mechanism in mechanisms.items()}
        self.training = stack_configs([Training(steps=10**6, batch=BATCH)])
        world = Superposition(dimensions=dimensions, n_features=features, active=float(k))
        self.batches = [world.batch(position, BATCH).x for position in range(BATCHES)]
        share = 0.01 if start == "sparse" else None
        dictionary = Dictionary(d_sae=features, activation=activation, pre_bias=True, firing_share=share)
        self.state = State.start(dictionary, dimensions, self.mechanisms, [0], self.batches[0])
        if start == "SAELens'":
            self.state.stack.encoder.mul_(0.1)
            if rule == "jumprelu":
                self.state.stack.tensors()["log_threshold"].fill_(math.log(0.01))
        self.buffer, self.rows = torch.empty(BATCH, features), self.state.stack.encoder[0].clone()
        self.fires = float("nan")

    def step(self, state: State | None = None) -> None:
        state = state or self.state
        outcome = advance(state, Inputs(self.batches[state.step % BATCHES]), self.training, self.mechanisms)
        self.fires = float(outcome.l0)

    def warm(self) -> None:
        other = copy.deepcopy(self.state)
        for _ in range(3):
            self.step(other)
        self.product()

    def product(self) -> None:
        torch.mm(self.batches[self.state.step % BATCHES], self.rows.T, out=self.buffer)

    def ratios(self, steps: range) -> list[float]:
        """Seconds of a step over those of a product, for each of these steps."""
        while self.state.step < steps.start:
            self.step()
        found = []
        for _ in steps:
            product, step = seconds(self.product), seconds(self.step)
            found.append(step / product)
        return found


def seconds(work: Callable[[], object]) -> float:
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    began = clock()
    work()
    return clock() - began


def measure(size: str, rule: str, late: range = LATE) -> Iterator[Figure]:
    """The median of early and of late steps, from every start."""
    for start in STARTS if rule in PENALISED else STARTS[:1]:
        case = Case(rule, size, start)
        case.warm()
        for steps in (EARLY, late) if size == "small" or rule not in PENALISED or start == "sparse" else (EARLY,):
            ratio, goal = median(case.ratios(steps)), GOALS.get(rule, OTHERS)
            words = f"{rule}, {size}, {start} start, steps {steps.start} - {steps.stop - 1} (L0 {case.fires:.0f})"
            yield Figure(words, ratio, goal, "lower", "products")


def peers(size: str, rule: str) -> Iterator[Figure]:
    """A step of each neighbour's trainer of the same architecture over ours, at the start, each at its defaults."""
    case, (dimensions, features, k) = Case(rule, size, "sparse" if rule in PENALISED else "default"), SIZES[size]
    neighbours: dict[str, Step] = {
        "SAELens": sae_lens_architecture(rule, features, dimensions, k, BATCH),
        "dictionary_learning": dictionary_learning_architecture(rule, features, dimensions, k),
    }
    cold = Case(rule, size) if rule in PENALISED else None
    for one in (case, cold):
        if one is not None:
            one.warm()
    ratios: dict[str, list[float]] = defaultdict(list)
    for name, step in neighbours.items():
        step(case.batches[0])
        for position in range(6):
            peer = seconds(lambda step=step, position=position: step(case.batches[position]))
            ratios[f"{name} / ours"].append(peer / seconds(case.step))
            if cold is not None:
                ratios[f"{name} / ours, default start"].append(peer / seconds(cold.step))
    for name, found in ratios.items():
        goal = PEER_GOALS.get(rule, PEER_OTHERS) if name.startswith("SAELens") else 0
        yield Figure(f"{name}, {rule}, {size}", median(found), goal, "higher", "×")


def architectures() -> Iterator[Figure]:
    """Every rule at both sizes."""
    for size in SIZES:
        for rule in rules(1):
            yield from measure(size, rule)
            yield from peers(size, rule)


def main(words: list[str]) -> None:
    if "--one-thread" in words:
        torch.set_num_threads(1)
    first = next((int(word.removeprefix("--late=")) for word in words if word.startswith("--late=")), LATE.start)
    chosen = [word for word in words if not word.startswith("--")] or list(rules(1))
    for size in [size for size in SIZES if f"--{size}" in words] or SIZES:
        for rule in chosen:
            for figure in [*measure(size, rule, range(first, first + len(LATE))), *peers(size, rule)]:
                print(figure, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
