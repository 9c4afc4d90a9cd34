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

MAXIMUM = 32
"""Of so many screened numbers at a time the largest is found."""

COLUMNS = 512
"""So many columns are summed at a time: their totals stay in the cache."""

SMALL = np.float32(1e-30)
"""Sums of squares below this are made again in float64: the smallest of them are lost in float32."""

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
    chunk, above = row[start : start + CHUNK], np.int32(0)
    for j in range(CHUNK):
        above += np.int32(chunk[j] > 0)
    return above > 0


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
def round_rows(rows, bits, rounded, lengths, offs):
    """Rows in bfloat16, to the nearest and of two to the even one; the rounded rows' lengths, and how far they moved.

    `bits` are the rows' bits as whole numbers, `rounded` those of the result, which may have more columns.
    """
    count, dimensions = rows.shape
    for i in prange(count):
        kept = np.empty(dimensions, np.uint32)
        near = kept.view(np.float32)
        for j in range(dimensions):
            bit = bits[i, j]
            half = (bit + np.uint32(0x7FFF) + ((bit >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
            kept[j] = half << np.uint32(16)
            rounded[i, j] = half
        length, off = np.float32(0.0), np.float32(0.0)
        for j in range(dimensions):
            moved = rows[i, j] - near[j]
            length += near[j] * near[j]
            off += moved * moved
        if off < SMALL:
            _measure_small(rows[i], near, i, lengths, offs)
        else:
            lengths[i], offs[i] = np.sqrt(length), np.sqrt(off)


@compiled(inline="always")
def _measure_small(row, near, i, lengths, offs):
    """The same lengths in float64, where squares are too small for float32."""
    length, off = np.float64(0.0), np.float64(0.0)
    for j in range(row.shape[0]):
        moved = np.float64(row[j]) - np.float64(near[j])
        length += np.float64(near[j]) * np.float64(near[j])
        off += moved * moved
    lengths[i], offs[i] = np.float32(np.sqrt(length)), np.float32(np.sqrt(off))


@compiled(parallel=True)
def append_largest_screened(screen, numbers, margins, x, encoder, bias, features, values, counts):
    """Keep the largest that are positive, as many as there are slots, in the order of features; by a screen.

    The k-th largest of the chunks' maxima is at most the k-th largest of all. What is less than that by more than the
    margin cannot be among the largest; the rest is made exactly. `numbers[i]` is the number whose bits are i.
    """
    samples, width = screen.shape
    size, chunks = values.shape[1], width // MAXIMUM
    for b in prange(samples):
        row, kept, place = screen[b], values[b], features[b]
        maxima = np.empty(chunks, np.int16)
        for c in range(chunks):
            chunk, largest = row[c * MAXIMUM : (c + 1) * MAXIMUM], np.int16(0)
            for j in range(MAXIMUM):
                largest = max(largest, chunk[j])
            maxima[c] = largest
        least = _cut(_largest_with(maxima, size), margins[b], numbers)
        used = 0
        for c in range(chunks):
            if maxima[c] >= least:
                start = c * MAXIMUM
                used = _keep_exact(row, start, start + MAXIMUM, least, x[b], encoder, bias, kept, place, used)
        used = _keep_exact(row, chunks * MAXIMUM, width, least, x[b], encoder, bias, kept, place, used)
        _order(kept, place, used)
        counts[b] = used


@compiled(inline="always")
def _largest_with(maxima, count):
    """The largest number that so many of these reach, bit by bit; 0 if it is not positive."""
    found = np.int16(0)
    for place in range(14, -1, -1):
        tried = np.int16(found | np.int16(1 << place))
        reached = np.int32(0)
        for c in range(maxima.shape[0]):
            reached += np.int32(maxima[c] >= tried)
        if reached >= count:
            found = tried
    return found


@compiled(inline="always")
def _cut(least, margin, numbers):
    """The bits below which nothing can be among the largest: a bfloat16 is off by less than a 128th of itself."""
    number = numbers[min(int(least), numbers.shape[0] - 1)]
    cut = number - number * np.float32(1 / 64) - margin
    if not cut > 0:
        return np.int16(1)
    return np.int16(max(1, np.searchsorted(numbers, cut, side="right") - 1))


@compiled(inline="always")
def _keep_exact(row, start, stop, least, x, encoder, bias, kept, place, used):
    size = kept.shape[0]
    for j in range(start, stop):
        if row[j] >= least:
            value = bias[j] + _dot(x, encoder[j])
            if value > 0 and used < size:
                used += 1
                _rise(kept, place, used - 1, value, j)
            elif value > 0 and value > kept[0]:
                _sink(kept, place, size, value, j)
    return used


@compiled(inline="always")
def _order(values, features, used):
    """Slots in the order of features: there are few."""
    for k in range(1, used):
        feature, value, hole = features[k], values[k], k
        while hole > 0 and features[hole - 1] > feature:
            features[hole], values[hole] = features[hole - 1], values[hole - 1]
            hole -= 1
        features[hole], values[hole] = feature, value


@compiled(parallel=True)
def raise_slots(features, counts, floors, values):
    """Add to each value in use the floor of its feature."""
    samples = counts.shape[0]
    for b in prange(samples):
        for k in range(min(counts[b], values.shape[1])):
            values[b, k] += floors[features[b, k]]


@compiled()
def pack(values, counts, packed):
    """The values in use, one after the other."""
    used = 0
    for b in range(counts.shape[0]):
        for k in range(counts[b]):
            packed[used] = values[b, k]
            used += 1


@compiled()
def keep_above(features, values, counts, least, ties):
    """Leave in the slots what is above this, and the first so many that equal it."""
    for b in range(counts.shape[0]):
        used = 0
        for k in range(counts[b]):
            value = values[b, k]
            tie = value == least and ties > 0
            if tie:
                ties -= 1
            if tie or value > least:
                features[b, used], values[b, used] = features[b, k], value
                used += 1
        counts[b] = used


@compiled(parallel=True)
def count_above(rows, bias, top, bins):
    """How many of `rows + bias` are in each of these bins between 0 and `top`; a histogram for each row."""
    samples, width = rows.shape
    last = bins.shape[1] - 1
    for b in prange(samples):
        for j in range(width):
            value = rows[b, j] + bias[j]
            if value > 0:
                bins[b, min(last, int(value / top * bins.shape[1]))] += 1


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
    chunk, its_bias, above = row[start : start + CHUNK], bias[start : start + CHUNK], np.int32(0)
    for j in range(CHUNK):
        above += np.int32(chunk[j] + its_bias[j] > least)
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
    """Keep the largest of `pre + bias` that are positive, as many as there are slots, in the order of features.

    They are kept in a heap with the least on top.
    """
    samples, width = pre.shape
    whole = width - width % CHUNK
    for b in prange(samples):
        row, kept, place = pre[b], values[b], features[b]
        used = 0
        for start in range(0, whole, CHUNK):
            least = kept[0] if used == kept.shape[0] else np.float32(0.0)
            if _any_above(row, bias, start, least):
                used = _keep_largest(row, bias, start, start + CHUNK, kept, place, used)
        used = _keep_largest(row, bias, whole, width, kept, place, used)
        _order(kept, place, used)
        counts[b] = used


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
    """Put a value into the heap's new last place and let it rise; of ties the later feature is the less."""
    while hole > 0 and kept[(hole - 1) // 2] >= value:
        above = (hole - 1) // 2
        kept[hole], place[hole] = kept[above], place[above]
        hole = above
    kept[hole], place[hole] = value, feature


@compiled(inline="always")
def _is_less(kept, place, a, b):
    return kept[a] < kept[b] or (kept[a] == kept[b] and place[a] > place[b])


@compiled(inline="always")
def _sink(kept, place, size, value, feature):
    """Put a value in the place of the heap's least and let it sink."""
    hole = 0
    while True:
        below = 2 * hole + 1
        if below + 1 < size and _is_less(kept, place, below + 1, below):
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
def decode(
    features, values, counts, edges, factors, norm, decoder, offset, target, reconstruction, errors, squares, gradients
):  # fmt: skip
    """Each sample as the sum of the rows that fired, its errors and their squares, and what is passed back.

    Segment s is of the features from edges[s - 1] to edges[s]; slots are in the order of features. errors[m, s] becomes
    the sum of factors[t] · (what is made by the features before edges[t], less the target) over the t from s on: what
    the decoder's rows in segment s learn from. `norm`: the whole error is divided by its length as well. The gradient
    of a code is its segment's error · direction.
    """
    members, segments, samples, dimensions = errors.shape
    for i in prange(members * samples):
        m, b = i // samples, i % samples
        row, count = reconstruction[m, b], counts[m, b]
        ends = np.empty(segments, np.int64)
        for j in range(dimensions):
            row[j] = offset[m, j]
        used = 0
        for s in range(segments):
            ends[s] = _end_of(features[m, b], used, count, edges[s]) if s < segments - 1 else count
            add_rows(row, decoder[m], features[m, b], values[m, b], used, ends[s])
            used, left, square = ends[s], errors[m, s, b], np.float32(0.0)
            for j in range(dimensions):
                left[j] = row[j] - target[b, j]
                square += left[j] * left[j]
            squares[m, s, b] = square
        length = np.sqrt(squares[m, segments - 1, b])
        last = factors[m, segments - 1]
        if norm:
            last = last / length if length > 0 else np.float32(0.0)
        _accumulate(errors[m], b, factors[m], last)
        used = 0
        for s in range(segments):
            for k in range(used, ends[s]):
                gradients[m, b, k] = _dot(errors[m, s, b], decoder[m, features[m, b, k]])
            used = ends[s]
        for k in range(count, gradients.shape[2]):
            gradients[m, b, k] = 0


@compiled(inline="always")
def _end_of(features, start, stop, edge):
    end = start
    while end < stop and features[end] < edge:
        end += 1
    return end


@compiled(inline="always")
def _accumulate(errors, b, factors, last):
    """Each segment's error times its factor, and those of all later ones."""
    segments, _, dimensions = errors.shape
    for j in range(dimensions):
        errors[segments - 1, b, j] *= last
    for s in range(segments - 2, -1, -1):
        left, after, factor = errors[s, b], errors[s + 1, b], factors[s]
        for j in range(dimensions):
            left[j] = factor * left[j] + after[j]


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
