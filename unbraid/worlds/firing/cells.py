"""The (sample, feature) cells that fired in a batch, and how to draw them without looking at those that did not.

A Poisson process with rate -log(1 - p_i) hits each cell of feature i, and a cell hit at least once has fired, which
has probability p_i exactly. The draw costs what fires, not features × samples.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Cells:
    """What fired, sorted by sample; `full` marks the cells whose strength is 1 whatever the law of strengths."""

    samples: np.ndarray
    features: np.ndarray
    full: np.ndarray | None = None


def fire_independently(rng: np.random.Generator, rates: np.ndarray, size: int) -> Cells:
    """Every cell on its own: feature i fires in a sample with probability 1 - exp(-rates[i])."""
    hits = rng.poisson(size * rates)
    features = np.repeat(np.arange(rates.size), hits)
    samples = rng.integers(0, size, features.size, dtype=_smallest(size))
    order = np.argsort(samples, kind="stable")
    samples, features = samples[order].astype(np.int64), features[order]
    first = np.diff(samples * rates.size + features, prepend=-1) > 0  # a cell hit twice has fired once
    return Cells(samples[first], features[first])


def sample_order(samples: np.ndarray, size: int) -> np.ndarray:
    """The order that sorts a list of cells by sample and otherwise leaves it as it is."""
    return np.argsort(samples.astype(_smallest(size)), kind="stable")


def _smallest(size: int) -> type[np.integer]:
    """The type for the number of a sample: numpy sorts 16-bit integers by radix, several times faster."""
    return np.uint16 if size <= 1 << 16 else np.int64
