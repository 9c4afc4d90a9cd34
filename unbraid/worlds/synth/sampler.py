"""What fires in a SynthSAEBench world, at a cost that follows what fires.

A feature is drawn where z_i = F_i·ε + σ_i η_i > Φ⁻¹(1 - p_i). It fires if its parent fires and, among exclusive
siblings that are drawn, it is the one chosen at random. Given ε, features are drawn independently of each other, with
π_i(ε) = Φ((F_i·ε - Φ⁻¹(1 - p_i)) / σ_i); so children are drawn only where their parent fires, and the parentless by
thinning, which leaves every probability exact:

    candidates   a Poisson process over features hits i with probability q_i = π_i at F_i·ε = 2.2 |F_i|;
                 a hit is kept with probability min(1, π_i(ε) / q_i)
    the rest     where π_i(ε) > q_i, found by one comparison a feature, i is drawn even without a hit, with
                 probability (π_i(ε) - q_i) / (1 - q_i)

Every sample has a generator of its own (xoshiro256++, from a key of the batch's stream), so the draw does not depend on
threads. `marginals` says how often each feature fires in all.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from inspect import unwrap
from math import cos, erfc, log, pi, sin, sqrt
from typing import Any

import numpy as np
from numba import njit
from scipy.special import ndtr, ndtri

from unbraid.axes import Float
from unbraid.randomness import stream
from unbraid.worlds.firing import Cells
from unbraid.worlds.synth.planted import Planted

USUAL = 2.2
"""How many deviations of F·ε the candidates' rate allows for: fewer make more exceptions, more make more candidates."""
SUREST = 0.98
"""The most probable a candidate is: certainty would be an infinite rate."""
CHUNK = 64
"""Exceptions are looked for this many features at a time."""
DRAWS, DRAWS_AT_A_TIME = 1024, 128
"""Of ε, each with -ε, over which the marginal rates of children are a mean."""
AT_ONCE, COLUMNS = 8, 512
"""Samples, and columns of theirs, for which factors are added at a time."""
ROOM = 128
"""Slots a sample has at first; doubled when a sample needs more."""


