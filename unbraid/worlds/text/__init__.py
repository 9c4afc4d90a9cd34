"""Real text cut into tokens: the world of seed 001's language models."""

from unbraid.worlds.text.batch import TextBatch
from unbraid.worlds.text.text import Text

__all__ = ["Text", "TextBatch"]
