"""Score dictionaries of a line against the planted factors: recovery, failure accounting, disentanglement.

Chance of recovery and accounting is the mean of three random dictionaries of the same size that fire by the same rule;
of the disentanglement scores the same code with the factors' rows shuffled. As the ceiling of recovery stands a linear
probe on the same activations; codes are not linear, so where a probe can tell little they may tell more.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from scipy import sparse

from unbraid.axes import Float, Tensor
from unbraid.codes import Codes
from unbraid.dictionaries.baselines.baseline import Fitted
from unbraid.dictionaries.lists import encode
from unbraid.dictionaries.stack import Stack
from unbraid.line.truth import Truth, probed
from unbraid.metrics.accounting import Account, account
from unbraid.metrics.association import associate, best
from unbraid.metrics.disentanglement import disentanglement
from unbraid.metrics.readings import GOOD
from unbraid.metrics.several import best_few
from unbraid.randomness import stream
from unbraid.scoring import at_random
from unbraid.worlds.activations import Activations

Numbers = dict[str, float]


@dataclass(frozen=True)
class Read:
    """What one dictionary says of the truth."""

    codes: sparse.csr_array
    account: Account
    recovery: Float[np.ndarray, "c"]
    """Of each concept, by its best feature."""
    by_few: Float[np.ndarray, "c"]
    """By a few features together."""


@dataclass(frozen=True)
class FactorScores:
    """Scores of every member by name, their chance and ceiling; and what each member says."""

    values: dict[str, list[float]]
    chance: dict[str, list[float]]
    ceiling: Numbers
    probe: list[float]
    truth: Truth
    members: list[Read]


def score_factors(found: Stack | Fitted, world: Activations, samples: int) -> FactorScores:
    """All scores of every member, on stories that no training has seen."""
    truth = Truth.of(world, samples)
    probe = probed(world, truth, samples)
    members = [read(one, truth) for one in _each(found)]
    drawn = at_random(found, world.dimensions, "chance of factors")
    lucky = _columns([_scores(read(one, truth), truth) for one in drawn])
    luck = {name: float(np.mean(each)) for name, each in lucky.items()}
    entangled = [
        disentanglement(one.codes, truth.told.factors, truth.fit, stream(place, "shuffled factors"))
        for place, one in enumerate(members)
    ]
    told = float(np.nanmean(probe))
    values = [
        {**own, "recovery_share": from_chance(own["recovery"], luck["recovery"], told), "probe": told, **more.scores}
        for own, more in zip([_scores(one, truth) for one in members], entangled, strict=True)
    ]
    chance = [{**luck, "recovery_share": 0.0, **more.chance} for more in entangled]
    ceiling = {"recovery": told, "few": told, "recovery_share": 1.0}
    for kind in ("recovery", "few"):
        ceiling |= {f"{kind}_{slug(name)}": value for name, value in truth.by_factor(probe).items()}
    ceiling["factors_recovered"] = float(np.mean([value >= GOOD for value in probe if not np.isnan(value)]))
    return FactorScores(_columns(values), _columns(chance), ceiling, probe, truth, members)


def read(one: Stack | Fitted, truth: Truth) -> Read:
    """What a single dictionary says."""
    codes = as_rows(_encode(one, truth.told.x))
    found = associate(codes, truth.concepts, truth.fit)
    few = best_few(codes, truth.concepts, truth.fit, found)
    return Read(codes, account(codes, truth.concepts, truth.fit), best(found).phi, few)


def as_rows(codes: Codes) -> sparse.csr_array:
    """The codes of a single member, one row a sample."""
    values = codes.values[0].double().numpy()
    if codes.features is None:
        return sparse.csr_array(values)
    rows, slots = np.nonzero(values)
    columns = codes.features[0].numpy()[rows, slots]
    where = rows.astype(np.int32), columns.astype(np.int32)  # scikit-learn takes no longer ones
    return sparse.csr_array((values[rows, slots], where), shape=(len(values), codes.width))


def slug(factor: str) -> str:
    """The name of a factor as part of a score's."""
    return factor.replace(" ", "_")


def from_chance(recovery: float, chance: float, probe: float) -> float:
    """How far recovery is on the way from chance (0) to a linear probe (1); NaN where a probe tells no more."""
    return (recovery - chance) / (probe - chance) if probe > chance else float("nan")


def _scores(one: Read, truth: Truth) -> Numbers:
    return {
        "recovery": float(np.nanmean(one.recovery)),
        **{f"recovery_{slug(name)}": value for name, value in truth.by_factor(one.recovery.tolist()).items()},
        "few": float(np.nanmean(one.by_few)),
        **{f"few_{slug(name)}": value for name, value in truth.by_factor(one.by_few.tolist()).items()},
        **{f"factors_{name}": share for name, share in one.account.concept_shares().items()},
        **{f"features_{name}": share for name, share in one.account.feature_shares().items()},
    }


@torch.no_grad()
def _encode(one: Stack | Fitted, x: Float[Tensor, "n d"]) -> Codes:
    return one.encode(x) if isinstance(one, Fitted) else encode(one, x)


def _each(found: Stack | Fitted) -> list[Stack | Fitted]:
    return [found] if isinstance(found, Fitted) else [found.member(index) for index in range(found.members)]


def _columns(rows: list[Mapping[str, float]] | list[Numbers]) -> dict[str, list[float]]:
    return {name: [row[name] for row in rows] for name in rows[0]}
