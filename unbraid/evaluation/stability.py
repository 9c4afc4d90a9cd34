"""How much of a dictionary comes again: from another initialisation, other data, another method.

Chance is what random dictionaries of the same sizes and firing rules score, one against the other: they share nothing
but their dimensions and the inputs. In a run each member is compared with every other of its setting that learned from
the same inputs.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal

import torch

from unbraid.axes import Float, Int, Tensor
from unbraid.codes import Codes
from unbraid.dictionaries.baselines.baseline import FittedBaseline
from unbraid.dictionaries.baselines.rules import LeastSquares
from unbraid.dictionaries.encoding import encode
from unbraid.dictionaries.stack import Stack
from unbraid.errors import UserError
from unbraid.evaluation.dictionaries import BATCH, random_dictionaries
from unbraid.metrics import stability as metric
from unbraid.metrics.catalog import FOUND
from unbraid.worlds import World

SAMPLES = 4096
"""Codes are compared in a run on no more than so many of the samples."""
MAX_FEATURES = 4096
"""Above this many a run does not match features between members: it would take minutes a pair."""


@dataclass(frozen=True)
class Stability:
    """What `stability` returns: how much of each feature of the first dictionary the second has too.

    `print` shows the means beside chance.

    Parameters
    ----------
    cosine : Tensor, shape (m, f)
        Cosine of each feature's direction with that of its match in the second dictionary; 0 where it has none.
    match : integer Tensor, shape (m, f)
        The feature of the second dictionary that each is matched with, one to one; -1 where it has none.
    correlation : Tensor, shape (m, f), or None
        Correlation of its codes with those of its match; 0 where either never fires. None without inputs.
    chance : dict of str to float
        What random dictionaries of the same sizes and rules have: the means `cosine`, `correlation`, and `stable`.

    Examples
    --------
    >>> import torch, unbraid as ub
    >>> cosine = torch.tensor([[1.0, 0.2]])
    >>> same = ub.Stability(cosine, torch.tensor([[0, 1]]), None, {"cosine": 0.3, "stable": 0.0})
    >>> same.stable.tolist()  # the share of features whose match has a cosine of at least 0.9
    [0.5]
    >>> print(same)
                        value   chance
    cosine              0.600    0.300
    stable              0.500    0.000
    """

    cosine: Float[Tensor, "m f"]
    match: Int[Tensor, "m f"]
    correlation: Float[Tensor, "m f"] | None
    chance: dict[str, float]

    @property
    def mean(self) -> Float[Tensor, "m"]:
        """The mean cosine over the features of each member of the first dictionary."""
        return self.cosine.mean(-1)

    @property
    def stable(self) -> Float[Tensor, "m"]:
        """The share of features that come again: a matched cosine of at least 0.9."""
        return (self.cosine >= FOUND).float().mean(-1)

    def __str__(self) -> str:
        """The means over members and features, beside chance."""
        means = {"cosine": self.cosine, "stable": self.stable}
        means |= {} if self.correlation is None else {"correlation": self.correlation}
        lines = [f"{name:16}{float(value.mean()):>9.3f}{self.chance[name]:>9.3f}" for name, value in means.items()]
        return "\n".join([f"{'':16}{'value':>9}{'chance':>9}", *lines])


def stability(
    first: Stack | FittedBaseline,
    second: Stack | FittedBaseline,
    x: Float[Tensor, "b d"] | None = None,
    by: Literal["directions", "codes"] = "directions",
) -> Stability:
    """Measure how much of one dictionary another one has too, feature by feature.

    Features are matched one to one, so that the sum of what they are matched by is largest. The two may come from other
    seeds, other data or other methods, and may have different sizes; what was planted is not asked.

    Parameters
    ----------
    first, second : Stack or FittedBaseline
        Dictionaries of equal `d_in`. Member i is compared with member i, or one with all.
    x : Tensor, shape (b, d), optional
        Inputs on which the codes of both are compared; needed to match by codes.
    by : {"directions", "codes"}
        Match by the cosine of decoder directions, or by the correlation of codes over `x`.

    Returns
    -------
    Stability
        Of every feature of `first`: its match, its cosine with it and, with `x`, the correlation of their codes.

    Examples
    --------
    >>> import unbraid as ub
    >>> world = ub.Superposition(dimensions=32, n_features=48)
    >>> training = ub.Training(steps=300, batch=256, learning_rate=1e-2)
    >>> stack = ub.fit(world, ub.Dictionary(d_sae=48), [ub.Sparsity(weight=0.15)], training, seeds=[0, 1])
    >>> twice = ub.stability(stack.member(0), stack.member(1), world.batch(0, 1024).x)
    >>> twice.cosine.shape
    torch.Size([1, 48])
    >>> bool(twice.mean > twice.chance["cosine"])
    True
    """
    if by == "codes" and x is None:
        raise UserError(
            "stability by codes was asked for without inputs; accepted: x, rows to encode, or by directions"
        )
    pairs = _paired(_Compared.members_of(first, x), _Compared.members_of(second, x))
    matches = [_Match.of(a, b, by) for a, b in pairs]
    drawn = [
        random_dictionaries(one, one.directions.shape[-1], f"stability of the {place}")
        for one, place in ((first, "first"), (second, "second"))
    ]
    by_chance = [
        _Match.of(_Compared.members_of(a, x)[0], _Compared.members_of(b, x)[0], by) for a, b in zip(*drawn, strict=True)
    ]
    correlations = [match.correlation for match in matches if match.correlation is not None]
    return Stability(
        torch.stack([match.cosine for match in matches]),
        torch.stack([match.match for match in matches]),
        torch.stack(correlations) if correlations else None,
        _chance(by_chance),
    )


@dataclass(frozen=True)
class _Compared:
    """One dictionary as it is compared: directions, codes of the inputs, and whether their sign means something."""

    directions: Float[Tensor, "f d"]
    codes: Codes | None
    either_sign: bool

    @classmethod
    def members_of(cls, dictionary: Stack | FittedBaseline, x: Float[Tensor, "b d"] | None) -> "list[_Compared]":
        if isinstance(dictionary, Stack):
            members = [dictionary.member(index) for index in range(dictionary.members)]
            codes = [None if x is None else encode(member, x) for member in members]
            return [cls(m.directions[0].cpu(), c, either_sign=False) for m, c in zip(members, codes, strict=True)]
        dense = None if x is None else dictionary.encode(x).to_dense()
        either_sign = isinstance(dictionary.rule, LeastSquares)
        return [
            cls(rows, None if dense is None else Codes.dense(dense[index][None]), either_sign)
            for index, rows in enumerate(dictionary.directions.cpu())
        ]

    def dense(self) -> Float[Tensor, "b f"] | None:
        return None if self.codes is None else self.codes.to_dense()[0]


def _paired(first: list[_Compared], second: list[_Compared]) -> list[tuple[_Compared, _Compared]]:
    widths = first[0].directions.shape[1], second[0].directions.shape[1]
    if widths[0] != widths[1]:
        raise UserError(f"the dictionaries have {widths[0]} and {widths[1]} dimensions; accepted: as many in both")
    if len(first) != len(second) and 1 not in (len(first), len(second)):
        raise UserError(
            f"the dictionaries have {len(first)} and {len(second)} members; accepted: as many in both, or one in either"
        )
    members = max(len(first), len(second))
    return [(first[i % len(first)], second[i % len(second)]) for i in range(members)]


@dataclass(frozen=True)
class _Match:
    """Two dictionaries, matched: what each feature of the first has in common with its match."""

    match: Int[Tensor, "f"]
    cosine: Float[Tensor, "f"]
    correlation: Float[Tensor, "f"] | None

    @classmethod
    def of(cls, first: _Compared, second: _Compared, by: str) -> "_Match":
        either_sign = first.either_sign or second.either_sign
        cosine = metric.direction_table(first.directions, second.directions, either_sign)
        ours, theirs = first.dense(), second.dense()
        if ours is None or theirs is None:
            match = metric.match_features(cosine)
            return cls(match, metric.matched_values(cosine, match), None)
        match = metric.match_features(cosine if by == "directions" else metric.code_table(ours, theirs, either_sign))
        correlation = metric.matched_correlation(ours, theirs, match, either_sign)
        return cls(match, metric.matched_values(cosine, match), correlation.float())

    def from_second(self, features: int) -> "_Match":
        """The same, feature by feature of the second."""
        match = metric.inverse_match(self.match, features)

        def turned(values: Tensor) -> Tensor:
            return torch.where(match >= 0, values[match.clamp_min(0)], 0)

        return _Match(match, turned(self.cosine), None if self.correlation is None else turned(self.correlation))


def _chance(matches: Sequence[_Match]) -> dict[str, float]:
    cosine = torch.stack([match.cosine for match in matches])
    correlations = [match.correlation for match in matches if match.correlation is not None]
    correlation = {"correlation": float(torch.stack(correlations).mean())} if correlations else {}
    return {"cosine": float(cosine.mean()), "stable": float((cosine >= FOUND).float().mean()), **correlation}


@dataclass(frozen=True)
class StabilityScores:
    """Scores as `scores.json` has them, and tables by feature; empty where no two members share a setting."""

    values: dict[str, list[float]] = field(default_factory=dict)
    chance: dict[str, float | list[float]] = field(default_factory=dict)
    tables: dict[str, list[Tensor]] = field(default_factory=dict)
    """By member a row with a value for each of its features; NaN for a member that is alone."""


def score_stability(
    members: Sequence[Stack | FittedBaseline], settings: Sequence[Hashable], world: World, samples: int
) -> StabilityScores:
    """Compare each member with every other of its setting, on inputs that no training has seen.

    Parameters
    ----------
    members
        Dictionaries or baselines of one member each, which learned from the same world.
    settings
        The setting of each; members of one setting differ in their seed only.
    world
        What they learned from. Where its directions are planted, stability is compared with the truth.
    samples
        How many samples there are to score on.

    Returns
    -------
    StabilityScores
        A feature's stability is its mean over the other members of the setting.
    """
    alike = [[n for n, other in enumerate(settings) if other == setting] for setting in dict.fromkeys(settings)]
    if all(len(group) < 2 for group in alike) or max(member.features for member in members) > MAX_FEATURES:
        return StabilityScores()
    x = _inputs(world, samples)
    compared = [_Compared.members_of(member, x)[0] for member in members]
    matches: list[list[_Match]] = [[] for _ in members]
    for first, second in (pair for group in alike for pair in combinations(group, 2)):
        match = _Match.of(compared[first], compared[second], "directions")
        matches[first].append(match)
        matches[second].append(match.from_second(len(compared[second].directions)))
    rows = [_mean_over_partners(one, member.features) for one, member in zip(matches, members, strict=True)]
    random = [
        _Compared.members_of(drawn, x)[0] for drawn in random_dictionaries(members[0], world.dimensions, "stability")
    ]
    chance = _chance([_Match.of(a, b, "directions") for a, b in combinations(random, 2)])
    cosine, correlation = ([row[part] for row in rows] for part in range(2))
    values = {
        "stability": [float(row.mean()) for row in cosine],
        "stable": [float((row >= FOUND).double().mean()) if row.isfinite().all() else float("nan") for row in cosine],
        "stability_codes": [float(row.mean()) for row in correlation],
    }
    scores = StabilityScores(
        values,
        {"stability": chance["cosine"], "stable": chance["stable"], "stability_codes": chance["correlation"]},
        {"stability": cosine, "stability_codes": correlation},
    )
    return _with_truth(scores, compared, world.directions) if world.has_truth else scores


def _inputs(world: World, samples: int) -> Float[Tensor, "b d"]:
    """The first samples that scores are measured on."""
    count = min(samples, SAMPLES)
    sizes = [min(BATCH, count - start) for start in range(0, count, BATCH)]
    return torch.cat([world.batch(position, size, split="evaluation").x for position, size in enumerate(sizes)])


def _mean_over_partners(matches: Sequence[_Match], features: int) -> tuple[Tensor, Tensor]:
    if not matches:
        return torch.full((features,), torch.nan), torch.full((features,), torch.nan)
    correlations = [match.correlation for match in matches if match.correlation is not None]
    return torch.stack([match.cosine for match in matches]).mean(0), torch.stack(correlations).mean(0)


def _with_truth(
    scores: StabilityScores, compared: Sequence[_Compared], directions: Float[Tensor, "n d"]
) -> StabilityScores:
    """Whether what is stable tends to be true."""
    truth = [metric.truth_of_features(one.directions, directions, one.either_sign) for one in compared]
    rows = list(zip(scores.tables["stability"], truth, strict=True))
    shares = [metric.stable_true(*row) for row in rows]
    ranks = [metric.rank_with_truth(*row) if row[0].isfinite().all() else float("nan") for row in rows]
    return StabilityScores(
        {**scores.values, "stability_rank": ranks, "stable_true": [share for share, _ in shares]},
        {**scores.chance, "stability_rank": 0.0, "stable_true": [base for _, base in shares]},
        {**scores.tables, "truth_cosine": truth},
    )
