"""The speed of a training step against neighbours and against one bare encoder product, at late-training sparsity."""

import itertools
from collections.abc import Callable, Iterator

import torch

from benchmarks.figure import Figure, medians
from benchmarks.peers import dictionary_learning_step, dictionary_learning_topk_step, sae_lens
from unbraid import Dictionary, Relu, Sparsity, Superposition, TopK, Training
from unbraid.dictionaries.activations import Activation
from unbraid.dictionaries.lists import Inputs
from unbraid.dictionaries.training.sparse_step import sparse_step
from unbraid.dictionaries.training.step import State, StepOutput
from unbraid.members import stack_configs

WORLD, BATCH, L1, RATE, REPEATS = Superposition(), 4096, 0.1, 1e-4, 15


class Late:
    """Our step on a dictionary late in training: the true directions are found, and few features fire."""

    def __init__(self, features: int, activation: Activation | None = None, planted: bool = False) -> None:
        self.mechanisms = {} if isinstance(activation, TopK) else {"sparsity": stack_configs([Sparsity(weight=L1)])}
        self.training = stack_configs([Training(batch=BATCH, learning_rate=RATE)])
        dictionary = Dictionary(d_sae=features, activation=activation or Relu())
        self.state = State.start(dictionary, WORLD.dimensions, self.mechanisms, [0])
        for rows in (self.state.stack.encoder, self.state.stack.decoder):
            rows[0, : WORLD.n_features] = WORLD.directions[:features]
        self.state.stack.encoder_bias.fill_(-0.35)
        self.state.stack.encoder_bias[0, : WORLD.n_features] = -0.25
        self.batches = [WORLD.batch(position, BATCH) for position in range(4)]
        self.turns, self.planted = itertools.cycle(self.batches), planted

    def step(self) -> StepOutput:
        batch = next(self.turns)
        inputs = Inputs(batch.x, batch.truth, WORLD.directions) if self.planted else Inputs(batch.x)
        outcome = sparse_step(self.state, inputs, self.training, self.mechanisms)
        assert outcome is not None, "codes were too dense for the fast path"
        return outcome

    def fires(self) -> float:
        return float(self.step().l0.mean())

    def next_x(self) -> torch.Tensor:
        return next(self.turns).x

    def bare_product(self) -> Callable[[], object]:
        """The floor for real activations: the encoder's product into a ready buffer."""
        buffer, rows = torch.empty(BATCH, self.state.stack.features), self.state.stack.encoder[0]
        return lambda: torch.mm(self.next_x(), rows.T, out=buffer)


def speed() -> Iterator[Figure]:
    """One SAE, relu and L1, against the bare product and against our neighbours."""
    for features, most in ((2048, 1.3), (8192, 1.15), (16384, 1.15)):
        late = Late(features)
        yield Figure(f"L0 of the step measured, f={features}", late.fires(), 30, "lower", "")
        ours, product = medians(late.step, late.bare_product(), REPEATS)
        yield Figure(f"step / bare product, f={features}", ours / product, most, "lower", "×")
    for features, least in ((2048, 8), (8192, 10)):
        late, (_, peer) = Late(features), sae_lens(features, WORLD.dimensions, BATCH, L1, RATE)
        ours, theirs = medians(late.step, lambda late=late, peer=peer: peer(late.next_x()), REPEATS)
        yield Figure(f"SAELens / ours, f={features}", theirs / ours, least, "higher", "×")
    late, peer = Late(8192), dictionary_learning_step(8192, WORLD.dimensions, L1, RATE)
    ours, theirs = medians(late.step, lambda: peer(late.next_x()), REPEATS)
    yield Figure("dictionary_learning / ours, f=8192", theirs / ours, 8, "higher", "×")


def planted() -> Iterator[Figure]:
    """A planted world needs no dense product."""
    late = Late(8192, planted=True)
    ours, product = medians(late.step, late.bare_product(), REPEATS)
    yield Figure("planted step / bare product, f=8192", ours / product, 0.6, "lower", "×")


def topk() -> Iterator[Figure]:
    """Top-k against dictionary_learning's."""
    late = Late(16384, TopK(k=32))
    peer = dictionary_learning_topk_step(16384, WORLD.dimensions, 32, RATE)
    ours, theirs = medians(late.step, lambda: peer(late.next_x()), REPEATS)
    yield Figure("dictionary_learning top-k / ours, f=16384, k=32", theirs / ours, 5, "higher", "×")
