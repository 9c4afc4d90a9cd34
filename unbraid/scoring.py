"""Score a stack against the truth that was planted, with chance and ceiling beside every score.

Chance is what a random dictionary of the same size scores, fired by the same rule (for reconstruction: answering the
mean). The ceiling is an oracle of the same size: the most frequent true features as directions, the truth as codes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import torch

from unbraid.axes import Float, Int, Tensor
from unbraid.codes import Codes
from unbraid.dictionaries.stack import Dictionary, Stack
from unbraid.metrics import fidelity, firing, recovery, sparsity
from unbraid.randomness import stream
from unbraid.statistics import estimate
from unbraid.worlds import Batch, World

BATCH = 1024
CHANCE_DRAWS = 3
NO_CEILING = ("density", "dead")
CHANCE_KEPT = ("mmcs", "mcc", "recovered", "precision", "recall", "f1")


@dataclass(frozen=True)
class Scores:
    """Each score per member, its chance and ceiling, and tables per true and per learned feature."""

    values: dict[str, Float[Tensor, "m"]]
    chance: dict[str, float]
    ceiling: dict[str, float]
    tables: dict[str, Tensor]

    def __str__(self) -> str:
        """A table: mean over members, 95 % interval, chance and ceiling."""
        lines = [f"{'':22}{'value':>9}  {'95 % interval':^18}{'chance':>9}{'ceiling':>9}"]
        for name, values in self.values.items():
            mean = estimate(values.tolist())
            interval = "[{:.3g}, {:.3g}]".format(*mean.interval) if mean.interval else "–"
            bounds = [f"{side[name]:>9.3g}" if name in side else f"{'–':>9}" for side in (self.chance, self.ceiling)]
            lines.append(f"{name:22}{mean.value:>9.3g}  {interval:^18}{''.join(bounds)}")
        return "\n".join(lines)


def score(stack: Stack, world: World, samples: int = 20_480) -> Scores:
    """All scores of every member, on samples that no training has seen."""
    measured = _examine(stack.directions, lambda batch: stack.encode(batch.x), stack.decode, world, samples)
    chance = _mean(_examine_random(stack, world, samples).values)
    kept_chance = {name: chance[name] for name in CHANCE_KEPT}
    kept_chance |= {"explained_variance": 0.0, "reconstruction_error": float(measured.variance)}
    ceiling = _mean(_examine_oracle(stack, world, samples).values)
    kept_ceiling = {name: value for name, value in ceiling.items() if name not in NO_CEILING}
    return Scores(measured.values, kept_chance, kept_ceiling, measured.tables)


@dataclass(frozen=True)
class _Examination:
    values: dict[str, Tensor]
    tables: dict[str, Tensor]
    variance: Tensor


def _examine(
    directions: Float[Tensor, "m f d"],
    encode: Callable[[Batch], Codes],
    decode: Callable[[Codes], Tensor],
    world: World,
    samples: int,
) -> _Examination:
    cosine = recovery.cosines(world.directions, directions)
    matched = recovery.match(cosine)
    together, moments, counts = _tally(encode, decode, matched, world, samples)
    values = {
        "mmcs": recovery.mmcs(cosine),
        "mcc": recovery.mcc(cosine, matched),
        "recovered": recovery.recovered(cosine, matched),
        "precision": firing.mean_over_fired(together.precision(), together),
        "recall": firing.mean_over_fired(together.recall(), together),
        "f1": firing.mean_over_fired(together.f1(), together),
        "l0": sparsity.l0(counts, moments.samples),
        "density": sparsity.density(counts, moments.samples).mean(-1),
        "dead": sparsity.dead(counts).double(),
        "explained_variance": moments.explained_variance(),
        "reconstruction_error": moments.reconstruction_error(),
    }
    tables = {
        "best_cosine": recovery.best_cosine(cosine),
        "matched_cosine": recovery.matched_cosine(cosine, matched),
        "match": matched,
        "precision": together.precision(),
        "recall": together.recall(),
        "f1": together.f1(),
        "density": sparsity.density(counts, moments.samples),
    }
    return _Examination(values, tables, moments.variance())


def _tally(
    encode: Callable[[Batch], Codes],
    decode: Callable[[Codes], Tensor],
    matched: Int[Tensor, "m n"],
    world: World,
    samples: int,
) -> tuple[firing.FiringCounts, fidelity.Moments, Tensor]:
    """Firing, reconstruction and counts, added up over the evaluation batches."""

    def part(position: int) -> tuple[firing.FiringCounts, fidelity.Moments, Tensor]:
        batch = world.batch(position, min(BATCH, samples - position * BATCH), split="evaluation")
        codes = encode(batch)
        fired = firing.count_firing(codes.to_dense() != 0, batch.truth.to_dense()[0] != 0, matched)
        return fired, fidelity.Moments.of(batch.x, decode(codes)), codes.counts()

    parts = map(part, range(-(-samples // BATCH)))
    return reduce(lambda a, b: (a[0] + b[0], a[1] + b[1], a[2] + b[2]), parts)


def _examine_random(stack: Stack, world: World, samples: int) -> _Examination:
    seeds = stream(0, "chance").integers(0, 1 << 32, CHANCE_DRAWS).tolist()
    dictionary = Dictionary(features=stack.features, activation=stack.activation)
    random = Stack.start(dictionary, world.dimensions, seeds)
    return _examine(random.directions, lambda batch: random.encode(batch.x), random.decode, world, samples)


def _examine_oracle(stack: Stack, world: World, samples: int) -> _Examination:
    kept = world.probabilities.argsort(descending=True, stable=True)[: stack.features]
    directions = world.directions[kept][None]

    def truth(batch: Batch) -> Codes:
        return Codes.dense(batch.truth.to_dense()[..., kept])

    return _examine(directions, truth, lambda codes: codes.decode(directions), world, samples)


def _mean(values: dict[str, Tensor]) -> dict[str, float]:
    return {name: float(value.double().mean()) for name, value in values.items()}


def matched_order(cosine: Float[Tensor, "n f"], matched: Int[Tensor, "n"]) -> Float[Tensor, "n f"]:
    """The cosine table with each true feature's match on the diagonal, the unmatched learned features after."""
    used = matched[matched >= 0]
    rest = torch.ones(cosine.shape[1], dtype=torch.bool).index_fill(0, used, False).nonzero()[:, 0]
    rows = torch.cat([(matched >= 0).nonzero()[:, 0], (matched < 0).nonzero()[:, 0]])
    return cosine[rows][:, torch.cat([used, rest])]
