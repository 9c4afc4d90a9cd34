"""Ideas for training dictionaries, one file each; listing one here is all it takes to configure and test it."""

from typing import TYPE_CHECKING, Any

from pydantic import create_model

from unbraid.config import Record
from unbraid.mechanisms.adaptive_l1 import AdaptiveL1
from unbraid.mechanisms.adaptive_neighbourhoods import AdaptiveNeighbourhoods
from unbraid.mechanisms.adaptive_tau import AdaptiveTau
from unbraid.mechanisms.correlation_pruning import CorrelationPruning
from unbraid.mechanisms.dynamic_pairs import DynamicPairs
from unbraid.mechanisms.lateral_inhibition import LateralInhibition
from unbraid.mechanisms.matryoshka import Matryoshka
from unbraid.mechanisms.mechanism import Forward, Mechanism, Memory, Reset, Signals
from unbraid.mechanisms.momentum_importance import MomentumImportance
from unbraid.mechanisms.pair_orthogonality import PairOrthogonality
from unbraid.mechanisms.reallocation import Reallocation
from unbraid.mechanisms.sparsity import Sparsity

MECHANISMS: dict[str, type[Mechanism]] = {
    "sparsity": Sparsity,
    "matryoshka": Matryoshka,
    "pair_orthogonality": PairOrthogonality,
    "adaptive_tau": AdaptiveTau,
    "dynamic_pairs": DynamicPairs,
    "correlation_pruning": CorrelationPruning,
    "momentum_importance": MomentumImportance,
    "adaptive_l1": AdaptiveL1,
    "lateral_inhibition": LateralInhibition,
    "adaptive_neighbourhoods": AdaptiveNeighbourhoods,
    "reallocation": Reallocation,
}

if TYPE_CHECKING:
    Enabled = Record
else:
    _fields: dict[str, Any] = {name: (kind | None, None) for name, kind in MECHANISMS.items()}
    Enabled = create_model("Enabled", __base__=Record, **_fields)
    Enabled.__doc__ = "The mechanisms that are on: presence is the switch."


def enabled(record: Enabled) -> dict[str, Mechanism]:
    """The mechanisms that are on, by name, in the registry's order."""
    return {name: mechanism for name in MECHANISMS if (mechanism := getattr(record, name)) is not None}


__all__ = [
    "MECHANISMS",
    "AdaptiveL1",
    "AdaptiveNeighbourhoods",
    "AdaptiveTau",
    "CorrelationPruning",
    "DynamicPairs",
    "Enabled",
    "Forward",
    "LateralInhibition",
    "Matryoshka",
    "Mechanism",
    "Memory",
    "MomentumImportance",
    "PairOrthogonality",
    "Reallocation",
    "Reset",
    "Signals",
    "Sparsity",
    "enabled",
]
