"""The operations on CUDA: Triton's kernels for what costs most, plain torch for the rest.

    select             each program finds the places of what is listed in one sample, features in their order
    decode             Σ value · row, one program a sample, segment and block of dimensions; slots in their order
    code gradients     error · row, one program a slot
    by-feature sums    Σ gradient · x and Σ value · error, one program a feature and block; its events in their order
    Adam rows          moments, step and unit length, one program a row

No program adds to what another writes (there are no atomics), so that every sum has one order, and the same GPU gives
the same bits. The products with the encoder, top-k and sorting are torch's own. `tests/scale/test_triton.py` runs every
kernel in Triton's interpreter; none was ever run on hardware (docs/devices.md).
"""

from typing import Any

import torch
import triton  # pyright: ignore[reportMissingImports] (an extra)
import triton.language as tl  # pyright: ignore[reportMissingImports]

from unbraid.axes import Float, Int, Tensor
from unbraid.dictionaries.operations.contract import Rates, Rows, Sums
from unbraid.dictionaries.operations.plain import Plain
from unbraid.schedule import BETA1, BETA2, EPSILON

COLUMNS = 1024
"""Features that a program looks at at a time while it selects."""
DIMENSIONS = 256
"""Dimensions that a program sums at a time, at most."""


class Cuda(Plain):
    """Work in proportion to what fired."""

    def compact(
        self, pre: Float[Tensor, "m b f"], places: Int[Tensor, "m b f"], slots: int
    ) -> tuple[Int[Tensor, "m b k"], Float[Tensor, "m b k"]]:
        features = torch.zeros(*pre.shape[:2], slots, dtype=torch.int32, device=pre.device)
        values = pre.new_zeros(features.shape)
        kept = (places < slots).contiguous()
        width = pre.shape[2]
        grid = (pre.shape[0] * pre.shape[1],)
        _launch(_select, grid, pre.contiguous(), kept, features, values, width, slots, COLUMNS=_block(width, COLUMNS))
        return features, values

    def partial_sums(
        self,
        features: Int[Tensor, "m b k"],
        values: Float[Tensor, "m b k"],
        edges: Int[Tensor, "s"],
        rows: Float[Tensor, "m f d"],
    ) -> Float[Tensor, "m s b d"]:
        members, samples, slots = features.shape
        width, dimensions = rows.shape[1:]
        made = rows.new_empty(members, len(edges), samples, dimensions)
        size = _block(dimensions, DIMENSIONS)
        grid = (members * samples, len(edges), triton.cdiv(dimensions, size))
        given = features.contiguous(), values.contiguous(), edges, rows.contiguous(), made
        _launch(_decode, grid, *given, samples, slots, width, dimensions, len(edges), DIMENSIONS=size)
        return made

    def slot_products(
        self,
        features: Int[Tensor, "m b k"],
        segments: Int[Tensor, "m b k"],
        errors: Float[Tensor, "m s b d"],
        rows: Float[Tensor, "m f d"],
    ) -> Float[Tensor, "m b k"]:
        members, samples, slots = features.shape
        width, dimensions = rows.shape[1:]
        made = rows.new_empty(features.shape)
        given = features.contiguous(), segments.int().contiguous(), errors, rows.contiguous(), made
        sizes = samples, slots, width, dimensions, errors.shape[1]
        _launch(_slot_products, (members * samples, slots), *given, *sizes, DIMENSIONS=_block(dimensions, DIMENSIONS))
        return made

    def row_gradients(self, sums: Sums) -> tuple[Float[Tensor, "m f d"], Float[Tensor, "m f d"]]:
        members, width = sums.revived.shape
        dimensions, targets = sums.x.shape[1], sums.errors.shape[3]
        encoder, decoder = (sums.x.new_empty(members, width, size) for size in (dimensions, targets))
        centred = sums.pre_bias.shape[1] > 0
        events, size = sums.events, _block(max(dimensions, targets), DIMENSIONS)
        grid = (members, width, triton.cdiv(max(dimensions, targets), size))
        # An empty tensor has no address; what is not there is not read.
        again = sums.revived_encoder if len(sums.revived_encoder) else sums.x
        again_decoder = sums.revived_decoder if len(sums.revived_decoder) else sums.x
        given = events.starts, events.samples, events.values, events.gradients, sums.x, sums.errors.contiguous()
        rest = sums.segments.int(), sums.pre_bias if centred else sums.x, sums.revived, again, again_decoder
        sizes = len(sums.x), width, dimensions, targets, events.samples.shape[1], sums.errors.shape[1]
        _launch(_sum_rows, grid, *given, *rest, encoder, decoder, *sizes, CENTRED=centred, DIMENSIONS=size)
        return encoder, decoder

    def adam_rows(
        self,
        encoder_gradient: Float[Tensor, "m f d"],
        decoder_gradient: Float[Tensor, "m f d"],
        rates: Rates,
        rows: Rows,
    ) -> None:
        encoder, decoder = rows.tensors()[:3], rows.tensors()[3:]
        for gradient, tensors, unit in ((encoder_gradient, encoder, False), (decoder_gradient, decoder, True)):
            members, width, dimensions = gradient.shape
            given = gradient.contiguous(), *tensors, rates.rates.contiguous(), rates.roots.contiguous()
            settings = {"UNIT": unit, "DIMENSIONS": triton.next_power_of_2(dimensions)}
            _launch(_adam_row, (members * width,), *given, dimensions, 1 - BETA1, BETA2, 1 - BETA2, EPSILON, **settings)


