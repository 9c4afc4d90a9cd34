"""Where truth comes from: each world yields batches and the factors behind them."""

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator

from unbraid.config import Registry, tagged
from unbraid.worlds.activations import Activations
from unbraid.worlds.planted_map import PlantedMap
from unbraid.worlds.planted_pair import PlantedPair
from unbraid.worlds.stories import Stories, StoryBatch
from unbraid.worlds.superposition import Superposition
from unbraid.worlds.synth import Synth
from unbraid.worlds.text import Text, TextBatch
from unbraid.worlds.world import Batch, Circuit, World

BUILT_IN: dict[str, type[World]] = {
    "superposition": Superposition,
    "synth": Synth,
    "planted_map": PlantedMap,
    "planted_pair": PlantedPair,
    "activations": Activations,
}
WORLDS = Registry("world", World, BUILT_IN)

QUESTIONS: dict[str, type[Stories] | type[Text]] = {
    "stories": Stories,
    "text": Text,
}
"""Worlds of tokens with questions, which teach models; those above yield activations, which dictionaries learn."""


def _planted_unless_said(data: Any) -> Any:
    """A world whose kind is not given is one of planted features."""
    return {"kind": "superposition", **data} if isinstance(data, dict) else data


if TYPE_CHECKING:
    AnyWorld = World
else:
    AnyWorld = Annotated[tagged(WORLDS, QUESTIONS), BeforeValidator(_planted_unless_said)]

__all__ = [
    "QUESTIONS",
    "WORLDS",
    "Activations",
    "AnyWorld",
    "Batch",
    "Circuit",
    "PlantedMap",
    "PlantedPair",
    "Stories",
    "StoryBatch",
    "Superposition",
    "Synth",
    "Text",
    "TextBatch",
    "World",
]
