"""What was planted, as concepts: each value of each factor, on at the tokens where the factor has it.

    person = mary    place = kitchen    place of john = office    …

The stories held out are in two halves: thresholds, features and probes are chosen on one, what they are worth is
measured on the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unbraid.axes import Bool
from unbraid.files import read_json, write_json
from unbraid.metrics.linear_probe import probe_concepts
from unbraid.worlds.activations import Activations, Told


@dataclass(frozen=True)
class Truth:
    """Rows that no training has seen, and which concepts are on at each."""

    told: Told
    factors: tuple[str, ...]
    """The factor of each concept."""
    values: tuple[str, ...]
    concepts: Bool[np.ndarray, "n c"]
    fit: Bool[np.ndarray, "n"]

    @classmethod
    def of(cls, world: Activations, samples: int) -> "Truth":
        told = world.told(samples)
        pairs = [(name, place, value) for name, values in world.factors.items() for place, value in enumerate(values)]
        concepts = np.stack([told.factors[name] == place for name, place, _ in pairs], 1)
        names, _, values = zip(*pairs, strict=True)
        return cls(told, names, values, concepts, told.documents % 2 == 0)

    def label(self, concept: int) -> str:
        return f"{self.factors[concept]} = {self.values[concept]}"

    def by_factor(self, scores: Sequence[float]) -> dict[str, float]:
        """The mean over the concepts of each factor, of those that have a score; a factor with none is left out."""
        told = np.asarray(scores, dtype=np.float64)
        known = {name: told[np.array([each == name for each in self.factors])] for name in dict.fromkeys(self.factors)}
        return {name: float(np.nanmean(each)) for name, each in known.items() if not np.isnan(each).all()}


def probed(world: Activations, truth: Truth, samples: int) -> list[float]:
    """φ of a linear probe for each concept (NaN where it is not judged): kept beside the activations, made once."""
    path = world.folder / f"probe-{world.normalise}-{samples}.json"
    if not path.is_file():
        write_json(path, probe_concepts(truth.told.x.numpy(), truth.concepts, truth.fit).phi.tolist())
    return [float("nan") if value is None else value for value in read_json(path)]
