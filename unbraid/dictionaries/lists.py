"""Encode and decode by lists of what fired: one matrix product, and the rest at the cost of what fires.

The encoder's product is made a block at a time and searched while it is still in the cache. Where x is a short sum of
planted directions, x·Wᵀ is the same sum of the rows of F·Wᵀ, which is cheaper.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from unbraid.axes import Bool, Float, Tensor
from unbraid.codes import Codes
from unbraid.dictionaries import kernels, screen
from unbraid.dictionaries.activations import Relu, TopK
from unbraid.dictionaries.stack import Stack

BLOCK_BYTES = 8 << 20
"""About how much of the encoder's product is made at a time."""
SCREENED_BLOCK = 2048
"""How many features at a time are screened."""
PLANTED_BLOCK = 512
"""How many features at a time, where directions are planted: their products then stay in the cache."""
PLANTED_GAIN = 2
"""Planted directions serve where they are this many times fewer than the samples."""
PROBE = 32
"""So many samples are tried first, to see whether codes are too dense for lists."""
DENSE_SHARE = 1 / 6
"""Where more than this share of the features fires, dense products are cheaper."""
LISTS_BYTES, LEAST_SLOTS = 8 << 20, 64
"""How much room lists have at first, and at least a sample; where one needs more, they are made again with more."""


@dataclass(frozen=True)
class Inputs:
    """What a step is given: x and, where x is exactly a short sum of directions, that sum."""

    x: Float[Tensor, "b d"]
    mixture: Codes | None = None
    directions: Float[Tensor, "n d"] | None = None

    @cached_property
    def planted(self) -> "Planted | None":
        """The sum over those directions alone that occur, where these are so few that it is cheaper than x."""
        if self.mixture is None or self.mixture.features is None or self.directions is None:
            return None
        features = self.mixture.features[0].numpy()
        occurs = np.zeros(len(self.directions), bool)
        occurs[features] = True
        if PLANTED_GAIN * occurs.sum() > len(self.x):
            return None
        new_index = np.cumsum(occurs, dtype=np.int32) - 1
        return Planted(new_index[features], self.mixture.values[0].numpy(), self.directions[torch.from_numpy(occurs)])


@dataclass(frozen=True)
class Planted:
    """Each sample as Σ_k strengths · directions[places]."""

    places: np.ndarray
    strengths: np.ndarray
    directions: Float[Tensor, "n d"]


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
    inputs = Inputs(x)
    lists = encode_lists(stack, inputs) if serve(stack) and not too_dense(stack, inputs).any() else None
    return stack.inhibited(lists.codes()) if lists is not None else stack.encode(x)


def serve(stack: Stack) -> bool:
    """Lists are made for relu and top-k in float32."""
    return isinstance(stack.activation, Relu | TopK) and stack.encoder.dtype == torch.float32


def too_dense(stack: Stack, inputs: Inputs) -> Bool[Tensor, "m"]:
    """Whether so much of the first few samples fires that dense products are cheaper."""
    if isinstance(stack.activation, TopK):
        return torch.zeros(stack.members, dtype=torch.bool)
    first = inputs.x[:PROBE]
    return (stack.pre_activations(first) > 0).sum((1, 2)) > DENSE_SHARE * len(first) * stack.features


def encode_lists(stack: Stack, inputs: Inputs) -> Lists | None:
    """What fires, as lists; None where that is so much that dense products are cheaper."""
    slots = stack.activation.k if isinstance(stack.activation, TopK) else _first_slots(stack, len(inputs.x))
    lists = _encode_into(slots, stack, inputs)
    fullest = int(lists.counts.max(initial=0))
    if fullest <= slots:
        return lists
    if lists.counts.mean(1).max() > DENSE_SHARE * stack.features:
        return None
    return _encode_into(fullest, stack, inputs)


