"""The speed and memory of KL attention: against its form over pairs, against softmax attention, and of whole steps."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.figure import Figure, medians
from unbraid.models import FreeEnergy, Gauge, ModelConfig, Transformer
from unbraid.models.gauge.attention import GaugeMask, attend, pattern
from unbraid.models.gauge.beliefs import Beliefs
from unbraid.models.gauge.frames import turns
from unbraid.models.gauge.pairwise import compare, mix, transports
from unbraid.models.profile import GAUGE_WIDTHS, KIB, step_memory, training_step

TOKENS, HEADS, DEGREE, BATCH, LONG = 256, 4, 2, 8, 2048
WIDTH = HEADS * (2 * DEGREE + 1)
REPEATS = 15
TEN = 10
"""So often in a row the fast form is timed: after gigabytes of pairs its first pass would be of a cold cache."""
SEED = "5x0e + 3x1e + 1x2e"
Pass = Callable[[], Tensor]


@dataclass(frozen=True)
class Held:
    """What every token believes, in a frame of its own."""

    mean: Tensor
    spread: Tensor
    frames: Tensor

    @classmethod
    def drawn(cls, dtype: torch.dtype = torch.float32, batch: int = BATCH) -> "Held":
        rng = torch.Generator().manual_seed(0)
        shape = (1, batch, TOKENS, HEADS, 2 * DEGREE + 1)
        drawn = [torch.randn(shape, generator=rng, dtype=dtype) for _ in range(2)]
        frames = torch.randn(1, batch, TOKENS, 3, generator=rng, dtype=dtype)
        return cls(drawn[0].requires_grad_(), (0.5 * drawn[1]).requires_grad_(), frames.requires_grad_())

    def leaves(self) -> list[Tensor]:
        return [self.mean, self.spread, self.frames]

    def at(self, sequence: int) -> "Held":
        return Held(*(part[:, sequence : sequence + 1] for part in self.leaves()))


def causal_mask() -> GaugeMask:
    return GaugeMask(None, torch.ones(1, 1, TOKENS, TOKENS, dtype=torch.bool).tril())


def kappa(held: Held) -> Tensor:
    return held.mean.new_full((1, HEADS), (2 * DEGREE + 1) ** 0.5)


def fast(held: Held) -> Tensor:
    """What heads read, in tokens' own frames."""
    turn = turns(held.frames, {DEGREE})[DEGREE]
    beliefs = Beliefs.turned(held.mean, held.spread.exp(), turn)
    return attend(beliefs, kappa(held), causal_mask(), covariance=False).mean @ turn.mT


def by_pairs(held: Held) -> Tensor:
    pairs = compare(held.mean, torch.diag_embed(held.spread.exp()), transports(held.frames, DEGREE, "exact"))
    return mix(pairs, pattern(pairs.kl, kappa(held), causal_mask()))[0]


def there_and_back(make: Callable[[Held], Tensor], held: Held) -> Callable[[], object]:
    return lambda: torch.autograd.grad(make(held).sum(), held.leaves())


def pairs_there_and_back(held: Held) -> Callable[[], object]:
    """Sequence by sequence: all at once it would take gigabytes."""

    def work() -> object:
        return [torch.autograd.grad(by_pairs(held.at(b)).sum(), held.leaves()) for b in range(BATCH)]

    return work


def softmax_layer() -> Callable[[], object]:
    """Queries, keys and values of the same heads and width, and what they write together."""
    rng = torch.Generator().manual_seed(1)
    x = torch.randn(BATCH, TOKENS, WIDTH, generator=rng, requires_grad=True)
    qkv, out = (torch.randn(n * WIDTH, WIDTH, generator=rng).div(WIDTH**0.5).requires_grad_() for n in (3, 1))

    def work() -> object:
        q, k, v = functional.linear(x, qkv).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        z = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return torch.autograd.grad(functional.linear(z.transpose(1, 2).flatten(2), out).sum(), [x, qkv, out])

    return work


def step(settings: ModelConfig) -> Callable[[], object]:
    return training_step(settings, TOKENS, BATCH)


def differences() -> Iterator[Figure]:
    for dtype, goal in ((torch.float32, 1e-4), (torch.float64, 1e-10)):
        held = Held.drawn(dtype, batch=1)
        exact = Held(*(part.double() for part in held.leaves()))
        with torch.no_grad():
            expected = by_pairs(exact)
            apart = float((fast(held).double() - expected).norm() / expected.norm())
        yield Figure(f"KL attention: fast from pairs, {str(dtype).split('.')[1]}", apart, goal, "lower", "")


def gauge() -> Iterator[Figure]:
    """Fast against pairs, against softmax; steps against a plain transformer of equal width; memory of a long one."""
    yield from differences()
    held = Held.drawn()
    ours = there_and_back(fast, held)
    quick, slow = medians(lambda: [ours() for _ in range(TEN)], pairs_there_and_back(held), 3)
    yield Figure(f"KL attention: pairs / fast, N={TOKENS}, 4 heads ℓ=2", TEN * slow / quick, 100, "higher", "×")
    quick, softmax = medians(ours, softmax_layer(), REPEATS)
    yield Figure(f"KL attention layer / softmax layer, N={TOKENS}", quick / softmax, 2, "lower", "×")
    for irreps, width, heads in ((f"{HEADS}x{DEGREE}e", WIDTH, HEADS), (SEED, 18, 9), (SEED, WIDTH, 5)):
        rival = Transformer(d_model=width, heads=heads, layers=1, d_ff=4 * width, positions="learned")
        for free, words in ((None, "attention"), (FreeEnergy(), "with free energy")):
            mine, theirs = medians(step(Gauge(irreps=irreps, free_energy=free)), step(rival), REPEATS)
            name = f"gauge step, {irreps}, {words} / plain, d={width}, {heads} heads"
            yield Figure(name, mine / theirs, 3, "lower", "×")
    for width in (64, 128):
        irreps = GAUGE_WIDTHS[width]
        rival = Transformer(d_model=width, heads=8, layers=1, d_ff=4 * width, positions="learned")
        mine, theirs = medians(step(Gauge(irreps=irreps)), step(rival), REPEATS // 3)
        yield Figure(f"gauge step, {irreps} / plain, d={width}, 8 heads", mine / theirs, 3, "lower", "×")
    long = [Gauge(irreps=SEED), Gauge(irreps=SEED, free_energy=FreeEnergy())]
    for model in (*long, *(Gauge(irreps=GAUGE_WIDTHS[width]) for width in (64, 128))):
        free = " with free energy" if model.free_energy else ""
        peak = step_memory(model, LONG, BATCH).peak / KIB**2
        yield Figure(f"peak of a gauge step, N={LONG}, {model.irreps}{free}", peak, 4, "lower", "GiB")
