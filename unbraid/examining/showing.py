"""Keep how every head looks at a few stories, so that a report can draw it without the model."""

from dataclasses import dataclass

import numpy as np
import torch

from unbraid.axes import Float
from unbraid.config import Tree
from unbraid.examining.looking import PATTERN
from unbraid.models import Models
from unbraid.worlds.stories import Stories

SPLIT = "evaluation"


@dataclass(frozen=True)
class Shown:
    """Stories in words with what is asked, answered and supported, and each head's attention on them."""

    stories: list[Tree]
    patterns: Float[np.ndarray, "b l h t s"]


@torch.no_grad()
def show(one: Models, world: Stories, stories: int) -> Shown:
    """The first test stories, as a single member sees and answers them."""
    batch = world.batch(0, stories, split=SPLIT)
    names = [f"blocks.{layer}.{PATTERN}" for layer in range(one.settings.layers)]
    passed = one.forward(batch.tokens, names)
    said = one.read(passed, batch.asked)[0].argmax(-1)
    patterns = torch.stack([passed.recorded[name][0] for name in names], 1)
    cards = [
        {
            "words": [world.vocabulary[word] for word in batch.tokens[place][batch.mask[place]].tolist()],
            "asked": batch.asked[place].tolist(),
            "answers": [world.answers[answer] for answer in batch.answers[place].tolist()],
            "said": [world.answers[answer] for answer in said[place].tolist()],
            "support": [row.nonzero()[:, 0].tolist() for row in batch.support[place]],
        }
        for place in range(stories)
    ]
    return Shown(cards, patterns.numpy().astype(np.float16))
