"""Of a stack that learned a taught model's activations: its scores against the factors, and what a report shows of it.

features.json         of the first member of each setting, what became of every concept and pages of chosen features
factors.safetensors   recovery `m c` of every concept, and of the probe `c`
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from unbraid.dictionaries.baselines import Fitted
from unbraid.dictionaries.stack import Stack
from unbraid.files import write_arrays, write_json
from unbraid.line.pages import Pages
from unbraid.line.scoring import FactorScores, score_factors
from unbraid.sweeps.grid import Member
from unbraid.sweeps.trained_work import first_of_settings
from unbraid.worlds import Activations, World


@dataclass(frozen=True)
class FactorTold:
    """Scores of a stack as its `scores.json` has them; nothing where no factors are known."""

    values: dict[str, Any] = field(default_factory=dict)
    chance: dict[str, Any] = field(default_factory=dict)
    ceiling: dict[str, Any] = field(default_factory=dict)


def tell_factors(found: Stack | Sequence[Fitted], world: World, group: Sequence[Member], folder: Path) -> FactorTold:
    """Score every member against the factors behind the activations, where they are known, and write of it."""
    if not isinstance(world, Activations) or not world.factors:
        return FactorTold()
    samples = group[0].experiment.scoring.samples
    each = [score_factors(one, world, samples) for one in ([found] if isinstance(found, Stack) else found)]
    _write(each, found, group, folder)
    values, chance = (_joined(parts) for parts in ([one.values for one in each], [one.chance for one in each]))
    return FactorTold(values, chance, each[0].ceiling)


def _write(
    each: Sequence[FactorScores], found: Stack | Sequence[Fitted], group: Sequence[Member], folder: Path
) -> None:
    recovery = np.stack([read.recovery for one in each for read in one.members])
    write_arrays(folder / "factors.safetensors", {"recovery": recovery, "probe": np.array(each[0].probe)})
    vocabulary = group[0].experiment.asking.vocabulary
    cards = {}
    for place in first_of_settings(group):
        scores, member = (each[0], place) if isinstance(found, Stack) else (each[place], 0)
        directions = found.directions[place] if isinstance(found, Stack) else found[place].directions[0]
        cards[str(place)] = Pages.of(scores, member, vocabulary, directions.numpy()).card()
    write_json(folder / "features.json", {"members": cards})


def _joined(parts: Sequence[dict[str, list[float]]]) -> dict[str, list[float]]:
    """Members after one another."""
    return {name: [value for part in parts for value in part[name]] for name in parts[0]}
