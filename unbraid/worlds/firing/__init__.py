"""Which features fire together: the rules of firing a world of features can have, one file each."""

from typing import TYPE_CHECKING

from unbraid.config import tagged
from unbraid.worlds.firing.cells import Cells
from unbraid.worlds.firing.correlated import Correlated
from unbraid.worlds.firing.hierarchy import Hierarchy
from unbraid.worlds.firing.independent import Independent
from unbraid.worlds.firing.rule import Firing, Population, Sampler

FIRING: dict[str, type[Firing]] = {
    "independent": Independent,
    "correlated": Correlated,
    "hierarchy": Hierarchy,
}

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
