"""Ideas for training dictionaries, one file each; listing one here is all it takes to configure and test it."""

from typing import TYPE_CHECKING

from unbraid.config import Registry, Switches, switches
from unbraid.dictionaries.mechanisms.adaptive_l1 import AdaptiveL1
from unbraid.dictionaries.mechanisms.adaptive_neighbourhoods import AdaptiveNeighbourhoods
from unbraid.dictionaries.mechanisms.adaptive_tau import AdaptiveTau
from unbraid.dictionaries.mechanisms.correlation_pruning import CorrelationPruning
from unbraid.dictionaries.mechanisms.dynamic_pairs import DynamicPairs
from unbraid.dictionaries.mechanisms.end_to_end import EndToEnd
from unbraid.dictionaries.mechanisms.lateral_inhibition import LateralInhibition
from unbraid.dictionaries.mechanisms.matryoshka import Matryoshka
from unbraid.dictionaries.mechanisms.mechanism import Forward, Mechanism, Memory, Reset, Signals
from unbraid.dictionaries.mechanisms.momentum_importance import MomentumImportance
from unbraid.dictionaries.mechanisms.p_annealing import PAnnealing
from unbraid.dictionaries.mechanisms.pair_orthogonality import PairOrthogonality
from unbraid.dictionaries.mechanisms.reallocation import Reallocation
from unbraid.dictionaries.mechanisms.sparsity import Sparsity

BUILT_IN: dict[str, type[Mechanism]] = {
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
    "p_annealing": PAnnealing,
    "end_to_end": EndToEnd,
}
MECHANISMS = Registry("mechanism", Mechanism, BUILT_IN, by_kind=False)

if TYPE_CHECKING:
    Enabled = Switches
else:
    Enabled = switches(MECHANISMS, "The mechanisms that are on: presence is the switch.", __name__)


def enabled(record: Enabled) -> dict[str, Mechanism]:
    """The mechanisms that are on, by name, in the registry's order."""
    return record.switched_on()


__all__ = [
    "MECHANISMS",
    "AdaptiveL1",
    "AdaptiveNeighbourhoods",
    "AdaptiveTau",
    "CorrelationPruning",
    "DynamicPairs",
    "Enabled",
    "EndToEnd",
    "Forward",
    "LateralInhibition",
    "Matryoshka",
    "Mechanism",
    "Memory",
    "MomentumImportance",
    "PAnnealing",
    "PairOrthogonality",
    "Reallocation",
    "Reset",
    "Signals",
    "Sparsity",
    "enabled",
]
