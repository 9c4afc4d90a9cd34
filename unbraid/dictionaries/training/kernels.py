"""The fast path of the weights: each feature's gradient is the sum over its events, and its Adam step is taken at once.

The mathematics are those of `adam.py`; events and the rules of these loops are explained in `dictionaries/kernels.py`.
"""

import numpy as np
from numba import prange

from unbraid.dictionaries.kernels import COLUMNS, add_rows, compiled
from unbraid.schedule import BETA1, BETA2, EPSILON

BLOCK = 64
"""So many features at a time add what they pass on to the pre-bias, in an order that threads do not change."""


@compiled(parallel=True)
def weight_gradients(
    starts, samples, values, gradients, x, errors, segments, pre_bias,
    revived, revived_encoder, revived_decoder, encoder, decoder,
):  # fmt: skip
    """Write the gradients of encoder and decoder, each row the sum over the events of its feature."""
    members, width, _ = encoder.shape
    for i in prange(members * width):
        m, f = i // width, i % width
        start, stop = starts[m, f], starts[m, f + 1]
        error, again = errors[m, segments[f]], revived[m, f]
        _sum_events(start, stop, samples[m], values[m], gradients[m], x, error, encoder[m, f], decoder[m, f])
        if again >= 0:
            _add_both(encoder[m, f], decoder[m, f], revived_encoder[again], revived_decoder[again])
        total = _total(start, stop, gradients[m], again, revived_encoder)
        for j in range(pre_bias.shape[1]):
            encoder[m, f, j] -= total * pre_bias[m, j]


@compiled(inline="always")
def _sum_events(start, stop, samples, values, gradients, x, error, encoder_row, decoder_row):
    """Put one feature's gradients in its rows."""
    encoder_row[:] = 0
    decoder_row[:] = 0
    add_rows(encoder_row, x, samples, gradients, start, stop)
    add_rows(decoder_row, error, samples, values, start, stop)


@compiled(inline="always")
def _add_both(encoder_row, decoder_row, more_encoder, more_decoder):
    for j in range(encoder_row.shape[0]):
        encoder_row[j] += more_encoder[j]
    for j in range(decoder_row.shape[0]):
        decoder_row[j] += more_decoder[j]


@compiled(inline="always")
def _total(start, stop, gradients, again, revived_encoder):
    """A feature's gradients in all its pre-activations; a revived row's stands behind its end."""
    total = np.float32(0.0)
    for event in range(start, stop):
        total += gradients[event]
    return total + revived_encoder[again, -1] if again >= 0 else total


@compiled(parallel=True)
def sum_by_feature(features, counts, slots, totals):
    """The sum over each feature's slots; members side by side."""
    members, samples = counts.shape
    for m in prange(members):
        totals[m] = 0
        for b in range(samples):
            for k in range(counts[m, b]):
                totals[m, features[m, b, k]] += slots[m, b, k]


@compiled(parallel=True)
def find_least(values, counts, least):
    """The least value in use of each member; 0 where none is."""
    members, samples = counts.shape
    for m in prange(members):
        found = np.float32(np.inf)
        for b in range(samples):
            for k in range(counts[m, b]):
                found = min(found, values[m, b, k])
        least[m] = found if found < np.inf else np.float32(0.0)


@compiled(parallel=True)
def fire_jump(features, counts, thresholds, pre, values, fires):
    """z · H(z - θ) in the slots, and how many fire in each sample."""
    members, samples = counts.shape
    for i in prange(members * samples):
        m, b = i // samples, i % samples
        total = 0
        for k in range(counts[m, b]):
            z = pre[m, b, k]
            fired = z > thresholds[m, features[m, b, k]]
            values[m, b, k] = z if fired else np.float32(0.0)
            total += int(fired)
        fires[m, b] = total


@compiled(parallel=True)
def back_through_jump(features, counts, thresholds, bandwidth, pre, in_fires, gradients, in_log):
    """From gradients in codes, in place, to those in pre-activations; and in log θ. `JumpRelu` states them."""
    members, samples = counts.shape
    half, inverse = np.float32(bandwidth / 2), np.float32(1 / bandwidth)
    for i in prange(members * samples):
        m, b = i // samples, i % samples
        for k in range(counts[m, b]):
            threshold, z, gradient = thresholds[m, features[m, b, k]], pre[m, b, k], gradients[m, b, k]
            near = inverse if abs(z - threshold) < half else np.float32(0.0)
            in_log[m, b, k] = -near * (threshold * gradient + in_fires[m, b]) * threshold
            gradients[m, b, k] = gradient if z > threshold else np.float32(0.0)


