"""Which features fire together: the rules of firing a superposition can have."""

from typing import TYPE_CHECKING

from unbraid.config import Registry, tagged
from unbraid.worlds.firing.base import Cells, Firing, Independent, Population, Sampler
from unbraid.worlds.firing.correlated import Correlated
from unbraid.worlds.firing.hierarchy import Hierarchy

BUILT_IN: dict[str, type[Firing]] = {
    "independent": Independent,
    "correlated": Correlated,
    "hierarchy": Hierarchy,
}
FIRING = Registry("firing rule", Firing, BUILT_IN)

if TYPE_CHECKING:
    AnyFiring = Firing
else:
    AnyFiring = tagged(FIRING)

__all__ = [
    "FIRING",
    "AnyFiring",
    "Cells",
    "Correlated",
    "Firing",
    "Hierarchy",
    "Independent",
    "Population",
    "Sampler",
]
