"""Where truth comes from: each world yields batches and the factors behind them."""

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator

from unbraid.config import tagged
from unbraid.worlds.activations import Activations
from unbraid.worlds.stories import Stories
from unbraid.worlds.superposition import Superposition
from unbraid.worlds.world import Batch, World

WORLDS: dict[str, type[World]] = {
    "superposition": Superposition,
    "activations": Activations,
}


def _planted_unless_said(data: Any) -> Any:
    """A world whose kind is not given is one of planted features."""
    return {"kind": "superposition", **data} if isinstance(data, dict) else data


if TYPE_CHECKING:
    AnyWorld = World
else:
    AnyWorld = Annotated[tagged({**WORLDS, "stories": Stories}), BeforeValidator(_planted_unless_said)]

__all__ = ["WORLDS", "Activations", "AnyWorld", "Batch", "Stories", "Superposition", "World"]
