"""Whom each feature fires together with: a list of its most frequent partners, which forgets slowly.

together_ij ← momentum · together_ij + (1-momentum) · (number of samples in which i and j fire)

A list has few places. Whoever is on it is counted, most frequent first; someone new gets an empty place, or that of the
last if it was met more often in this batch than the last is remembered for. How often it was met before is not known
and taken as 0. So `together` is never too large, and exact for features that met no more partners than places.

A batch has Σ l0² pairs; at most `MOST_PAIRS` of a member are looked at, in the first samples, and stand for the whole.
"""

import numpy as np
import torch
from numba import prange

from unbraid.axes import Int, Tensor
from unbraid.codes import Codes
from unbraid.dictionaries.kernels import compiled

MOST_PAIRS = 1 << 20
FEATURES = 128
"""How many features one thread takes at a time."""


def follow(codes: Codes, memory: dict[str, Tensor], momentum: float) -> dict[str, Tensor]:
    """The memory `partners`, `together` and `fires` after this batch."""
    after = {name: tensor.clone() for name, tensor in memory.items()}
    for member, l0 in enumerate(codes.l0()):
        samples = max(1, int((l0.square().cumsum(0) <= MOST_PAIRS).sum()))
        features = _fired(codes, member, samples)
        starts = torch.cat([l0.new_zeros(1), l0[:samples].cumsum(0)])
        gain = np.float32((1 - momentum) * len(l0) / samples)
        own = [after[name][member].numpy() for name in ("partners", "together", "fires")]
        meet(starts.numpy(), features.numpy(), np.float32(momentum), gain, *own)
    return after


def _fired(codes: Codes, member: int, samples: int) -> Int[Tensor, "n"]:
    """The features that fired, sample after sample."""
    fired = codes.values[member, :samples] != 0
    if codes.features is None:
        return fired.nonzero()[:, 1].int()
    return codes.features[member, :samples][fired].int()


@compiled(parallel=True)
def meet(starts, features, momentum, gain, partners, together, fires):
    """Count whom each feature fired with, and bring its list up to date; sample b is `starts[b]` to `[b + 1]`."""
    width = len(fires)
    firsts, samples = _by_feature(starts, features, width)
    before = fires.copy()
    parts = (width + FEATURES - 1) // FEATURES
    for part in prange(parts):
        counts, met = np.zeros(width, np.int32), np.empty(width, np.int32)
        for i in range(part, width, parts):  # far apart: those that fire most may stand together
            number = 0
            for event in range(firsts[i], firsts[i + 1]):
                b = samples[event]
                for other in range(starts[b], starts[b + 1]):
                    j = features[other]
                    if counts[j] == 0:
                        met[number] = j
                        number += 1
                    counts[j] += 1
            counts[i] = 0
            met[:number].sort()  # so that the order of slots does not decide between equals
            if number > 0:
                _update(partners[i], together[i], before, counts, met[:number], momentum, gain)
            else:
                _age(partners[i], together[i], before, momentum)
            fires[i] = momentum * fires[i] + gain * np.float32(firsts[i + 1] - firsts[i])


@compiled(inline="always")
def _by_feature(starts, features, width):
    """Where each feature's events begin, and the sample of each event, feature after feature."""
    firsts, samples = np.zeros(width + 1, np.int64), np.empty(len(features), np.int32)
    for feature in features:
        firsts[feature + 1] += 1
    for f in range(width):
        firsts[f + 1] += firsts[f]
    place = firsts.copy()
    for b in range(len(starts) - 1):
        for event in range(starts[b], starts[b + 1]):
            samples[place[features[event]]] = b
            place[features[event]] += 1
    return firsts, samples


@compiled(inline="always")
def _age(partners, together, fires, momentum):
    """What `_update` does to the list of a feature that met nobody: its order stays."""
    used = 0
    for r in range(len(partners)):
        j, value = partners[r], momentum * together[r]
        if j >= 0 and fires[j] > 0:
            partners[used], together[used] = j, value
            used += 1
    for r in range(used, len(partners)):
        partners[r], together[r] = -1, 0


@compiled(inline="always")
def _update(partners, together, fires, counts, met, momentum, gain):
    """Age the list and add to it; leaves `counts` empty. Who has not fired since it started anew is dropped."""
    used = 0
    for r in range(len(partners)):
        j, value = partners[r], momentum * together[r]
        partners[r], together[r] = -1, 0
        if j >= 0 and fires[j] > 0:
            value += gain * np.float32(counts[j])
            counts[j] = 0
            _insert(partners, together, used, j, value)
            used += 1
    for j in met:
        value = gain * np.float32(counts[j])
        counts[j] = 0
        if value > 0 and used < len(partners):
            _insert(partners, together, used, j, value)
            used += 1
        elif value > together[-1]:
            _insert(partners, together, used - 1, j, value)


@compiled(inline="always")
def _insert(partners, together, hole, j, value):
    """Put j in this place, or further to the front if it has been met more often than those there."""
    while hole > 0 and together[hole - 1] < value:
        partners[hole], together[hole] = partners[hole - 1], together[hole - 1]
        hole -= 1
    partners[hole], together[hole] = j, value
