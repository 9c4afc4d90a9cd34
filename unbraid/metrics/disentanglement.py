"""All disentanglement scores of a code, each beside what it would be if the code knew nothing of the factors.

chance = the mean of the same score over draws in which the factors' rows are permuted, all factors by one permutation:
         how a factor hangs together with others stays, how it hangs together with the code goes
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from unbraid.axes import Bool, Int
from unbraid.metrics.dci import dci
from unbraid.metrics.information import accident, entropies, mig, modularity, mutual_information
from unbraid.metrics.sap import sap

Factors = Mapping[str, Int[np.ndarray, "n"]]
"""Of each row the value of each factor, from 0; below 0 where it has none, and the row is left out for this factor."""

SURELY = 2
"""How many times what it would say by accident a feature must say to count for modularity."""


@dataclass(frozen=True)
class Disentanglement:
    """Each score by its name, and its chance by the same name."""

    scores: dict[str, float]
    chance: dict[str, float]


def disentanglement(
    codes: sparse.csr_array,
    factors: Factors,
    train: Bool[np.ndarray, "n"],
    rng: np.random.Generator,
    draws: int = 1,
) -> Disentanglement:
    """Predictors are fitted on the train rows and asked on the others; a chance that no draw has is NaN."""
    scores = scores_of(codes, factors, train)
    drawn = [scores_of(codes, _shuffled(factors, rng.permutation(len(train))), train) for _ in range(draws)]
    return Disentanglement(scores, {name: _mean([each[name] for each in drawn]) for name in scores})


def scores_of(codes: sparse.csr_array, factors: Factors, train: Bool[np.ndarray, "n"]) -> dict[str, float]:
    """Without chance; NaN where a score says that it is not defined."""
    predicted = dci(codes, factors, train)
    information = mutual_information(codes, factors)
    return {
        "dci_disentanglement": predicted.disentanglement,
        "dci_completeness": predicted.completeness,
        "dci_informativeness": predicted.informativeness,
        "mig": mig(information, entropies(factors)),
        "sap": sap(codes, factors, train),
        "modularity": modularity(information, SURELY * accident(factors)),
    }


def _shuffled(factors: Factors, order: np.ndarray) -> dict[str, np.ndarray]:
    return {name: values[order] for name, values in factors.items()}


def _mean(values: list[float]) -> float:
    """Of the draws in which there is a score."""
    known = [value for value in values if not np.isnan(value)]
    return sum(known) / len(known) if known else np.nan
