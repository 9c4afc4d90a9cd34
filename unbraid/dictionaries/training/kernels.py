"""The fast path of the weights: each feature's gradient is the sum over its events, and its Adam step is taken at once.

The mathematics are those of `adam.py`; events and the rules of these loops are explained in `dictionaries/kernels.py`.
"""

import numpy as np
from numba import prange

from unbraid.dictionaries.kernels import COLUMNS, add_rows, compiled
from unbraid.schedule import BETA1, BETA2, EPSILON


@compiled(parallel=True)
def weight_gradients(starts, samples, values, gradients, x, error, scale, encoder, encoder_bias, decoder):
    """Write the gradients of all weights, each row the sum over the events of its feature."""
    members, width = encoder_bias.shape
    for i in prange(members * width):
        m, f = i // width, i % width
        start, stop = starts[m, f], starts[m, f + 1]
        encoder_bias[m, f] = _sum_events(
            start, stop, samples[m], values[m], gradients[m], x, error[m], scale, encoder[m, f], decoder[m, f]
        )


@compiled(inline="always")
def _sum_events(start, stop, samples, values, gradients, x, error, scale, encoder_row, decoder_row):
    """Put one feature's gradients in its rows, and give that of its bias."""
    encoder_row[:] = 0
    decoder_row[:] = 0
    add_rows(encoder_row, x, samples, gradients, start, stop)
    add_rows(decoder_row, error, samples, values, start, stop)
    for j in range(decoder_row.shape[0]):
        decoder_row[j] *= scale
    total = np.float32(0.0)
    for event in range(start, stop):
        total += gradients[event]
    return total


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
def update_weights(
    starts, samples, values, gradients, x, error, scale, rates, corrections,
    encoder, encoder_mean, encoder_square,
    encoder_bias, bias_mean, bias_square,
    decoder, decoder_mean, decoder_square,
):  # fmt: skip
    """Sum each feature's gradients and take its Adam step at once, then bring its direction back to length one.

    `rates[m, f]` is the learning rate over Adam's first correction, `corrections[m, f]` the root of its second.
    """
    members, width, dimensions = encoder.shape
    for i in prange(members * width):
        m, f = i // width, i % width
        rate, correction = rates[m, f], corrections[m, f]
        start, stop = starts[m, f], starts[m, f + 1]
        encoder_row, decoder_row = np.empty(dimensions, np.float32), np.empty(dimensions, np.float32)
        total = _sum_events(
            start, stop, samples[m], values[m], gradients[m], x, error[m], scale, encoder_row, decoder_row
        )
        _adam_row(encoder_row, encoder[m, f], encoder_mean[m, f], encoder_square[m, f], rate, correction)
        _adam_row(decoder_row, decoder[m, f], decoder_mean[m, f], decoder_square[m, f], rate, correction)
        _adam_bias(total, m, f, encoder_bias, bias_mean, bias_square, rate, correction)
        _normalise(decoder[m, f])


@compiled(parallel=True)
def take_step(
    encoder_gradient, bias_gradient, decoder_gradient, rates, corrections,
    encoder, encoder_mean, encoder_square,
    encoder_bias, bias_mean, bias_square,
    decoder, decoder_mean, decoder_square,
):  # fmt: skip
    """The same from gradients that are there already: Adam and unit rows in one pass."""
    members, width, _ = encoder.shape
    for i in prange(members * width):
        m, f = i // width, i % width
        rate, correction = rates[m, f], corrections[m, f]
        _adam_row(encoder_gradient[m, f], encoder[m, f], encoder_mean[m, f], encoder_square[m, f], rate, correction)
        _adam_row(decoder_gradient[m, f], decoder[m, f], decoder_mean[m, f], decoder_square[m, f], rate, correction)
        _adam_bias(bias_gradient[m, f], m, f, encoder_bias, bias_mean, bias_square, rate, correction)
        _normalise(decoder[m, f])


@compiled(inline="always")
def _adam_bias(gradient, m, f, encoder_bias, bias_mean, bias_square, rate, correction):
    mean = bias_mean[m, f] + (gradient - bias_mean[m, f]) * np.float32(1 - BETA1)
    square = bias_square[m, f] * np.float32(BETA2) + gradient * gradient * np.float32(1 - BETA2)
    bias_mean[m, f], bias_square[m, f] = mean, square
    encoder_bias[m, f] -= rate * mean / (np.sqrt(square) / correction + np.float32(EPSILON))


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
