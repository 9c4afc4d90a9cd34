"""A training step of every rule from a random start, in bare float32 encoder products, beside our neighbours' steps.

Step and product are timed in turns, and the median of their ratios counts: another program's load falls on both alike.
The steps that compile or grow buffers are not counted: a copy of the state takes three of them first.

    python -m benchmarks.architectures [--small | --large] [--peers] [--one-thread] [--late=60] [RULE …]

`--one-thread` counts the processor's time at one thread, which the load of a shared machine hardly changes;
`--firing_share=0.01` starts relu, jump-relu and gated sparse.
"""

import copy
import sys
import time
from collections.abc import Callable, Iterator
from statistics import median

import torch

from benchmarks.figure import Figure
from benchmarks.peers import sae_lens_architecture
from unbraid import BatchTopK, Dictionary, Gated, JumpRelu, Matryoshka, Relu, Sparsity, Superposition, TopK, Training
from unbraid.dictionaries.activations import Activation
from unbraid.dictionaries.lists import Inputs
from unbraid.dictionaries.mechanisms import Mechanism
from unbraid.dictionaries.training.fit import advance
from unbraid.dictionaries.training.step import State
from unbraid.members import stack_configs

SIZES = {"small": (256, 4096, 16), "large": (768, 16384, 32)}
BATCH, BATCHES, EARLY, LATE = 2048, 16, range(1, 21), range(200, 221)
GOALS = {"topk": 1.3, "batchtopk": 1.3}
OTHERS = 1.6


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
    """One rule at one size: its state, the batches it goes through, and the bare product beside it."""

    def __init__(self, rule: str, size: str, **start: float) -> None:
        dimensions, features, k = SIZES[size]
        activation, mechanisms = rules(k)[rule]
        self.mechanisms = {name: stack_configs([mechanism]) for name, mechanism in mechanisms.items()}
        self.training = stack_configs([Training(steps=10**6, batch=BATCH)])
        world = Superposition(dimensions=dimensions, n_features=features, active=float(k))
        self.batches = [world.batch(position, BATCH).x for position in range(BATCHES)]
        dictionary = Dictionary(d_sae=features, activation=activation, pre_bias=True, **start)  # pyright: ignore
        self.state = State.start(dictionary, dimensions, self.mechanisms, [0], self.batches[0])
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


def measure(size: str, rule: str, late: range = LATE, **start: float) -> Iterator[Figure]:
    """The median of early and of late steps."""
    case = Case(rule, size, **start if rule in ("relu", "jumprelu", "gated") else {})
    case.warm()
    for steps in (EARLY, late):
        name = f"steps {steps.start} - {steps.stop - 1}"
        ratio = median(case.ratios(steps))
        goal = GOALS.get(rule, OTHERS)
        words = f"{rule}, {size}, {name} (L0 {case.fires:.0f})"
        yield Figure(words, ratio, goal, "lower", "products")


def peers(size: str, rule: str) -> Iterator[Figure]:
    """SAELens' trainer of the same architecture over our step, at the start."""
    case, (dimensions, features, k) = Case(rule, size), SIZES[size]
    theirs = sae_lens_architecture(rule, features, dimensions, k, BATCH)
    case.warm()
    theirs(case.batches[0])
    ratios = []
    for position in range(10):
        peer = seconds(lambda position=position: theirs(case.batches[position]))
        ratios.append(peer / seconds(case.step))
    yield Figure(f"SAELens / ours, {rule}, {size}", median(ratios), 6.5 if rule in GOALS else 5, "higher", "×")


def architectures() -> Iterator[Figure]:
    """Every rule at both sizes."""
    for size in SIZES:
        for rule in rules(1):
            yield from measure(size, rule)
            yield from peers(size, rule)


def main(words: list[str]) -> None:
    if "--one-thread" in words:
        torch.set_num_threads(1)
    settings = dict(word[2:].split("=") for word in words if "=" in word)
    first = int(settings.pop("late", LATE.start))
    start = {name: float(value) for name, value in settings.items()}
    chosen = [word for word in words if not word.startswith("--")] or list(rules(1))
    for size in [size for size in SIZES if f"--{size}" in words] or SIZES:
        for rule in chosen:
            late = range(first, first + len(LATE))
            for figure in peers(size, rule) if "--peers" in words else measure(size, rule, late, **start):
                print(figure, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
