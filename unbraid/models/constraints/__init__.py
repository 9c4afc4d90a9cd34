"""The registry of constraints, costs on heads, one file each. A new one is one line here."""

from typing import TYPE_CHECKING

from unbraid.config import Registry, Switches, switches
from unbraid.models.constraints.attention_entropy import AttentionEntropy
from unbraid.models.constraints.base import Constraint, Constraints, costs, recorded_for
from unbraid.models.constraints.head_usage import HeadUsage
from unbraid.models.constraints.independence import Independence
from unbraid.models.constraints.orthogonality import Orthogonality

BUILT_IN: dict[str, type[Constraint]] = {
    "orthogonality": Orthogonality,
    "independence": Independence,
    "attention_entropy": AttentionEntropy,
    "head_usage": HeadUsage,
}
CONSTRAINTS = Registry("constraint", Constraint, BUILT_IN, by_kind=False)

if TYPE_CHECKING:
    Enabled = Switches
else:
    Enabled = switches(CONSTRAINTS, "The constraints that are on: presence is the switch.", __name__)


def enabled(record: Enabled) -> dict[str, Constraint]:
    """The constraints that are on, by name, in the registry's order."""
    return record.switched_on()


__all__ = [
    "CONSTRAINTS",
    "AttentionEntropy",
    "Constraint",
    "Constraints",
    "Enabled",
    "HeadUsage",
    "Independence",
    "Orthogonality",
    "costs",
    "enabled",
    "recorded_for",
]