def _block(size: int, most: int) -> int:
    return min(triton.next_power_of_2(size), most)


def _launch(kernel: Any, grid: tuple[int, ...], *arguments: object, **settings: object) -> None:
    """On the device of the first tensor, which need not be the current one."""
    first = arguments[0]
    if isinstance(first, Tensor) and first.is_cuda:
        with torch.cuda.device(first.device):
            kernel[grid](*arguments, **settings)
    else:
        kernel[grid](*arguments, **settings)


@triton.jit
def _select(pre, kept, features, values, width, slots, COLUMNS: tl.constexpr):  # noqa: N803
    """Of one sample, what is kept, in the first slots."""
    sample = tl.program_id(0).to(tl.int64)
    used = 0
    for start in range(0, width, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        there = columns < width
        listed = tl.load(kept + sample * width + columns, mask=there, other=0).to(tl.int32)
        places = used + tl.cumsum(listed, 0) - 1
        write = there & (listed > 0) & (places < slots)
        number = tl.load(pre + sample * width + columns, mask=there, other=0.0)
        tl.store(features + sample * slots + places, columns, mask=write)
        tl.store(values + sample * slots + places, number, mask=write)
        used += tl.sum(listed, 0)


@triton.jit
def _decode(
    features, values, edges, rows, made, samples, slots, width, dimensions, segments, DIMENSIONS: tl.constexpr  # noqa: N803
):  # fmt: skip
    """Of one sample and segment, the sum of the rows that fired, each times its value."""
    sample, segment = tl.program_id(0).to(tl.int64), tl.program_id(1)
    columns = tl.program_id(2) * DIMENSIONS + tl.arange(0, DIMENSIONS)
    there, member = columns < dimensions, sample // samples
    first = tl.load(edges + segment - 1, mask=segment > 0, other=0)
    last = tl.load(edges + segment)
    total = tl.zeros([DIMENSIONS], dtype=tl.float32)
    for slot in range(slots):
        feature = tl.load(features + sample * slots + slot).to(tl.int64)
        value = tl.load(values + sample * slots + slot)
        value = tl.where((feature >= first) & (feature < last), value, 0.0)
        row = tl.load(rows + (member * width + feature) * dimensions + columns, mask=there, other=0.0)
        total += value * row
    place = (member * segments + segment) * samples + sample % samples
    tl.store(made + place * dimensions + columns, total, mask=there)


@triton.jit
def _slot_products(
    features, segments, errors, rows, made, samples, slots, width, dimensions, parts, DIMENSIONS: tl.constexpr  # noqa: N803
):  # fmt: skip
    """Of one slot, the error of its segment · the row of its feature."""
    sample, slot = tl.program_id(0).to(tl.int64), tl.program_id(1)
    member, place = sample // samples, sample * slots + slot
    feature = tl.load(features + place).to(tl.int64)
    segment = tl.load(segments + place)
    error = errors + ((member * parts + segment) * samples + sample % samples) * dimensions
    row = rows + (member * width + feature) * dimensions
    total = tl.zeros([DIMENSIONS], dtype=tl.float32)
    for start in range(0, dimensions, DIMENSIONS):
        columns = start + tl.arange(0, DIMENSIONS)
        there = columns < dimensions
        total += tl.load(error + columns, mask=there, other=0.0) * tl.load(row + columns, mask=there, other=0.0)
    tl.store(made + place, tl.sum(total, 0))


@triton.jit
def _sum_rows(
    starts, event_samples, values, gradients, x, errors, segments, pre_bias,
    revived, revived_encoder, revived_decoder, encoder, decoder,
    samples, width, dimensions, targets, events, parts,
    CENTRED: tl.constexpr, DIMENSIONS: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Of one feature, the gradients of its encoder's and decoder's rows, over its events in their order."""
    member, feature = tl.program_id(0).to(tl.int64), tl.program_id(1)
    columns = tl.program_id(2) * DIMENSIONS + tl.arange(0, DIMENSIONS)
    read, written = columns < dimensions, columns < targets
    segment = tl.load(segments + feature)
    error = errors + (member * parts + segment) * samples * targets
    in_encoder = tl.zeros([DIMENSIONS], dtype=tl.float32)
    in_decoder = tl.zeros([DIMENSIONS], dtype=tl.float32)
    total = 0.0
    start = tl.load(starts + member * (width + 1) + feature)
    stop = tl.load(starts + member * (width + 1) + feature + 1)
    for event in range(start, stop):
        place = member * events + event
        sample = tl.load(event_samples + place).to(tl.int64)
        gradient = tl.load(gradients + place)
        total += gradient
        in_encoder += gradient * tl.load(x + sample * dimensions + columns, mask=read, other=0.0)
        in_decoder += tl.load(values + place) * tl.load(error + sample * targets + columns, mask=written, other=0.0)
    row = member * width + feature
    again = tl.load(revived + row).to(tl.int64)
    more = columns * 0 + again >= 0  # of every column, as the other masks are
    more_encoder, more_decoder = revived_encoder + again * (dimensions + 1), revived_decoder + again * targets
    in_encoder += tl.load(more_encoder + columns, mask=read & more, other=0.0)
    in_decoder += tl.load(more_decoder + columns, mask=written & more, other=0.0)
    if CENTRED:
        total += tl.load(more_encoder + dimensions, mask=again >= 0, other=0.0)
        in_encoder -= total * tl.load(pre_bias + member * dimensions + columns, mask=read, other=0.0)
    tl.store(encoder + row * dimensions + columns, in_encoder, mask=read)
    tl.store(decoder + row * targets + columns, in_decoder, mask=written)


@triton.jit
def _adam_row(
    gradients, rows, means, squares, rates, roots, dimensions, learns, keeps, adds, epsilon,
    UNIT: tl.constexpr, DIMENSIONS: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Adam's step of one row; where UNIT, back to length one."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, DIMENSIONS)
    there, places = columns < dimensions, row * dimensions + columns
    gradient = tl.load(gradients + places, mask=there, other=0.0)
    mean = tl.load(means + places, mask=there, other=0.0)
    square = tl.load(squares + places, mask=there, other=0.0)
    mean += (gradient - mean) * learns
    square = square * keeps + gradient * gradient * adds
    weight = tl.load(rows + places, mask=there, other=0.0)
    weight -= tl.load(rates + row) * mean / (tl.sqrt(square) / tl.load(roots + row) + epsilon)
    if UNIT:
        length = tl.sqrt(tl.sum(tl.where(there, weight * weight, 0.0), 0))
        weight = weight / tl.maximum(length, 1e-12)
    tl.store(means + places, mean, mask=there)
    tl.store(squares + places, square, mask=there)
    tl.store(rows + places, weight, mask=there)
