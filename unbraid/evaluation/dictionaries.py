"""Score dictionaries and baselines against planted truth, with the chance and ceiling of every score.

Chance is the score of as many random directions with the same activation rule (for reconstruction: predicting the
mean). The ceiling is an oracle of the same size: the most frequent true features as directions, the truth as codes (and
of a planted map, what they drive as what they write, and the circuit itself as the decoder).
Members are scored one at a time, and sparse codes at the cost of what fired. Products are made on the dictionary's
device, and the rest is counted on the CPU. Where no truth was planted, scores that need it are left out: there is no
ceiling, and chance is only that of reconstruction.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch

from unbraid.axes import Float, Int, Tensor
from unbraid.codes import Codes
from unbraid.dictionaries.activations import Relu
from unbraid.dictionaries.baselines.baseline import FittedBaseline
from unbraid.dictionaries.coactivation import correlation
from unbraid.dictionaries.encoding import encode
from unbraid.dictionaries.stack import Dictionary, Stack, Target
from unbraid.dictionaries.training.adam import WITHOUT_FEATURES
from unbraid.errors import UserError
from unbraid.evaluation.further import DictionaryMetric, Measured, measure
from unbraid.metrics import absorption, circuits, firing, latents, recovery
from unbraid.metrics.catalog import METRICS, ORACLE, RANDOM
from unbraid.metrics.correlation import mean_correlation
from unbraid.metrics.intervals import estimate
from unbraid.randomness import stream
from unbraid.worlds import Batch, World
from unbraid.worlds.arrays import world_of

BATCH = 512
"""Samples in a batch. Small, because a world may fire by one draw per batch: a score must see many."""
REDUNDANCY_SAMPLES = 8192
"""Redundancy and correlation are measured on no more than so many of the samples."""
CHANCE_DRAWS = 3


@dataclass(frozen=True)
class Scores:
    """What `score` returns: the scores of every member, with their chance and ceiling.

    `print(scores)` shows a table: mean over members, 95 % interval, chance and ceiling. docs/metrics.md defines each
    score.

    Parameters
    ----------
    values : dict of str to Tensor, each of shape (m,)
        Each score by name.
    chance : dict of str to float
        What random dictionaries of the same size score.
    ceiling : dict of str to float
        What an oracle of the same size scores, which knows the planted features.
    tables : dict of str to Tensor
        Scores of each planted feature (m, n), or of each learned feature (m, f).

    Examples
    --------
    >>> import torch, unbraid as ub
    >>> scores = ub.Scores({"mmcs": torch.tensor([0.8, 0.9])}, chance={"mmcs": 0.4}, ceiling={"mmcs": 1.0}, tables={})
    >>> round(scores.values["mmcs"].mean().item(), 3)
    0.85
    >>> print(scores)  # doctest: +ELLIPSIS, +NORMALIZE_WHITESPACE
                               value    95 % interval      chance  ceiling
    mmcs                        0.85   [...]               0.4     1
    >>> list(scores.frame().columns)
    ['metric', 'value', 'low', 'high', 'chance', 'ceiling', 'n']
    """

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

    def frame(self) -> pd.DataFrame:
        """The same as a data frame: a row for each metric, with mean, interval, chance, ceiling and members (n)."""
        rows = []
        for name, values in self.values.items():
            mean = estimate(values.tolist())
            low, high = mean.interval or (np.nan, np.nan)
            bounds = {"chance": self.chance.get(name, np.nan), "ceiling": self.ceiling.get(name, np.nan)}
            rows.append({"metric": name, "value": mean.value, "low": low, "high": high, **bounds, "n": len(values)})
        return pd.DataFrame(rows)


def score(dictionary: Stack | FittedBaseline, world: Any, samples: int = 20_480) -> Scores:
    """Score dictionaries, or a baseline, on samples of a world that no training has seen, or on the rows of an array.

    Parameters
    ----------
    dictionary : Stack or FittedBaseline
        What `fit`, `load_stack` or `Baseline.fit` returned, for inputs of `world.dimensions` dimensions.
    world : World, array, path or iterator
        What it was trained on. The planted features, if there are any, are the truth. Or rows it should be scored on,
        as `fit` takes them, of which the first are used: keep some from training for that. Of a captured folder, those
        that are held out.
    samples : int, default 20,480
        Number of samples to score on; more make every score more precise.

    Returns
    -------
    Scores
        Recovery of directions (`mmcs`, `mcc`, `matched_cosine`), agreement of firing (`precision`, `recall`, `f1`),
        sparsity (`l0`, `dead`), reconstruction (`explained_variance`), redundancy and, in worlds with parents,
        absorption; on `Synth` also SynthSAEBench's own (`synth_mcc`, `synth_f1`, ...); of transcoders the planted
        connections (`edge_auroc`, `edge_f1`), of crosscoders which factors are shared (`shared_auroc`,
        `shared_accuracy`). docs/metrics.md defines them. Without planted features: sparsity, reconstruction and
        redundancy.

    Examples
    --------
    >>> import unbraid as ub
    >>> world = ub.Superposition(dimensions=8, n_features=16)
    >>> stack = ub.Stack.start(ub.Dictionary(d_sae=16), world.dimensions, seeds=[0, 1])
    >>> scores = ub.score(stack, world, samples=1024)
    >>> scores.values["mmcs"].shape
    torch.Size([2])
    >>> scores.chance["mmcs"] < scores.ceiling["mmcs"]
    True
    >>> float(ub.score(stack, world.batch(0, 512).x).values["l0"].mean()) > 1  # rows of an array
    True
    """
    world, samples = world_of(world, samples)
    if world.target_dimensions is not None and not (isinstance(dictionary, Stack) and dictionary.is_transcoder):
        raise UserError(
            "score was given a dictionary of inputs, and a world with other targets; accepted: a transcoder"
        )
    measured = _measure(_readers(dictionary, world), world, samples)
    reconstruction_chance = {"explained_variance": 0.0, "reconstruction_error": float(measured.variance)}
    if not world.has_truth:
        return Scores(measured.values, reconstruction_chance, {}, measured.tables)
    chance = _mean(_measure(_random_readers(dictionary, world), world, samples).values)
    kept_chance = {name: value for name, value in chance.items() if METRICS[name].chance == RANDOM}
    kept_chance |= reconstruction_chance
    ceiling = _mean(_measure([_oracle_reader(dictionary.features, world)], world, samples).values)
    kept_ceiling = {name: value for name, value in ceiling.items() if METRICS[name].ceiling == ORACLE}
    return Scores(measured.values, kept_chance, kept_ceiling, measured.tables)


def score_further(
    metrics: Mapping[str, DictionaryMetric], dictionary: Stack | FittedBaseline, world: World, samples: int
) -> Scores:
    """The scores of plugins' metrics, on no more than `REDUNDANCY_SAMPLES` samples."""
    if not metrics:
        return Scores({}, {}, {}, {})
    batches = [world.batch(i, BATCH, split="evaluation") for i in range(min(samples, REDUNDANCY_SAMPLES) // BATCH or 1)]
    measured = _further(metrics, _readers(dictionary, world), world, batches)
    chance = _mean(_further(metrics, _readers_of_random(dictionary, world), world, batches))
    truth = [_oracle_reader(dictionary.features, world)] if world.has_truth else []
    ceiling = _mean(_further(metrics, truth, world, batches)) if truth else {}
    return Scores(measured, chance, ceiling, {})


def _further(
    metrics: Mapping[str, DictionaryMetric], readers: Sequence["_Reader"], world: World, batches: Sequence[Batch]
) -> dict[str, Tensor]:
    found: list[dict[str, Tensor]] = []
    for reader in readers:
        codes = [reader.encode(batch) for batch in batches]
        made = torch.cat([reader.decode(each, batch) for each, batch in zip(codes, batches, strict=True)], 1)
        x, truth = torch.cat([batch.x for batch in batches]), Codes.concatenate([batch.truth for batch in batches])
        measured = Measured(x, Codes.concatenate(codes), made, reader.directions, truth, world.directions)
        found.append({name: measure(name, metric, measured) for name, metric in metrics.items()})
    return _joined(found)


@dataclass(frozen=True)
class _Reader:
    """What is scored: directions already matched with the truth, and how they encode and decode."""

    directions: Float[Tensor, "m f d"]
    values: dict[str, Tensor]
    tables: dict[str, Tensor]
    columns: Int[Tensor, "m n"]
    """The learned feature matched with each true feature; -1 where it has none."""
    families: absorption.Families | None
    """Parents and children, where features have parents."""
    nearest: Int[Tensor, "m f"] | None
    """The true feature nearest to each learned one, where the world is scored latent by latent."""
    encode: Callable[[Batch], Codes]
    decode: Callable[[Codes, Batch], Tensor]
    repeats: Callable[[Sequence[Batch]], dict[str, Tensor]]

    @classmethod
    def of(
        cls,
        directions: Float[Tensor, "m f d"],
        encode: Callable[[Batch], Codes],
        decode: Callable[[Codes, Batch], Tensor],
        world: World,
        written: Float[Tensor, "m f o"] | None = None,
    ) -> "_Reader":
        """`written` is what features write, where that is not their directions among the inputs."""
        repeats = partial(redundancy_scores, directions, encode)
        if not world.has_truth:
            none = torch.zeros(len(directions), 0, dtype=torch.long)
            return cls(directions, {}, {}, none, None, None, encode, decode, repeats)
        cosine = recovery.cosines(world.directions, directions)
        matched = recovery.match(cosine)
        values = {
            "mmcs": recovery.mmcs(cosine),
            "mcc": recovery.mcc(cosine, matched),
            "matched_cosine": recovery.mean_matched_cosine(cosine, matched),
            "recovered": recovery.recovered(cosine, matched),
            **circuit_scores(directions if written is None else written, matched, world),
        }
        tables = {
            "best_cosine": recovery.best_cosine(cosine),
            "matched_cosine": recovery.matched_cosine(cosine, matched),
            "match": matched,
            "best_feature": cosine.argmax(-1),
            "fate": recovery.concept_fates(cosine),
        }
        hierarchy = bool((world.parents >= 0).any())
        families = absorption.Families.of(world.directions, directions, matched, world.parents) if hierarchy else None
        nearest = latents.nearest_truth(cosine) if world.scored_by_latent else None
        if nearest is not None:
            values |= {"synth_mcc": latents.absolute_mcc(cosine), "uniqueness": latents.uniqueness(nearest)}
            tables["nearest"] = nearest
        return cls(directions, values, tables, matched, families, nearest, encode, decode, repeats)


def _readers(dictionary: Stack | FittedBaseline, world: World) -> list[_Reader]:
    if isinstance(dictionary, FittedBaseline):
        fitted = dictionary
        decode = lambda codes, _: fitted.decode(codes)  # noqa: E731
        return [_Reader.of(fitted.directions, lambda batch: fitted.encode(batch.x), decode, world)]
    return [_member_reader(dictionary.member(index), world) for index in range(dictionary.members)]


def _member_reader(member: Stack, world: World) -> _Reader:
    return _Reader.of(
        member.directions.cpu(),
        lambda batch: encode(member, batch.x),
        lambda codes, batch: member.decode(codes, batch.x),
        world,
        member.decoder.cpu(),
    )


def _readers_of_random(dictionary: Stack | FittedBaseline, world: World) -> list[_Reader]:
    drawn = random_dictionaries(dictionary, world.dimensions, "chance")
    return [reader for random in drawn for reader in _readers(random, world)]


def _random_readers(dictionary: Stack | FittedBaseline, world: World) -> list[_Reader]:
    return [
        reader if isinstance(random, FittedBaseline) else _only_matched(random, reader)
        for random in random_dictionaries(dictionary, world.dimensions, "chance")
        for reader in _readers(random, world)
    ]


def random_dictionaries(dictionary: Stack | FittedBaseline, dimensions: int, name: str) -> list[Stack | FittedBaseline]:
    """Dictionaries or baselines of the same size and rule, with directions drawn from the random stream `name`."""
    seeds = stream(0, name).integers(0, 1 << 32, CHANCE_DRAWS).tolist()
    if isinstance(dictionary, FittedBaseline):
        return [dictionary.at_random([seed]) for seed in seeds]
    config = Dictionary(d_sae=dictionary.features, activation=dictionary.activation)
    target = Target(dictionary.d_out) if dictionary.is_transcoder else None
    drawn = [Stack.start(config, dimensions, [seed], target=target) for seed in seeds]
    return [stack.to(dictionary.device, dictionary.precision) for stack in drawn]


def _only_matched(stack: Stack, reader: _Reader) -> _Reader:
    """A faster reader with the matched features only, where the others cannot change whether these fire.

    Redundancy and correlation are still measured on all features.
    """
    if type(stack.activation) is not Relu or bool((reader.columns < 0).any()) or reader.nearest is not None:
        return reader
    named, matched = stack.parameters().items(), reader.columns[0].to(stack.device)
    narrow = stack.with_parameters({name: p[:, matched] for name, p in named if name not in WITHOUT_FEATURES})
    columns, decode = torch.arange(narrow.features)[None], lambda codes, _: narrow.decode(codes)
    return replace(reader, columns=columns, encode=lambda batch: encode(narrow, batch.x), decode=decode)


def _oracle_reader(features: int, world: World) -> _Reader:
    kept = world.probabilities.argsort(descending=True, stable=True)[:features]
    directions = world.directions[kept][None]

    def truth(batch: Batch) -> Codes:
        return Codes.dense(batch.truth.to_dense()[..., kept])

    circuit = world.circuit
    if circuit is None:
        return _Reader.of(directions, truth, lambda codes, _: codes.decode(directions), world)
    edges = circuit.edges[kept][None]
    written = edges @ circuit.directions
    return _Reader.of(directions, truth, lambda codes, _: circuit.targets(codes.decode(edges)), world, written)


def circuit_scores(written: Float[Tensor, "m f o"], matched: Int[Tensor, "m n"], world: World) -> dict[str, Tensor]:
    """Whether features write what the planted circuit says, and at the sites where their factors are."""
    scores: dict[str, Tensor] = {}
    if world.circuit is not None:
        connection, edges = circuits.connections(written, world.circuit.directions, matched), world.circuit.edges != 0
        scores |= {
            "edge_auroc": circuits.edge_auroc(connection, edges),
            "edge_f1": circuits.edge_f1(connection, edges),
        }
    if world.presence is not None and 0 < int((shared := world.presence.all(1)).sum()) < len(shared):
        sharedness = circuits.sharedness(circuits.relative_norm(written, world.sites), matched)
        scores |= {
            "shared_auroc": circuits.auroc(sharedness, shared),
            "shared_accuracy": circuits.shared_accuracy(sharedness, shared),
        }
    return scores


@dataclass(frozen=True)
class _Tally:
    """Firing, reconstruction and counts of a reader; tallies of batches add up."""

    fired: firing.FiringCounts | None
    moments: firing.Moments
    counts: Int[Tensor, "m f"]
    absorbed: absorption.AbsorptionCounts | None
    by_latent: "_LatentTally | None"

    @classmethod
    def of(cls, reader: _Reader, batch: Batch) -> "_Tally":
        codes = reader.encode(batch)
        target = batch.x if batch.target is None else batch.target
        reconstruction = reader.decode(codes, batch)
        counts, moments = codes.counts(), firing.Moments.of(target, reconstruction)
        if not reader.columns.shape[1]:
            return cls(None, moments, counts, None, None)
        true, strengths = _slots(batch.truth)
        partner = reader.columns[:, true]
        values = codes.at(partner.clamp_min(0)) * (partner >= 0)
        learned = counts.gather(1, reader.columns.clamp_min(0)) * (reader.columns >= 0)
        fired = firing.count_firing(true, values != 0, strengths != 0, learned)
        families = reader.families
        absorbed = absorption.count_absorption(families, true, strengths, values) if families else None
        by_latent = None
        if reader.nearest is not None:
            silence = latents.count_silence(families.parents, true, strengths, values) if families else None
            told = latents.count_latents(
                codes.features, codes.values != 0, batch.truth.to_dense()[0] != 0, reader.nearest
            )
            by_latent = _LatentTally(told, latents.Shrinkage.of(batch.x, reconstruction), silence)
        return cls(fired, moments, counts, absorbed, by_latent)

    def __add__(self, other: "_Tally") -> "_Tally":
        fired = self.fired + other.fired if self.fired and other.fired else None
        absorbed = self.absorbed + other.absorbed if self.absorbed and other.absorbed else None
        by_latent = self.by_latent + other.by_latent if self.by_latent and other.by_latent else None
        return _Tally(fired, self.moments + other.moments, self.counts + other.counts, absorbed, by_latent)

    def values(self) -> dict[str, Tensor]:
        fired, absorbed = self.fired, self.absorbed
        against_truth = {name: firing.mean_over_fired(values, fired) for name, values in self._by_feature() if fired}
        if absorbed:
            against_truth |= {"absorption": absorbed.rate(), "absorption_fraction": absorbed.mean_fraction()}
        if self.by_latent:
            against_truth |= self.by_latent.values()
        return {
            **against_truth,
            "l0": firing.l0(self.counts, self.moments.samples),
            "density": firing.density(self.counts, self.moments.samples).mean(-1),
            "zeros": firing.zeros(self.counts, self.moments.samples),
            "dead": firing.dead(self.counts).double(),
            "explained_variance": self.moments.explained_variance(),
            "reconstruction_error": self.moments.reconstruction_error(),
        }

    def tables(self) -> dict[str, Tensor]:
        counts = self.absorbed
        absorbed = {"absorption": counts.by_child(), "absorbed_fraction": counts.by_parent()} if counts else {}
        by_latent = self.by_latent.tables() if self.by_latent else {}
        return {
            **dict(self._by_feature()),
            **absorbed,
            **by_latent,
            "density": firing.density(self.counts, self.moments.samples),
        }

    def _by_feature(self) -> list[tuple[str, Tensor]]:
        fired = self.fired
        return [("precision", fired.precision()), ("recall", fired.recall()), ("f1", fired.f1())] if fired else []


@dataclass(frozen=True)
class _LatentTally:
    """What SynthSAEBench counts, latent by latent; tallies of batches add up."""

    told: latents.LatentCounts
    shrinkage: latents.Shrinkage
    silence: latents.SilenceCounts | None

    def __add__(self, other: "_LatentTally") -> "_LatentTally":
        silence = self.silence + other.silence if self.silence and other.silence else None
        return _LatentTally(self.told + other.told, self.shrinkage + other.shrinkage, silence)

    def values(self) -> dict[str, Tensor]:
        scores = {name: table.mean(-1) for name, table in self._by_latent().items()}
        if self.silence:
            scores["silent_with_child"], scores["silent_alone"] = self.silence.rates()
        return {**scores, "shrinkage": self.shrinkage.mean()}

    def tables(self) -> dict[str, Tensor]:
        tables = self._by_latent()
        if self.silence:
            tables["silent_with_child"], tables["silent_alone"] = self.silence.by_parent()
        return tables

    def _by_latent(self) -> dict[str, Tensor]:
        told = self.told
        scores = {"precision": told.precision(), "recall": told.recall(), "f1": told.f1(), "accuracy": told.accuracy()}
        return {f"synth_{name}": table for name, table in scores.items()}


@dataclass(frozen=True)
class _Measurement:
    values: dict[str, Tensor]
    tables: dict[str, Tensor]
    variance: Tensor


def _measure(readers: Sequence[_Reader], world: World, samples: int) -> _Measurement:
    """Every reader on the same evaluation batches, each drawn once; redundancy on the first of them."""
    tallies: list[_Tally] = []
    first_batches: list[Batch] = []
    for position in range(-(-samples // BATCH)):
        batch = world.batch(position, min(BATCH, samples - position * BATCH), split="evaluation")
        first_batches += [batch] if (position + 1) * BATCH <= REDUNDANCY_SAMPLES else []
        of_batch = [_Tally.of(reader, batch) for reader in readers]
        tallies = [a + b for a, b in zip(tallies, of_batch, strict=True)] if tallies else of_batch
    values = [
        {**reader.values, **tally.values(), **reader.repeats(first_batches)}
        for reader, tally in zip(readers, tallies, strict=True)
    ]
    tables = [_with_absorbed({**r.tables, **tally.tables()}) for r, tally in zip(readers, tallies, strict=True)]
    return _Measurement(_joined(values), _joined(tables), tallies[0].moments.variance())


def _with_absorbed(tables: dict[str, Tensor]) -> dict[str, Tensor]:
    """In worlds with parents: the fate of those that children absorb."""
    if "absorbed_fraction" not in tables:
        return tables
    return {**tables, "fate": recovery.mark_absorbed(tables["fate"], tables["absorbed_fraction"])}


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


def redundancy_scores(
    directions: Float[Tensor, "m f d"], encode: Callable[[Batch], Codes], batches: Sequence[Batch]
) -> dict[str, Tensor]:
    """How much a dictionary says twice: features that point alike, and features that fire alike."""
    codes = Codes.concatenate([encode(batch) for batch in batches])
    return {
        "redundancy": recovery.redundancy(directions, codes.counts()),
        "correlation": correlation(codes),
        "mean_correlation": mean_correlation(codes.values, codes.features, codes.width),
    }


def matched_order(cosine: Float[Tensor, "n f"], matched: Int[Tensor, "n"]) -> Float[Tensor, "n f"]:
    """The cosine table with each true feature's match on the diagonal, the unmatched learned features after."""
    used = matched[matched >= 0]
    rest = torch.ones(cosine.shape[1], dtype=torch.bool).index_fill(0, used, False).nonzero()[:, 0]
    rows = torch.cat([(matched >= 0).nonzero()[:, 0], (matched < 0).nonzero()[:, 0]])
    return cosine[rows][:, torch.cat([used, rest])]


SHOWN_ROWS = 1024
"""Rows of the cosine matrix that a figure shows."""


def shown_cosines(
    world: World, directions: Float[Tensor, "f d"], matched: Int[Tensor, "n"]
) -> Float[np.ndarray, "rows columns"]:
    """The cosine table in matched order, cut and rounded to what a figure shows."""
    ordered = matched_order(recovery.cosines(world.directions, directions[None])[0], matched)[:SHOWN_ROWS]
    return ordered[:, : 2 * len(ordered)].numpy().astype(np.float16)
