"""The registry of constraints, costs on heads, one file each. A new one is one line here."""

from typing import TYPE_CHECKING, Any

from pydantic import Field, create_model

from unbraid.config import Config
from unbraid.models.constraints.attention_entropy import AttentionEntropy
from unbraid.models.constraints.base import Constraint, Constraints, costs, recorded_for
from unbraid.models.constraints.head_usage import HeadUsage
from unbraid.models.constraints.independence import Independence
from unbraid.models.constraints.orthogonality import Orthogonality

CONSTRAINTS: dict[str, type[Constraint]] = {
    "orthogonality": Orthogonality,
    "independence": Independence,
    "attention_entropy": AttentionEntropy,
    "head_usage": HeadUsage,
}

if TYPE_CHECKING:
    Enabled = Config
else:
    _fields: dict[str, Any] = {
        name: (kind | None, Field(default=None, description=(kind.__doc__ or "").partition("\n")[0]))
        for name, kind in CONSTRAINTS.items()
    }
    Enabled = create_model("Enabled", __base__=Config, **_fields)
    Enabled.__doc__ = "The constraints that are on: presence is the switch."


def enabled(record: Enabled) -> dict[str, Constraint]:
    """The constraints that are on, by name, in the registry's order."""
    return {name: constraint for name in CONSTRAINTS if (constraint := getattr(record, name)) is not None}


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
