"""Encode and decode by lists of what fired: one matrix product, and the rest at the cost of what fires.

The encoder's product is made a block at a time and searched while it is still in the cache. Where x is a short sum of
planted directions, x·Wᵀ is the same sum of the rows of F·Wᵀ, which is cheaper.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from unbraid.axes import Float, Tensor
from unbraid.codes import Codes
from unbraid.dictionaries import kernels
from unbraid.dictionaries.activations import Relu, TopK
from unbraid.dictionaries.stack import Stack

BLOCK_BYTES = 16 << 20
"""About how much of the encoder's product is made at a time."""
PLANTED_BLOCK = 512
"""How many features at a time, where directions are planted: their products then stay in the cache."""
PROBE = 32
"""So many samples are tried first, to see whether codes are too dense for lists."""


@dataclass(frozen=True)
class Inputs:
    """What a step is given: x and, where x is exactly a short sum of directions, that sum."""

    x: Float[Tensor, "b d"]
    mixture: Codes | None = None
    directions: Float[Tensor, "n d"] | None = None


@dataclass(frozen=True)
class Lists:
    """What fired, in the first `counts[m, b]` slots of every sample."""

    features: np.ndarray
    values: np.ndarray
    counts: np.ndarray
    width: int

    def codes(self) -> Codes:
        """The same as codes, in as few slots as do for the fullest sample; shares its memory."""
        slots = max(1, int(self.counts.max(initial=0)))
        features, values = self.features[..., :slots], self.values[..., :slots]
        kernels.clear_unused(values, features, self.counts)
        return Codes(torch.from_numpy(features), torch.from_numpy(values), self.width)


def encode(stack: Stack, x: Float[Tensor, "b d"]) -> Codes:
    """What fires: by lists where they serve, by dense products where they do not."""
    serves = isinstance(stack.activation, Relu | TopK) and stack.encoder.dtype == torch.float32
    lists = encode_lists(stack, Inputs(x)) if serves else None
    return lists.codes() if lists is not None else stack.encode(x)


def most_slots(stack: Stack) -> int:
    """How many may fire in a sample before dense products are cheaper."""
    if isinstance(stack.activation, TopK):
        return stack.activation.k
    return max(min(256, max(16, stack.features // 4)), stack.features // 16)


def encode_lists(stack: Stack, inputs: Inputs) -> Lists | None:
    """What fires, as lists; None where some sample has more than lists are good for."""
    members, samples, slots = stack.members, len(inputs.x), most_slots(stack)
    lists = Lists(
        np.empty((members, samples, slots), np.int32),
        np.empty((members, samples, slots), np.float32),
        np.zeros((members, samples), np.int64),
        stack.features,
    )
    bias = stack.shifted_bias().numpy()
    for member in range(members):
        part = Lists(lists.features[member], lists.values[member], lists.counts[member], stack.features)
        encoder = stack.encoder[member]
        if isinstance(stack.activation, TopK):
            _append_largest(part, encoder, bias[member], inputs.x)
        elif not _append_positive(part, encoder, bias[member], inputs):
            return None
    return lists


def _append_largest(part: Lists, encoder: Tensor, bias: np.ndarray, x: Tensor) -> None:
    for rows, product in _products(x, encoder):
        kernels.append_largest(product, bias, part.features[rows], part.values[rows], part.counts[rows])


def _append_positive(part: Lists, encoder: Tensor, bias: np.ndarray, inputs: Inputs) -> bool:
    """Fill one member's lists; False as soon as a sample has too many."""
    slots = part.features.shape[1]
    probe = (inputs.x[:PROBE] @ encoder.T).numpy() + bias
    if (probe > 0).sum(1).max(initial=0) > slots:
        return False
    planted, directions = inputs.mixture, inputs.directions
    if planted is not None and directions is not None and 4 * len(directions) <= len(inputs.x):
        _append_planted(part, encoder, bias, planted, directions)
    else:
        for rows, product in _products(inputs.x, encoder):
            kernels.append_positive(product, bias, 0, part.features[rows], part.values[rows], part.counts[rows])
    return bool(part.counts.max(initial=0) <= slots)


def _append_planted(part: Lists, encoder: Tensor, bias: np.ndarray, planted: Codes, directions: Tensor) -> None:
    assert planted.features is not None
    features, strengths = planted.features[0].numpy(), planted.values[0].numpy()
    products = torch.empty(len(directions), min(PLANTED_BLOCK, part.width))
    for first in range(0, part.width, PLANTED_BLOCK):
        block = encoder[first : first + PLANTED_BLOCK]
        out = products[:, : len(block)]
        torch.mm(directions, block.T, out=out)
        kernels.append_positive_planted(
            features,
            strengths,
            out.numpy(),
            bias[first : first + PLANTED_BLOCK],
            first,
            part.features,
            part.values,
            part.counts,
        )


def _products(x: Tensor, encoder: Tensor) -> Iterator[tuple[slice, np.ndarray]]:
    """Blocks of x·Wᵀ with the samples they are of; each block is gone when the next is made."""
    rows = max(1, min(len(x), BLOCK_BYTES // (4 * len(encoder))))
    buffer = torch.empty(rows, len(encoder))
    for start in range(0, len(x), rows):
        block = x[start : start + rows]
        torch.mm(block, encoder.T, out=buffer[: len(block)])
        yield slice(start, start + len(block)), buffer[: len(block)].numpy()