def _first_slots(stack: Stack, samples: int) -> int:
    return min(stack.features, max(LEAST_SLOTS, LISTS_BYTES // (8 * samples * stack.members)))


def _encode_into(slots: int, stack: Stack, inputs: Inputs) -> Lists:
    """Lists with this much room a sample; counts tell where a sample has more."""
    members, samples = stack.members, len(inputs.x)
    lists = Lists(
        np.empty((members, samples, slots), np.int32),
        np.empty((members, samples, slots), np.float32),
        np.zeros((members, samples), np.int64),
        stack.features,
    )
    append = _append_largest if isinstance(stack.activation, TopK) else _append_positive
    bias = stack.shifted_bias().numpy()
    for member in range(members):
        member_lists = Lists(lists.features[member], lists.values[member], lists.counts[member], stack.features)
        append(member_lists, stack.encoder[member], bias[member], inputs)
    return lists


def _append_largest(member_lists: Lists, encoder: Tensor, bias: np.ndarray, inputs: Inputs) -> None:
    for rows, product in _products(inputs.x, encoder):
        kernels.append_largest(
            product, bias, member_lists.features[rows], member_lists.values[rows], member_lists.counts[rows]
        )


def _append_positive(member_lists: Lists, encoder: Tensor, bias: np.ndarray, inputs: Inputs) -> None:
    if inputs.planted is not None:
        _append_planted(member_lists, encoder, bias, inputs.planted)
        return
    if screen.pays():
        _append_screened(member_lists, encoder, bias, inputs.x)
        return
    for rows, product in _products(inputs.x, encoder):
        kernels.append_positive(
            product, bias, 0, member_lists.features[rows], member_lists.values[rows], member_lists.counts[rows]
        )


def _append_screened(member_lists: Lists, encoder: Tensor, bias: np.ndarray, x: Tensor) -> None:
    screened, exact = screen.of_inputs(x), x.contiguous().numpy()
    width = min(member_lists.width, SCREENED_BLOCK)
    rows = max(1, min(len(x), BLOCK_BYTES // (2 * width)))
    memory = torch.empty(rows * width, dtype=torch.bfloat16)
    for first in range(0, member_lists.width, width):
        block, its_bias = encoder[first : first + width], bias[first : first + width]
        screening = screen.of_encoder(block, torch.from_numpy(its_bias))
        for start in range(0, len(x), rows):
            some = slice(start, start + rows)
            buffer = memory[: len(screened[some]) * len(block)].view(-1, len(block))
            kernels.append_screened(
                screen.signs(screened[some], screening, buffer),
                exact[some],
                block.numpy(),
                its_bias,
                first,
                member_lists.features[some],
                member_lists.values[some],
                member_lists.counts[some],
            )


def _append_planted(member_lists: Lists, encoder: Tensor, bias: np.ndarray, planted: Planted) -> None:
    products = torch.empty(len(planted.directions), min(PLANTED_BLOCK, member_lists.width))
    for first in range(0, member_lists.width, PLANTED_BLOCK):
        block = encoder[first : first + PLANTED_BLOCK]
        out = products[:, : len(block)]
        torch.mm(planted.directions, block.T, out=out)
        kernels.append_positive_planted(
            planted.places,
            planted.strengths,
            out.numpy(),
            bias[first : first + PLANTED_BLOCK],
            first,
            member_lists.features,
            member_lists.values,
            member_lists.counts,
        )


def _products(x: Tensor, encoder: Tensor) -> Iterator[tuple[slice, np.ndarray]]:
    """Blocks of x·Wᵀ with the samples they are of; each block is gone when the next is made."""
    rows = max(1, min(len(x), BLOCK_BYTES // (4 * len(encoder))))
    buffer = torch.empty(rows, len(encoder))
    for start in range(0, len(x), rows):
        block = x[start : start + rows]
        torch.mm(block, encoder.T, out=buffer[: len(block)])
        yield slice(start, start + len(block)), buffer[: len(block)].numpy()
