"""What a shard does with lists of what fired, beside `dictionaries/kernels.py`, whose rules these loops follow."""

import numpy as np
from numba import prange

from unbraid.dictionaries.kernels import _dot, compiled


@compiled(parallel=True)
def keep_among(features, values, counts, least, ties):
    """Leave in each sample's slots what is above its least, and the first so many that equal it; 0 in the others."""
    members, samples = counts.shape
    for i in prange(members * samples):
        m, b = i // samples, i % samples
        used, left = 0, ties[m, b]
        for k in range(counts[m, b]):
            value = values[m, b, k]
            tie = value == least[m, b] and left > 0
            if tie:
                left -= 1
            if tie or value > least[m, b]:
                features[m, b, used], values[m, b, used] = features[m, b, k], value
                used += 1
        for k in range(used, counts[m, b]):
            features[m, b, k], values[m, b, k] = 0, np.float32(0.0)
        counts[m, b] = used


@compiled(parallel=True)
def through_directions(features, counts, errors, decoder, gradients):
    """The gradient of each code in use: its sample's error · its direction."""
    members, samples = counts.shape
    for i in prange(members * samples):
        m, b = i // samples, i % samples
        for k in range(counts[m, b]):
            gradients[m, b, k] = _dot(errors[m, b], decoder[m, features[m, b, k]])
        for k in range(counts[m, b], gradients.shape[2]):
            gradients[m, b, k] = np.float32(0.0)
