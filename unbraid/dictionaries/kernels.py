"""The fast path on a CPU: work in proportion to what fired, fused where memory is the limit.

Each function is the loop that its first line says; `training/step.py` holds the same mathematics as dense products, and
the tests hold the two against each other. All are parallel over samples or over features, and every sum is taken in a
fixed order by one thread, so the result does not depend on the number of threads.

Lists are slots: `features[m, b, k]`, `values[m, b, k]`, of which the first `counts[m, b]` are in use. Events are the
same in the order of features: feature f of member m has the events `starts[m, f]` to `starts[m, f + 1]`.
"""

from collections.abc import Callable
from functools import wraps
from inspect import unwrap
from typing import Any

import numba
import numpy as np
import torch
from numba import njit, prange

CHUNK = 64
"""Pre-activations are looked at this many at a time: a chunk in which nothing fires costs a few vector compares."""

COLUMNS = 512
"""So many columns are summed at a time: their totals stay in the cache."""

LOOSE = {"nsz", "arcp", "contract", "afn", "reassoc"}
"""Sums may be reordered for the vector unit; infinities and NaN still mean what they mean."""


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile by numba; the bare function, also where the tests have wrapped it to check types."""

    def compile(function: Callable[..., Any]) -> Callable[..., Any]:
        kernel = njit(cache=True, fastmath=LOOSE, **options)(unwrap(function))
        return _with_torch_threads(kernel) if options.get("parallel") else kernel

    return compile


def _with_torch_threads(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel that uses as many threads as torch does.

    numba's first parallel call sets the number of OpenMP's threads, which is torch's too, to all processors: torch's
    own sums would then round otherwise, and a run would depend on what its process did before.
    """

    @wraps(kernel)
    def call(*arguments: Any) -> Any:
        threads = torch.get_num_threads()
        if numba.get_num_threads() != threads:
            numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))  # pyright: ignore
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        return kernel(*arguments)

    return call


@compiled(parallel=True)
def append_positive(pre, bias, first, features, values, counts):
    """Append what is positive in `pre + bias`, for the features from `first` on; counts go on past the last slot."""
    samples, width = pre.shape
    whole = width - width % CHUNK
    for b in prange(samples):
        row, used = pre[b], counts[b]
        for start in range(0, whole, CHUNK):
            if _any_above(row, bias, start, np.float32(0.0)):
                used = _append(row, bias, start, start + CHUNK, first, features[b], values[b], used)
        counts[b] = _append(row, bias, whole, width, first, features[b], values[b], used)


@compiled(parallel=True)
def append_screened(screen, x, encoder, bias, first, features, values, counts):
    """The same by a screen: where it is positive a feature may fire, and its pre-activation is made exactly."""
    samples, width = screen.shape
    whole = width - width % CHUNK
    for b in prange(samples):
        row, used = screen[b], counts[b]
        for start in range(0, whole, CHUNK):
            if _any_positive(row, start):
                used = _append_exact(
                    row, start, start + CHUNK, x[b], encoder, bias, first, features[b], values[b], used
                )
        counts[b] = _append_exact(row, whole, width, x[b], encoder, bias, first, features[b], values[b], used)


@compiled(inline="always")
def _any_positive(row, start):
    largest = np.int16(0)
    for j in range(CHUNK):
        largest = max(largest, row[start + j])
    return largest > 0


@compiled(inline="always")
def _append_exact(row, start, stop, x, encoder, bias, first, features, values, used):
    for j in range(start, stop):
        if row[j] > 0:
            value = bias[j] + _dot(x, encoder[j])
            if value > 0:
                if used < features.shape[0]:
                    features[used] = first + j
                    values[used] = value
                used += 1
    return used


@compiled(inline="always")
def _dot(a, b):
    total = np.float32(0.0)
    for j in range(a.shape[0]):
        total += a[j] * b[j]
    return total


@compiled(parallel=True)
def append_positive_planted(planted, strengths, products, bias, first, features, values, counts):
    """The same where x is a short sum of planted directions: pre-activations are that sum of the rows of `products`."""
    samples, width = planted.shape[0], products.shape[1]
    whole = width - width % CHUNK
    for b in prange(samples):
        row, used = np.zeros(width, np.float32), counts[b]
        _mix(row, planted[b], strengths[b], products)
        for start in range(0, whole, CHUNK):
            if _any_above(row, bias, start, np.float32(0.0)):
                used = _append(row, bias, start, start + CHUNK, first, features[b], values[b], used)
        counts[b] = _append(row, bias, whole, width, first, features[b], values[b], used)


@compiled(parallel=True)
def fire_planted(planted, strengths, products, bias, codes):
    """Write all codes of samples that are short sums of planted directions: relu of that sum of `products`, + bias."""
    samples, width = planted.shape[0], products.shape[1]
    for b in prange(samples):
        row = codes[b]
        for j in range(width):
            row[j] = bias[j]
        _mix(row, planted[b], strengths[b], products)
        for j in range(width):
            row[j] = max(row[j], np.float32(0.0))


@compiled(inline="always")
def _mix(row, places, strengths, products):
    """Add the products at these places, each times its strength; most of the places are empty."""
    for k in range(places.shape[0]):
        strength = strengths[k]
        if strength != 0:
            product = products[places[k]]
            for j in range(row.shape[0]):
                row[j] += strength * product[j]


