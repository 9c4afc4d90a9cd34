"""An order of n things that looks random, of which any place can be asked for alone: no list of n is ever made.

A Feistel network of four rounds permutes the numbers of 2h bits: each round adds a keyed hash of one half to the other.
What falls outside 0 … n-1 goes round again until it is inside.
"""

import numpy as np

from unbraid.axes import Int
from unbraid.randomness import stream

ROUNDS = 4
MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)


def shuffled(places: Int[np.ndarray, "b"], amount: int, seed: int, *names: str | int) -> Int[np.ndarray, "b"]:
    """Which of `amount` things stand at these places of the order that seed and names decide."""
    half = max(1, -(-(amount - 1).bit_length() // 2))
    keys = stream(seed, *names).integers(0, 1 << 63, ROUNDS, dtype=np.uint64)
    found = _permute(places.astype(np.uint64), keys, half)
    while (outside := found >= amount).any():
        found[outside] = _permute(found[outside], keys, half)
    return found.astype(np.int64)


def _permute(numbers: np.ndarray, keys: np.ndarray, half: int) -> np.ndarray:
    bits, mask = np.uint64(half), np.uint64((1 << half) - 1)
    left, right = numbers >> bits, numbers & mask
    for key in keys:
        left, right = right, left ^ (_hash(right + key) & mask)
    return (left << bits) | right


def _hash(numbers: np.ndarray) -> np.ndarray:
    mixed = (numbers ^ (numbers >> np.uint64(30))) * MIX[1]
    mixed = (mixed ^ (mixed >> np.uint64(27))) * MIX[0]
    return mixed ^ (mixed >> np.uint64(31))
