"""Where truth comes from: each world yields batches and the factors behind them."""

from typing import TYPE_CHECKING

from unbraid.config import tagged
from unbraid.worlds.activations import Activations
from unbraid.worlds.superposition import Superposition
from unbraid.worlds.world import Batch, World

WORLDS: dict[str, type[World]] = {
    "superposition": Superposition,
    "activations": Activations,
}

if TYPE_CHECKING:
    AnyWorld = World
else:
    AnyWorld = tagged(WORLDS)

__all__ = ["WORLDS", "Activations", "AnyWorld", "Batch", "Superposition", "World"]