@compiled(parallel=True)
def fire_gated(features, counts, gains, biases, gates, values, counted):
    """relu(gain · gate + bias) in the slots of gates that are open, and the sum of gates in each sample."""
    members, samples = counts.shape
    for i in prange(members * samples):
        m, b = i // samples, i % samples
        total = np.float32(0.0)
        for k in range(counts[m, b]):
            f, gate = features[m, b, k], gates[m, b, k]
            values[m, b, k] = max(gains[m, f] * gate + biases[m, f], np.float32(0.0))
            total += gate
        counted[m, b] = total


@compiled(parallel=True)
def back_through_gates(features, counts, gains, biases, bias, gates, in_counted, gradients, in_gates, in_gain, in_bias):
    """From gradients in codes, in place, to those in pre-activations; in log gain; and in magnitudes and gates alone.

    `in_gates` holds what the auxiliary loss says of gates, and gets what the sparsity cost says too.
    """
    members, samples = counts.shape
    for i in prange(members * samples):
        m, b = i // samples, i % samples
        for k in range(counts[m, b]):
            f, gate = features[m, b, k], gates[m, b, k]
            gain = gains[m, f]
            fired = gain * gate + biases[m, f] > 0
            gradient = gradients[m, b, k] if fired else np.float32(0.0)
            in_gates[m, b, k] += in_counted[m, b]
            in_bias[m, b, k] = gradient
            in_gain[m, b, k] = gradient * gain * (gate - bias[m, f])
            gradients[m, b, k] = gradient * gain + in_gates[m, b, k]


@compiled(parallel=True)
def keep_largest(pre, bits, most):
    """Of each row leave the largest that are positive, so many at most, and 0 elsewhere; `bits` are the same memory."""
    samples, width = pre.shape
    for b in prange(samples):
        row, whole = pre[b], bits[b]
        least = np.int32(0)
        for place in range(30, -1, -1):
            tried = np.int32(least | np.int32(1 << place))
            reached = np.int32(0)
            for j in range(width):
                reached += np.int32(whole[j] >= tried)
            if reached >= most:
                least = tried
        above = np.int32(0)
        for j in range(width):
            above += np.int32(whole[j] > least)
        ties = most - above
        for j in range(width):
            if whole[j] == least and ties > 0:
                ties -= 1
            elif not whole[j] > least:
                row[j] = 0


@compiled(parallel=True)
def add_where_fired(codes, sample_gradients, gradients):
    """Add each sample's own gradient to those of the codes that fired in it."""
    members, samples, slots = codes.shape
    for i in prange(members * samples):
        m, b = i // samples, i % samples
        own, fired, row = sample_gradients[m, b], codes[m, b], gradients[m, b]
        for k in range(slots):
            row[k] += own if fired[k] > 0 else np.float32(0.0)


@compiled(parallel=True)
def through_relu(codes, gradients, bias_gradients):
    """Keep what belongs to codes that fired, and sum that for every bias."""
    members, samples, width = codes.shape
    blocks = (width + COLUMNS - 1) // COLUMNS
    for i in prange(members * blocks):
        m, start = i // blocks, i % blocks * COLUMNS
        stop = min(start + COLUMNS, width)
        totals = np.zeros(stop - start, np.float32)
        for b in range(samples):
            fired, row = codes[m, b, start:stop], gradients[m, b, start:stop]
            for j in range(stop - start):
                gradient = row[j] if fired[j] > 0 else np.float32(0.0)
                row[j] = gradient
                totals[j] += gradient
        bias_gradients[m, start:stop] = totals


@compiled(parallel=True)
def through_jump(pre, thresholds, bandwidth, in_fires, gradients, bias_gradients, log_gradients):
    """The same as `back_through_jump` where every feature has its place, and the sums over samples."""
    members, samples, width = pre.shape
    half, inverse = np.float32(bandwidth / 2), np.float32(1 / bandwidth)
    blocks = (width + COLUMNS - 1) // COLUMNS
    for i in prange(members * blocks):
        m, start = i // blocks, i % blocks * COLUMNS
        stop = min(start + COLUMNS, width)
        bias, log, own = (
            np.zeros(stop - start, np.float32),
            np.zeros(stop - start, np.float32),
            thresholds[m, start:stop],
        )
        for b in range(samples):
            z, row, counted = pre[m, b, start:stop], gradients[m, b, start:stop], in_fires[m, b]
            for j in range(stop - start):
                near = inverse if abs(z[j] - own[j]) < half else np.float32(0.0)
                log[j] -= near * (own[j] * row[j] + counted) * own[j]
                gradient = row[j] if z[j] > own[j] else np.float32(0.0)
                row[j] = gradient
                bias[j] += gradient
        bias_gradients[m, start:stop], log_gradients[m, start:stop] = bias, log


