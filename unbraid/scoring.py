"""Score a stack or a baseline against the truth that was planted, with chance and ceiling beside every score.

Chance is what random directions of the same number score, fired by the same rule (for reconstruction: answering the
mean). The ceiling is an oracle of the same size: the most frequent true features as directions, the truth as codes.
Members are examined one at a time, and where codes are lists at the cost of what fired. Where no truth was planted,
what needs one is left out: there is no ceiling, and chance is only that of reconstruction.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from unbraid.axes import Float, Int, Tensor
from unbraid.codes import Codes
from unbraid.dictionaries.activations import Relu
from unbraid.dictionaries.baselines.baseline import Fitted
from unbraid.dictionaries.lists import encode
from unbraid.dictionaries.stack import Dictionary, Stack
from unbraid.metrics import absorption, fidelity, firing, recovery, sparsity
from unbraid.randomness import stream
from unbraid.repetition import SAMPLES, repetition
from unbraid.statistics import estimate
from unbraid.worlds import Batch, World

BATCH = 512
"""Small, because a world may fire by one draw per batch: a score must see many."""
CHANCE_DRAWS = 3
NO_CEILING = ("density", "dead")
CHANCE_KEPT = (
    *("mmcs", "mcc", "recovered", "precision", "recall", "f1"),
    *("absorption", "absorption_fraction", "redundancy", "correlation"),
)


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


def score(found: Stack | Fitted, world: World, samples: int = 20_480) -> Scores:
    """All scores of every member, on samples that no training has seen."""
    measured = _examine(_readers(found, world), world, samples)
    fidelity_chance = {"explained_variance": 0.0, "reconstruction_error": float(measured.variance)}
    if not world.is_planted:
        return Scores(measured.values, fidelity_chance, {}, measured.tables)
    chance = _mean(_examine(_random_readers(found, world), world, samples).values)
    kept_chance = {name: chance[name] for name in CHANCE_KEPT if name in chance}
    kept_chance |= fidelity_chance
    ceiling = _mean(_examine([_oracle_reader(found.features, world)], world, samples).values)
    kept_ceiling = {name: value for name, value in ceiling.items() if name not in NO_CEILING}
    return Scores(measured.values, kept_chance, kept_ceiling, measured.tables)


@dataclass(frozen=True)
class _Reader:
    """What is examined: directions already compared with the truth, and how they encode and decode."""

    values: dict[str, Tensor]
    tables: dict[str, Tensor]
    columns: Int[Tensor, "m n"]
    """Where in the codes the match of each true feature is; -1 where it has none."""
    families: absorption.Families | None
    """Where features have parents."""
    encode: Callable[[Batch], Codes]
    decode: Callable[[Codes], Tensor]
    repeats: Callable[[Sequence[Batch]], dict[str, Tensor]]

    @classmethod
    def of(
        cls,
        directions: Float[Tensor, "m f d"],
        encode: Callable[[Batch], Codes],
        decode: Callable[[Codes], Tensor],
        world: World,
    ) -> "_Reader":
        repeats = partial(repetition, directions, encode)
        if not world.is_planted:
            return cls({}, {}, torch.zeros(len(directions), 0, dtype=torch.long), None, encode, decode, repeats)
        cosine = recovery.cosines(world.directions, directions)
        matched = recovery.match(cosine)
        values = {
            "mmcs": recovery.mmcs(cosine),
            "mcc": recovery.mcc(cosine, matched),
            "recovered": recovery.recovered(cosine, matched),
        }
        tables = {
            "best_cosine": recovery.best_cosine(cosine),
            "matched_cosine": recovery.matched_cosine(cosine, matched),
            "match": matched,
        }
        hierarchy = bool((world.parents >= 0).any())
        families = absorption.Families.of(world.directions, directions, matched, world.parents) if hierarchy else None
        return cls(values, tables, matched, families, encode, decode, repeats)


def _readers(found: Stack | Fitted, world: World) -> list[_Reader]:
    if isinstance(found, Fitted):
        return [_Reader.of(found.directions, lambda batch: found.encode(batch.x), found.decode, world)]
    return [_stack_reader(found.member(index), world) for index in range(found.members)]


def _stack_reader(one: Stack, world: World) -> _Reader:
    return _Reader.of(one.directions, lambda batch: encode(one, batch.x), one.decode, world)


def _random_readers(found: Stack | Fitted, world: World) -> list[_Reader]:
    return [
        reader if isinstance(one, Fitted) else _narrowed(one, reader)
        for one in at_random(found, world.dimensions, "chance")
        for reader in _readers(one, world)
    ]


def at_random(found: Stack | Fitted, dimensions: int, name: str) -> list[Stack | Fitted]:
    """Dictionaries or baselines of the same size that fire by the same rule, their directions drawn by this stream."""
    seeds = stream(0, name).integers(0, 1 << 32, CHANCE_DRAWS).tolist()
    if isinstance(found, Fitted):
        return [found.at_random([seed]) for seed in seeds]
    like = Dictionary(features=found.features, activation=found.activation)
    return [Stack.start(like, dimensions, [seed]) for seed in seeds]


def _narrowed(one: Stack, reader: _Reader) -> _Reader:
    """The same with only the matched features read, where others do not bear on them: what chance is asked for.

    How much it repeats itself is still asked of the whole.
    """
    if not isinstance(one.activation, Relu) or bool((reader.columns < 0).any()):
        return reader
    kept = {name: p[:, reader.columns[0]] for name, p in one.parameters().items()}
    narrow = one.with_parameters(kept)
    columns = torch.arange(narrow.features)[None]
    return replace(reader, columns=columns, encode=lambda batch: encode(narrow, batch.x), decode=narrow.decode)


def _oracle_reader(features: int, world: World) -> _Reader:
    kept = world.probabilities.argsort(descending=True, stable=True)[:features]
    directions = world.directions[kept][None]

    def truth(batch: Batch) -> Codes:
        return Codes.dense(batch.truth.to_dense()[..., kept])

    return _Reader.of(directions, truth, lambda codes: codes.decode(directions), world)


@dataclass(frozen=True)
class _Tally:
    """Firing, reconstruction and counts of a reader; those of parts add up."""

    fired: firing.FiringCounts | None
    moments: fidelity.Moments
    counts: Int[Tensor, "m f"]
    absorbed: absorption.AbsorptionCounts | None

    @classmethod
    def of(cls, reader: _Reader, batch: Batch) -> "_Tally":
        codes = reader.encode(batch)
        counts, moments = codes.counts(), fidelity.Moments.of(batch.x, reader.decode(codes))
        if not reader.columns.shape[1]:
            return cls(None, moments, counts, None)
        true, strengths = _slots(batch.truth)
        partner = reader.columns[:, true]
        values = codes.at(partner.clamp_min(0)) * (partner >= 0)
        learned = counts.gather(1, reader.columns.clamp_min(0)) * (reader.columns >= 0)
        fired = firing.count_firing(true, values != 0, strengths != 0, learned)
        families = reader.families
        absorbed = absorption.count_absorption(families, true, strengths, values) if families else None
        return cls(fired, moments, counts, absorbed)

    def __add__(self, other: "_Tally") -> "_Tally":
        fired = self.fired + other.fired if self.fired and other.fired else None
        absorbed = self.absorbed + other.absorbed if self.absorbed and other.absorbed else None
        return _Tally(fired, self.moments + other.moments, self.counts + other.counts, absorbed)

    def values(self) -> dict[str, Tensor]:
        found, absorbed = self.fired, self.absorbed
        against_truth = {name: firing.mean_over_fired(each, found) for name, each in self._against_truth() if found}
        if absorbed:
            against_truth |= {"absorption": absorbed.rate(), "absorption_fraction": absorbed.mean_fraction()}
        return {
            **against_truth,
            "l0": sparsity.l0(self.counts, self.moments.samples),
            "density": sparsity.density(self.counts, self.moments.samples).mean(-1),
            "dead": sparsity.dead(self.counts).double(),
            "explained_variance": self.moments.explained_variance(),
            "reconstruction_error": self.moments.reconstruction_error(),
        }

    def tables(self) -> dict[str, Tensor]:
        own = {"absorption": self.absorbed.by_child()} if self.absorbed else {}
        return {**dict(self._against_truth()), **own, "density": sparsity.density(self.counts, self.moments.samples)}

    def _against_truth(self) -> list[tuple[str, Tensor]]:
        fired = self.fired
        return [("precision", fired.precision()), ("recall", fired.recall()), ("f1", fired.f1())] if fired else []


@dataclass(frozen=True)
class _Examination:
    values: dict[str, Tensor]
    tables: dict[str, Tensor]
    variance: Tensor


def _examine(readers: Sequence[_Reader], world: World, samples: int) -> _Examination:
    """Every reader on the same evaluation batches, each made once; the first of them are kept."""
    tallies: list[_Tally] = []
    kept: list[Batch] = []
    for position in range(-(-samples // BATCH)):
        batch = world.batch(position, min(BATCH, samples - position * BATCH), split="evaluation")
        kept += [batch] if (position + 1) * BATCH <= SAMPLES else []
        parts = [_Tally.of(reader, batch) for reader in readers]
        tallies = [a + b for a, b in zip(tallies, parts, strict=True)] if tallies else parts
    values = [{**r.values, **tally.values(), **r.repeats(kept)} for r, tally in zip(readers, tallies, strict=True)]
    tables = [{**reader.tables, **tally.tables()} for reader, tally in zip(readers, tallies, strict=True)]
    return _Examination(_joined(values), _joined(tables), tallies[0].moments.variance())


def _joined(parts: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Members after one another."""
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _slots(truth: Codes) -> tuple[Int[Tensor, "b k"], Float[Tensor, "b k"]]:
    """True features and strengths, sample by sample."""
    values = truth.values[0]
    features = truth.features[0] if truth.features is not None else torch.arange(truth.width).expand_as(values)
    return features.long(), values


def _mean(values: dict[str, Tensor]) -> dict[str, float]:
    return {name: float(value.double().mean()) for name, value in values.items()}


def matched_order(cosine: Float[Tensor, "n f"], matched: Int[Tensor, "n"]) -> Float[Tensor, "n f"]:
    """The cosine table with each true feature's match on the diagonal, the unmatched learned features after."""
    used = matched[matched >= 0]
    rest = torch.ones(cosine.shape[1], dtype=torch.bool).index_fill(0, used, False).nonzero()[:, 0]
    rows = torch.cat([(matched >= 0).nonzero()[:, 0], (matched < 0).nonzero()[:, 0]])
    return cosine[rows][:, torch.cat([used, rest])]


SHOWN_ROWS = 1024
"""Of the cosine matrix, no more than a figure can show."""


def shown_cosines(
    world: World, directions: Float[Tensor, "f d"], matched: Int[Tensor, "n"]
) -> Float[np.ndarray, "rows columns"]:
    """The cosine table in matched order, as much of it and as finely as a figure can show."""
    ordered = matched_order(recovery.cosines(world.directions, directions[None])[0], matched)[:SHOWN_ROWS]
    return ordered[:, : 2 * len(ordered)].numpy().astype(np.float16)
