"""Co-activation at the cost of what fired together: loops over the pairs of each sample's list, never over all pairs.

A row is one feature of one member. Lists hold what fired in each sample in ascending order of features, one sample
after another; an event of a row is its place in them. Row r keeps its partners, features after it, from `rooms[r]` on.
The rules of these loops are those of `dictionaries/kernels.py`: every sum is taken in a fixed order by one thread.
"""

import numpy as np
from numba import prange

from unbraid.dictionaries.kernels import compiled

CHUNK = 512
"""Rows that share one scratch."""


@compiled()
def arrange(samples, rows, values, width, starts, events, bounds, order, features, listed, rooms):
    """Sort what fired, given sample by sample: into events by row, and into lists by sample; and make room for pairs.

    `order` says which of the given stands at each place of the lists; `bounds` where each sample's list begins.
    """
    for e in range(rows.shape[0]):
        starts[rows[e] + 1] += 1
        bounds[samples[e] + 1] += 1
    for r in range(starts.shape[0] - 1):
        starts[r + 1] += starts[r]
    for s in range(bounds.shape[0] - 1):
        bounds[s + 1] += bounds[s]
    by_row, next_event, next_place = np.empty_like(order), starts[:-1].copy(), bounds[:-1].copy()
    for e in range(rows.shape[0]):
        by_row[next_event[rows[e]]] = e
        next_event[rows[e]] += 1
    for r in range(starts.shape[0] - 1):
        room = 0
        for event in range(starts[r], starts[r + 1]):
            e = by_row[event]
            place = next_place[samples[e]]
            next_place[samples[e]] += 1
            events[event], order[place] = place, e
            features[place], listed[place] = r % width, values[e]
            room += bounds[samples[e] + 1] - place - 1
        rooms[r + 1] = rooms[r] + min(width - 1 - r % width, room)


@compiled(parallel=True)
def pair_sums(starts, events, ends, features, values, width, rooms, partners, sums):
    """Σ over samples of f_i · f_j for every row i and each feature j after it that fired in the same sample."""
    rows = starts.shape[0] - 1
    for chunk in prange((rows + CHUNK - 1) // CHUNK):
        kept = np.full(width, np.int32(-1))  # where each partner is kept; that of an earlier row is not this row's
        for r in range(chunk * CHUNK, min(rows, (chunk + 1) * CHUNK)):
            used = rooms[r]
            for event in range(starts[r], starts[r + 1]):
                place = events[event]
                value = values[place]
                for q in range(place + 1, ends[place]):
                    t = np.int64(kept[features[q]])
                    if t < rooms[r]:
                        t = used
                        used += 1
                        kept[features[q]], partners[t] = t, features[q]
                    sums[t] += value * values[q]


@compiled()
def score(rooms, partners, sums, offset, scale, width, scores):
    """(sum - offset_i · offset_j) · scale_i · scale_j for every pair whose sum is not 0."""
    for r in range(rooms.shape[0] - 1):
        first = r - r % width
        for t in range(rooms[r], rooms[r + 1]):
            if sums[t] != 0:
                j = first + partners[t]
                scores[t] = (sums[t] - offset[r] * offset[j]) * (scale[r] * scale[j])


@compiled(parallel=True)
def pull(starts, events, begins, ends, features, values, width, edges, partners, weights, own, gradients):
    """Each event's gradient: Σ over its partners in the sample of weight_ij · f_j, less own_i · f_i."""
    rows = starts.shape[0] - 1
    for chunk in prange((rows + CHUNK - 1) // CHUNK):
        weight = np.zeros(width, np.float32)
        for r in range(chunk * CHUNK, min(rows, (chunk + 1) * CHUNK)):
            if edges[r] == edges[r + 1]:
                continue
            for t in range(edges[r], edges[r + 1]):
                weight[partners[t]] = weights[t]
            for event in range(starts[r], starts[r + 1]):
                place = events[event]
                total = -own[r] * values[place]
                for q in range(begins[place], ends[place]):
                    total += weight[features[q]] * values[q]
                gradients[place] = total
            for t in range(edges[r], edges[r + 1]):
                weight[partners[t]] = 0


@compiled()
def both_ways(first, second, weights, width, edges, partners, both):
    """Pairs (i, j) of rows as edges from i to j and from j to i, in the order of rows; those of weight 0 are left."""
    for p in range(first.shape[0]):
        if weights[p] != 0:
            edges[first[p] + 1] += 1
            edges[second[p] + 1] += 1
    for r in range(edges.shape[0] - 1):
        edges[r + 1] += edges[r]
    place = edges[:-1].copy()
    for p in range(first.shape[0]):
        if weights[p] != 0:
            i, j = first[p], second[p]
            partners[place[i]], both[place[i]] = j % width, weights[p]
            partners[place[j]], both[place[j]] = i % width, weights[p]
            place[i] += 1
            place[j] += 1
