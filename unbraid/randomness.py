"""One seed becomes independent named streams, so that any draw can be made again from its name and position.

There is no generator state to save: `stream(seed, "train", 17)` is the same stream today and after a resume.
"""

import hashlib

import numpy as np


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """The stream with this name; streams of different seeds or names are independent."""
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(seed, spawn_key=[_word(name) for name in names])))


def seed_of(numbers: np.ndarray) -> int:
    """A seed out of numbers that were drawn: for who was given a member's weights, and not its seed."""
    return int.from_bytes(hashlib.sha256(numbers.tobytes()).digest()[:4])


def _word(name: str | int) -> int:
    return name if isinstance(name, int) else int.from_bytes(hashlib.sha256(name.encode()).digest()[:4])