@compiled(parallel=True)
def through_gates(
    pre, gains, biases, bias, in_counted, gradients, in_gates, bias_gradients, gain_gradients, magnitude_gradients
):  # fmt: skip
    """The same as `back_through_gates` where every feature has its place, and the sums over samples."""
    members, samples, width = pre.shape
    blocks = (width + COLUMNS - 1) // COLUMNS
    for i in prange(members * blocks):
        m, start = i // blocks, i % blocks * COLUMNS
        stop = min(start + COLUMNS, width)
        size = stop - start
        of_gate, of_gain, of_bias = np.zeros(size, np.float32), np.zeros(size, np.float32), np.zeros(size, np.float32)
        gain, add, own = gains[m, start:stop], biases[m, start:stop], bias[m, start:stop]
        for b in range(samples):
            gate, row, aux = pre[m, b, start:stop], gradients[m, b, start:stop], in_gates[m, b, start:stop]
            counted = in_counted[m, b]
            for j in range(size):
                open_gate = gate[j] > 0
                fired = open_gate and gain[j] * gate[j] + add[j] > 0
                gradient = row[j] if fired else np.float32(0.0)
                through = aux[j] + counted if open_gate else np.float32(0.0)
                of_gate[j] += through
                of_bias[j] += gradient
                of_gain[j] += gradient * gain[j] * (gate[j] - own[j])
                row[j] = gradient * gain[j] + through
        bias_gradients[m, start:stop] = of_gate
        gain_gradients[m, start:stop] = of_gain
        magnitude_gradients[m, start:stop] = of_bias


@compiled(parallel=True)
def update_rows(
    starts, samples, values, gradients, x, errors, segments, pre_bias,
    revived, revived_encoder, revived_decoder, passed_on, rates, corrections,
    encoder, encoder_mean, encoder_square,
    decoder, decoder_mean, decoder_square,
):  # fmt: skip
    """Sum the gradients of each row and take its Adam step at once, then bring its direction back to length one.

    `rates[m, f]` is the learning rate over Adam's first correction, `corrections[m, f]` the root of its second.
    `passed_on[m, block]` is what the block's pre-activations say of what is added to all samples.
    """
    members, width, dimensions = encoder.shape
    blocks, centred = passed_on.shape[1], pre_bias.shape[1] > 0
    for i in prange(members * blocks):
        m, block = i // blocks, i % blocks
        encoder_row, decoder_row = np.empty(dimensions, np.float32), np.empty(decoder.shape[2], np.float32)
        through = np.zeros(dimensions, np.float32)
        for f in range(block * BLOCK, min(width, (block + 1) * BLOCK)):
            rate, correction, start, stop = rates[m, f], corrections[m, f], starts[m, f], starts[m, f + 1]
            error, again = errors[m, segments[f]], revived[m, f]
            _sum_events(start, stop, samples[m], values[m], gradients[m], x, error, encoder_row, decoder_row)
            if again >= 0:
                _add_both(encoder_row, decoder_row, revived_encoder[again], revived_decoder[again])
            if centred:
                total = _total(start, stop, gradients[m], again, revived_encoder)
                for j in range(dimensions):
                    through[j] += total * encoder[m, f, j]
                    encoder_row[j] -= total * pre_bias[m, j]
            _adam_row(encoder_row, encoder[m, f], encoder_mean[m, f], encoder_square[m, f], rate, correction)
            _adam_row(decoder_row, decoder[m, f], decoder_mean[m, f], decoder_square[m, f], rate, correction)
            _normalise(decoder[m, f])
        if centred:
            passed_on[m, block] = through


@compiled(parallel=True)
def take_step(
    encoder_gradient, decoder_gradient, rates, corrections,
    encoder, encoder_mean, encoder_square,
    decoder, decoder_mean, decoder_square,
):  # fmt: skip
    """The same from gradients that are there already: Adam and unit rows in one pass."""
    members, width, _ = encoder.shape
    for i in prange(members * width):
        m, f = i // width, i % width
        rate, correction = rates[m, f], corrections[m, f]
        _adam_row(encoder_gradient[m, f], encoder[m, f], encoder_mean[m, f], encoder_square[m, f], rate, correction)
        _adam_row(decoder_gradient[m, f], decoder[m, f], decoder_mean[m, f], decoder_square[m, f], rate, correction)
        _normalise(decoder[m, f])


@compiled(inline="always")
def _normalise(row):
    length = np.float32(0.0)
    for j in range(row.shape[0]):
        length += row[j] * row[j]
    shrink = np.float32(1.0) / max(np.sqrt(length), np.float32(1e-12))
    for j in range(row.shape[0]):
        row[j] *= shrink


@compiled(inline="always")
def _adam_row(gradient, row, means, squares, rate, correction):
    for j in range(row.shape[0]):
        g = gradient[j]
        mean = means[j] + (g - means[j]) * np.float32(1 - BETA1)
        square = squares[j] * np.float32(BETA2) + g * g * np.float32(1 - BETA2)
        means[j], squares[j] = mean, square
        row[j] -= rate * mean / (np.sqrt(square) / correction + np.float32(EPSILON))