@dataclass(frozen=True)
class SynthSampler:
    """The planted numbers in the order in which the kernel reads them, and the draws."""

    planted: Planted

    @cached_property
    def thresholds(self) -> Float[np.ndarray, "n"]:
        """What z must exceed."""
        return -ndtri(self.planted.drawn)

    @cached_property
    def _parentless(self) -> tuple[np.ndarray, ...]:
        """Of the parentless features: numbers, factors by row, bounds of F·ε, q, cumulative rates, a guide to them."""
        tops = np.flatnonzero(self.planted.forest.parents < 0)
        factors, own, threshold = (array[tops] for array in (self.planted.factors, self.planted.own, self.thresholds))
        usual = USUAL * np.linalg.norm(factors, axis=1) + 1e-6  # rounding alone is no exception
        bounds = np.minimum(usual, threshold + own * ndtri(SUREST)).astype(np.float32)
        likely = ndtr((bounds - threshold) / own)
        total = np.cumsum(-np.log1p(-likely))
        guide = np.searchsorted(total, np.arange(len(tops)) * total[-1] / len(tops), side="right")
        rows = np.ascontiguousarray(factors.T, dtype=np.float32)
        return tops, rows, bounds, likely, total, guide

    @cached_property
    def _tree(self) -> tuple[np.ndarray, ...]:
        """Children parent by parent, and where each parent's begin."""
        forest = self.planted.forest
        order = np.argsort(forest.parents, kind="stable")
        children = order[np.count_nonzero(forest.parents < 0) :]
        return children, np.concatenate([[0], np.cumsum(forest.sizes)]), forest.exclusive, forest.scaling

    @cached_property
    def _law(self) -> tuple[np.ndarray, ...]:
        """Factors, own deviation, thresholds, mean and deviation of the magnitude."""
        planted = self.planted
        factors = np.ascontiguousarray(planted.factors, dtype=np.float32)
        return factors, *(np.asarray(a, float) for a in (planted.own, self.thresholds, planted.mean, planted.std))

    def fire(self, rng: np.random.Generator, size: int) -> tuple[Cells, Float[np.ndarray, "cells"]]:
        """What fires in a batch, sorted by sample, and how strongly."""
        keys, room = rng.integers(0, 1 << 64, size, dtype=np.uint64), ROOM
        while True:
            features, values = np.empty((size, room), np.int64), np.empty((size, room), np.float32)
            counts = np.empty(size, np.int64)
            fire_samples(keys, *self._parentless, *self._tree, *self._law, features, values, counts)
            if (counts >= 0).all():
                break
            room *= 2
        used = np.arange(room) < counts[:, None]
        return Cells(np.repeat(np.arange(size), counts), features[used]), values[used]

    def marginals(self, seed: int) -> Float[np.ndarray, "n"]:
        """How often each feature fires: exact for the parentless, p_i · P(magnitude > 0).

        A child's rate is its parent's times the share of it that the child has, estimated over 1024 ε and as many -ε
        with everything else integrated out. The chance to be the one chosen of those drawn is
        E[1 / (1 + K)] = ∫₀¹ Π_{siblings j} (1 - π_j + π_j t) dt, a polynomial, so Gauss-Legendre is exact.
        """
        planted, rng = self.planted, stream(seed, "marginals")
        positive = ndtr(
            np.divide(planted.mean, planted.std, out=np.full(len(planted.mean), 9.0), where=planted.std > 0)
        )
        levels, total = planted.forest.levels, np.zeros(len(planted.drawn))
        for _ in range(DRAWS // DRAWS_AT_A_TIME if len(levels) > 1 else 0):
            shared = rng.standard_normal((DRAWS_AT_A_TIME, planted.factors.shape[1]))
            for mirrored in (shared, -shared):
                latent = mirrored @ planted.factors.T.astype(float)
                total += self._conditional(positive * ndtr((latent - self.thresholds) / planted.own)).sum(0)
        marginal = planted.drawn * positive
        for level in levels[1:]:
            above = planted.forest.parents[level]
            marginal[level] = marginal[above] * total[level] / np.maximum(total[above], 1e-300)
        return marginal

    def _conditional(self, drawn: Float[np.ndarray, "draws n"]) -> Float[np.ndarray, "draws n"]:
        """The probability that each feature fires given ε, from the probabilities that each is drawn."""
        forest, fires = self.planted.forest, drawn.copy()
        for level in forest.levels[1:]:
            above = forest.parents[level]
            chosen = drawn[:, level] * np.where(forest.exclusive[above], _chosen(drawn[:, level], above), 1)
            fires[:, level] = fires[:, above] * chosen
        return fires


def _chosen(drawn: Float[np.ndarray, "draws level"], above: np.ndarray) -> Float[np.ndarray, "draws level"]:
    """E[1 / (1 + K)], K the number of siblings drawn."""
    starts = np.flatnonzero(np.diff(above, prepend=-2))
    group = np.cumsum(np.diff(above, prepend=above[0]) != 0)
    most = int(np.bincount(group).max())
    points, weights = np.polynomial.legendre.leggauss(most // 2 + 1)
    chance = np.zeros_like(drawn)
    for point, weight in zip((points + 1) / 2, weights / 2, strict=True):
        missing = 1 - drawn + drawn * point
        chance += weight * np.multiply.reduceat(missing, starts, axis=1)[:, group] / missing
    return chance


def _compiled(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile by numba; the bare function, also where the tests have wrapped it to check types."""
    return lambda function: njit(cache=True, fastmath={"nsz", "arcp", "contract", "reassoc"}, **options)(
        unwrap(function)
    )


@_compiled()
def _mixed(x):
    """splitmix64: a key becomes 64 bits that look like chance."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@_compiled()
def _start(key, state):
    for word in range(4):
        key += np.uint64(0x9E3779B97F4A7C15)
        state[word] = _mixed(key)


@_compiled()
def _rotated(x, by):
    return (x << np.uint64(by)) | (x >> np.uint64(64 - by))


@_compiled()
def _uniform(state):
    """The next number of xoshiro256++, in [0, 1)."""
    word = _rotated(state[0] + state[3], 23) + state[0]
    shifted = state[1] << np.uint64(17)
    state[2] ^= state[0]
    state[3] ^= state[1]
    state[1] ^= state[2]
    state[0] ^= state[3]
    state[2] ^= shifted
    state[3] = _rotated(state[3], 45)
    return float(word >> np.uint64(11)) * 2.0**-53


@_compiled()
def _normals(state):
    """Two standard normals (Box and Muller)."""
    length, angle = sqrt(-2 * log(1 - _uniform(state))), 2 * pi * _uniform(state)
    return length * cos(angle), length * sin(angle)


@_compiled()
def _above(latent, threshold, own):
    """Φ((latent - threshold) / own)."""
    return 0.5 * erfc((threshold - latent) / (own * sqrt(2.0)))


@_compiled()
def _add(total, factor, row):
    for j in range(len(total)):
        total[j] += factor * row[j]


@_compiled()
def _any_above(row, bounds, start, end):
    found = np.int32(0)
    for j in range(start, end):
        found += np.int32(row[j] > bounds[j])
    return found > 0


@_compiled()
def _draw_parentless(state, latent, tops, bounds, likely, total, guide, own, thresholds, listed):
    """List the parentless features that are drawn; returns how many."""
    count, n, whole = 0, len(tops), total[-1]
    hit, last = -log(1 - _uniform(state)), -1
    while hit < whole:
        j = guide[min(int(hit / whole * n), n - 1)]
        while total[j] <= hit:
            j += 1
        if j != last:
            feature, last = tops[j], j
            if latent[j] > bounds[j]:
                latent[j] = -np.inf  # drawn already: no exception any more
                listed[count] = feature
                count += 1
            elif _uniform(state) * likely[j] < _above(latent[j], thresholds[feature], own[feature]):
                listed[count] = feature
                count += 1
        hit -= log(1 - _uniform(state))
    for start in range(0, n, CHUNK):
        end = min(start + CHUNK, n)
        if _any_above(latent, bounds, start, end):
            for j in range(start, end):
                if latent[j] > bounds[j]:
                    feature = tops[j]
                    chance = _above(latent[j], thresholds[feature], own[feature])
                    if _uniform(state) * (1 - likely[j]) < chance - likely[j]:
                        listed[count] = feature
                        count += 1
    return count


@_compiled()
def fire_samples(
    keys, tops, rows, bounds, likely, total, guide, children, starts, exclusive, scaling,
    factors, own, thresholds, mean, std, features, values, counts,
):  # fmt: skip
    """Fill each sample's list: first the parentless, then the children of what is on the list. -1: it was too short."""
    rank, n, room = factors.shape[1], len(tops), features.shape[1]
    state, shared = np.empty((AT_ONCE, 4), np.uint64), np.empty((AT_ONCE, rank + 1), np.float32)
    latent, listed = np.empty((AT_ONCE, n), np.float32), np.empty(n, np.int64)
    for first in range(0, len(keys), AT_ONCE):
        together = min(AT_ONCE, len(keys) - first)
        for i in range(together):
            _start(keys[first + i], state[i])
            for r in range(0, rank, 2):
                shared[i, r], shared[i, r + 1] = _normals(state[i])
        _mix(latent[:together], shared, rows)
        for i in range(together):
            s = first + i
            count = _draw_parentless(
                state[i], latent[i], tops, bounds, likely, total, guide, own, thresholds, listed,
            )  # fmt: skip
            counts[s] = _fill(
                state[i], shared[i], listed[:count], children, starts, exclusive, scaling,
                factors, own, thresholds, mean, std, features[s], values[s], room,
            )  # fmt: skip


@_compiled()
def _mix(latent, shared, rows):
    """Every sample's F·ε, some columns at a time: they stay in the cache while the factors are added."""
    latent[:] = 0
    for start in range(0, latent.shape[1], COLUMNS):
        for r in range(len(rows)):
            row = rows[r, start : start + COLUMNS]
            for i in range(len(latent)):
                _add(latent[i, start : start + COLUMNS], shared[i, r], row)


@_compiled()
def _fill(
    state, shared, listed, children, starts, exclusive, scaling,
    factors, own, thresholds, mean, std, features, values, room,
):  # fmt: skip
    """One sample's list; returns its length, or -1."""
    used = 0
    for feature in listed:
        magnitude = mean[feature] + std[feature] * _normals(state)[0]
        if magnitude > 0:
            if used < room:
                features[used], values[used] = feature, magnitude
            used += 1
    i = 0
    while i < used <= room:
        used = _draw_children(
            state, shared, features[i], values[i], children, starts, exclusive, scaling,
            factors, own, thresholds, mean, std, features, values, used,
        )  # fmt: skip
        i += 1
    return used if used <= room else -1


@_compiled()
def _dot(a, b):
    total = np.float32(0)
    for r in range(len(b)):
        total += a[r] * b[r]
    return total


@_compiled()
def _draw_children(
    state, shared, parent, strength, children, starts, exclusive, scaling,
    factors, own, thresholds, mean, std, features, values, used,
):  # fmt: skip
    """Append the children of a feature that fires; of exclusive ones each takes the place of the last by chance."""
    first, on = used, 0
    scale = strength / mean[parent] if scaling[parent] else 1.0
    for at in range(starts[parent], starts[parent + 1]):
        child = children[at]
        if _uniform(state) < _above(_dot(shared, factors[child]), thresholds[child], own[child]):
            magnitude = mean[child] + std[child] * _normals(state)[0]
            if magnitude > 0:
                on += 1
                if exclusive[parent]:
                    slot, kept = first, _uniform(state) * on < 1
                    used = first + 1
                else:
                    slot, kept = used, True
                    used += 1
                if kept and slot < len(features):
                    features[slot], values[slot] = child, magnitude * scale
    return used