@compiled(parallel=True)
def add_planted(planted, strengths, rows, totals):
    """Add every sample's row, times its strength, to the totals of the directions planted in it."""
    samples, most = planted.shape
    width = rows.shape[1]
    for block in prange((width + COLUMNS - 1) // COLUMNS):
        start = block * COLUMNS
        stop = min(start + COLUMNS, width)
        totals[:, start:stop] = 0
        for b in range(samples):
            for k in range(most):
                strength = strengths[b, k]
                if strength != 0:
                    total = totals[planted[b, k]]
                    for j in range(start, stop):
                        total[j] += strength * rows[b, j]


@compiled(inline="always")
def _any_above(row, bias, start, least):
    """Whether any of a whole chunk is above; the fixed number of turns lets the compiler use vectors."""
    above = np.int32(0)
    for j in range(CHUNK):
        above += np.int32(row[start + j] + bias[start + j] > least)
    return above > 0


@compiled(inline="always")
def _append(row, bias, start, stop, first, features, values, used):
    for j in range(start, stop):
        value = row[j] + bias[j]
        if value > 0:
            if used < features.shape[0]:
                features[used] = first + j
                values[used] = value
            used += 1
    return used


@compiled(parallel=True)
def append_largest(pre, bias, features, values, counts):
    """Keep the largest of `pre + bias` that are positive, as many as there are slots: a heap with the least on top."""
    samples, width = pre.shape
    whole = width - width % CHUNK
    for b in prange(samples):
        row, kept, place = pre[b], values[b], features[b]
        used = 0
        for start in range(0, whole, CHUNK):
            least = kept[0] if used == kept.shape[0] else np.float32(0.0)
            if _any_above(row, bias, start, least):
                used = _keep_largest(row, bias, start, start + CHUNK, kept, place, used)
        counts[b] = _keep_largest(row, bias, whole, width, kept, place, used)


@compiled(inline="always")
def _keep_largest(row, bias, start, stop, kept, place, used):
    size = kept.shape[0]
    for j in range(start, stop):
        value = row[j] + bias[j]
        if value > 0 and used < size:
            used += 1
            _rise(kept, place, used - 1, value, j)
        elif value > 0 and value > kept[0]:
            _sink(kept, place, size, value, j)
    return used


@compiled(inline="always")
def _rise(kept, place, hole, value, feature):
    """Put a value into the heap's new last place and let it rise."""
    while hole > 0 and kept[(hole - 1) // 2] > value:
        above = (hole - 1) // 2
        kept[hole], place[hole] = kept[above], place[above]
        hole = above
    kept[hole], place[hole] = value, feature


@compiled(inline="always")
def _sink(kept, place, size, value, feature):
    """Put a value in the place of the heap's least and let it sink."""
    hole = 0
    while True:
        below = 2 * hole + 1
        if below + 1 < size and kept[below + 1] < kept[below]:
            below += 1
        if below >= size or kept[below] >= value:
            break
        kept[hole], place[hole] = kept[below], place[below]
        hole = below
    kept[hole], place[hole] = value, feature


@compiled(parallel=True)
def clear_unused(values, features, counts):
    """Give every slot that is not in use the value 0."""
    members, samples, slots = values.shape
    for i in prange(members * samples):
        m, b = i // samples, i % samples
        for k in range(counts[m, b], slots):
            values[m, b, k] = 0
            features[m, b, k] = 0


@compiled(parallel=True)
def decode(features, values, counts, decoder, offset, x, scale, reconstruction, error, squares, gradients):
    """Each sample as the sum of the rows that fired, its error and its square, and the codes' gradients of that.

    The gradient of a code is scale · (error · direction).
    """
    members, samples, dimensions = reconstruction.shape
    for i in prange(members * samples):
        m, b = i // samples, i % samples
        row, left, count = reconstruction[m, b], error[m, b], counts[m, b]
        for j in range(dimensions):
            row[j] = offset[m, j]
        add_rows(row, decoder[m], features[m, b], values[m, b], 0, count)
        square = np.float32(0.0)
        for j in range(dimensions):
            left[j] = row[j] - x[b, j]
            square += left[j] * left[j]
        squares[m, b] = square
        for k in range(count):
            gradients[m, b, k] = scale * _dot(left, decoder[m, features[m, b, k]])
        for k in range(count, gradients.shape[2]):
            gradients[m, b, k] = 0


@compiled(inline="always")
def add_rows(total, rows, places, weights, start, stop):
    """Add the rows at these places, each times its weight; four at a time, to touch `total` less."""
    dimensions = total.shape[0]
    fours = stop - (stop - start) % 4
    for k in range(start, fours, 4):
        a, b, c, d = rows[places[k]], rows[places[k + 1]], rows[places[k + 2]], rows[places[k + 3]]
        p, q, r, s = weights[k], weights[k + 1], weights[k + 2], weights[k + 3]
        for j in range(dimensions):
            total[j] += (p * a[j] + q * b[j]) + (r * c[j] + s * d[j])
    for k in range(fours, stop):
        row, weight = rows[places[k]], weights[k]
        for j in range(dimensions):
            total[j] += weight * row[j]


@compiled(parallel=True)
def sort_by_feature(features, values, gradients, counts, starts, samples, event_values, event_gradients):
    """Lists in the order of samples become events in the order of features (a counting sort per member)."""
    members, size = counts.shape
    width = starts.shape[1] - 1
    for m in prange(members):
        place = np.zeros(width + 1, np.int64)
        for b in range(size):
            for k in range(counts[m, b]):
                place[features[m, b, k] + 1] += 1
        for f in range(width):
            place[f + 1] += place[f]
        starts[m] = place
        for b in range(size):
            for k in range(counts[m, b]):
                f = features[m, b, k]
                event = place[f]
                place[f] += 1
                samples[m, event] = b
                event_values[m, event] = values[m, b, k]
                event_gradients[m, event] = gradients[m, b, k]
