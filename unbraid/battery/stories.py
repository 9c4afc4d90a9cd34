"""A world small enough to be learned in a second: 'a x b y c x ? b' asks what stood behind b."""

from dataclasses import dataclass

import numpy as np
import torch

from unbraid.axes import Int, Tensor
from unbraid.randomness import stream

KEYS, VALUES = 3, 2


@dataclass(frozen=True)
class RecallBatch:
    """Stories, where each asks, and what is right."""

    tokens: Int[Tensor, "b t"]
    asked: Int[Tensor, "b q"]
    answers: Int[Tensor, "b q"]


@dataclass(frozen=True)
class Recall:
    """Keys are the words 1 to 3, values 4 and 5, and 6 asks; every third story is shorter by a pair."""

    seed: int = 0
    vocabulary: tuple[str, ...] = ("<pad>", "a", "b", "c", "x", "y", "?")
    answers: tuple[str, ...] = ("x", "y")
    length: int = 2 * KEYS + 2

    def batch(self, position: int, size: int, split: str = "train") -> RecallBatch:
        rng = stream(self.seed, split, position)
        tokens, asked, answers = np.zeros((size, self.length), int), np.zeros((size, 1), int), np.zeros((size, 1), int)
        for b in range(size):
            keys, values = rng.permutation(KEYS)[: KEYS - (b % 3 == 0)], rng.integers(VALUES, size=KEYS)
            told = [word for key, value in zip(keys, values, strict=False) for word in (1 + key, 1 + KEYS + value)]
            pick = rng.integers(len(keys))
            story = [*told, 1 + KEYS + VALUES, 1 + keys[pick]]
            tokens[b, : len(story)], asked[b], answers[b] = story, len(story) - 1, values[pick]
        return RecallBatch(*(torch.from_numpy(part) for part in (tokens, asked, answers)))
