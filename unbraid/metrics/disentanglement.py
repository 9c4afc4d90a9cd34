"""All disentanglement scores of a code, each beside what it would be if the code knew nothing of the factors.

chance = the mean of the same score over draws in which the factors' rows are permuted, all factors by one permutation:
         how a factor hangs together with others stays, how it hangs together with the code goes

Modularity is over the features that say more than by accident. Shuffled, hardly any does: there it is over all that say
anything, which is what a feature scores that knows nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from unbraid.axes import Bool, Float, Int
from unbraid.metrics.dci import dci
from unbraid.metrics.information import accident, entropies, mig, modularity, mutual_information
from unbraid.metrics.sap import sap

Factors = Mapping[str, Int[np.ndarray, "n"]]
"""Of each row the value of each factor, from 0; below 0 where it has none, and the row is left out for this factor."""


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
    scores = scores_of(codes, factors, train, accident(factors))
    orders = [rng.permutation(len(train)) for _ in range(draws)]
    drawn = [scores_of(codes, _shuffled(factors, order), train, np.zeros(len(factors))) for order in orders]
    return Disentanglement(scores, {name: _mean([each[name] for each in drawn]) for name in scores})


def scores_of(
    codes: sparse.csr_array, factors: Factors, train: Bool[np.ndarray, "n"], least: Float[np.ndarray, "k"]
) -> dict[str, float]:
    """Without chance; `least` is the information from which a feature counts for modularity. NaN where not defined."""
    predicted = dci(codes, factors, train)
    information = mutual_information(codes, factors)
    return {
        "dci_disentanglement": predicted.disentanglement,
        "dci_completeness": predicted.completeness,
        "dci_informativeness": predicted.informativeness,
        "mig": mig(information, entropies(factors)),
        "sap": sap(codes, factors, train),
        "modularity": modularity(information, least),
    }


def _shuffled(factors: Factors, order: np.ndarray) -> dict[str, np.ndarray]:
    return {name: values[order] for name, values in factors.items()}


def _mean(values: list[float]) -> float:
    """Of the draws in which there is a score."""
    known = [value for value in values if not np.isnan(value)]
    return sum(known) / len(known) if known else np.nan
