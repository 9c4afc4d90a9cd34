"""Real text cut into tokens, for language models (the gauge study)."""

from unbraid.worlds.text.world import Text, TextBatch

__all__ = ["Text", "TextBatch"]
