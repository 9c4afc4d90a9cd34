"""Example stories: their words, what is asked and what supports it, and every head's attention."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from unbraid.reports.run_results import RunResults, Setting

LONGEST = 40
"""Tokens that can still be read on the axes of a figure."""


@dataclass(frozen=True)
class StoryAttention:
    """One story as one model saw it, up to the last question that a figure has room for."""

    words: list[str]
    support: list[int]
    """The positions of the tokens that the answer follows from."""
    asked: int
    """The position of the token that asks, the last that is shown."""
    answer: str
    said: str
    patterns: np.ndarray
    """Layers × heads × queries × keys."""

    @property
    def question(self) -> str:
        """The words since the last statement's end."""
        ends = [place for place, word in enumerate(self.words[: self.asked]) if word in (".", "<sep>", "?")]
        return " ".join(self.words[ends[-1] + 1 if ends else 0 : self.asked + 1])

    @cached_property
    def support_mass(self) -> np.ndarray:
        """Layers × heads: attention of the token that asks to what supports."""
        return self.patterns[:, :, self.asked, self.support].sum(-1)


def story_attention(
    results: RunResults, setting: Setting, story: int = 0, whole: bool = False
) -> StoryAttention | None:
    """As the first member of this setting saw it; None where nothing was kept."""
    for stack, position in setting.places:
        cards = results.stories[stack].get("members", {}).get(str(position), []) if results.stories else []
        if story < len(cards):
            return _cut(cards[story], results.tables[stack][f"pattern.{position}"][story], whole)
    return None


def _cut(card: dict, patterns: np.ndarray, whole: bool) -> StoryAttention:
    fitting = [place for place, asked in enumerate(card["asked"]) if asked < LONGEST]
    chosen = fitting[-1] if fitting and not whole else 0 if not whole else len(card["asked"]) - 1
    asked = card["asked"][chosen]
    kept = patterns[:, :, : asked + 1, : asked + 1].astype(float)
    return StoryAttention(
        card["words"][: asked + 1], card["support"][chosen], asked, card["answers"][chosen], card["said"][chosen], kept
    )
