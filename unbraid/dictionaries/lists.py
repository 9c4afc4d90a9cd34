"""Encode and decode by lists of what fired: one matrix product, and the rest at the cost of what fires.

The encoder's product is made a block at a time and searched while it is still in the cache. Where x is a short sum of
planted directions, x·Wᵀ is the same sum of the rows of F·Wᵀ, which is cheaper. In training a list holds, with its
pre-activation and in the order of features, what a rule needs:

    relu, gated    what is positive                    jump-relu    what is above the window around its threshold
    top-k          the k largest of a sample           batch top-k  the k·b largest of the batch

Batch top-k guesses from a few samples a number that somewhat more than k·b exceed, and lists those; where they are too
few after all, it guesses again, lower. The result does not depend on the guess.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from unbraid.axes import Bool, Float, Int, Tensor
from unbraid.codes import Codes
from unbraid.dictionaries import kernels, screen
from unbraid.dictionaries.activations import BatchTopK, Gated, JumpRelu, Relu, TopK
from unbraid.dictionaries.downstream import Downstream
from unbraid.dictionaries.stack import Stack

BLOCK_BYTES = 8 << 20
"""About how much of the encoder's product is made at a time."""
SCREENED_BLOCK = 2048
"""How many features at a time are screened."""
SCREENED_SHARE = 0.04
"""Where more than this share of what was screened fires, the exact product is cheaper."""
PLANTED_BLOCK = 512
"""How many features at a time, where directions are planted: their products then stay in the cache."""
PLANTED_GAIN = 2
"""Planted directions serve where they are this many times fewer than the samples."""
PROBE = 32
"""So many samples are tried first, to see whether codes are too dense for lists."""
DENSE_SHARE = 1 / 6
"""Where more than this share of the features fires, dense products are cheaper."""
GUESSES = (1.3, 3.0, 10.0)
"""Batch top-k lists this many times what must fire, or, at last, all that is positive."""
GUESS_FROM, BINS = 64, 2048
"""From so many samples it guesses, by a histogram with so many bins."""
SCREEN_BYTES = 32 << 20
"""About how much of a screen is made at a time where whole samples are needed."""
LISTS_BYTES, LEAST_SLOTS = 8 << 20, 64
"""How much room lists have at first, and at least a sample; where one needs more, they are made again with more."""


@dataclass(frozen=True)
class Inputs:
    """What a step is given: x and, where x is exactly a short sum of directions, that sum."""

    x: Float[Tensor, "b d"]
    mixture: Codes | None = None
    directions: Float[Tensor, "n d"] | None = None
    target: Float[Tensor, "b o"] | None = None
    """What x must predict, where that is not itself; the fast ways know nothing of it."""
    downstream: Downstream | None = None
    """The model that goes on from the site, where a mechanism needs it; x is then of whole sequences."""

    def to(self, device: torch.device) -> "Inputs":
        """The same on another device, where what was planted is of no use."""
        if device.type == "cpu":
            return self
        target = None if self.target is None else self.target.to(device)
        return Inputs(self.x.to(device), target=target)

    @cached_property
    def planted(self) -> "Planted | None":
        """The sum over those directions alone that occur, where these are so few that it is cheaper than x."""
        if self.mixture is None or self.mixture.features is None or self.directions is None:
            return None
        features = self.mixture.features[0].long()
        occurs = torch.zeros(len(self.directions), dtype=torch.bool, device=features.device)
        occurs[features] = True
        if PLANTED_GAIN * int(occurs.sum()) > len(self.x):
            return None
        new_index = occurs.cumsum(0, dtype=torch.int32) - 1
        return Planted(new_index[features], self.mixture.values[0], self.directions[occurs])


@dataclass(frozen=True)
class Planted:
    """Each sample as Σ_k strengths · directions[places]."""

    places: Int[Tensor, "b k"]
    strengths: Float[Tensor, "b k"]
    directions: Float[Tensor, "n d"]


@dataclass(frozen=True)
class Lists:
    """What fired, in the first `counts[m, b]` slots of every sample; the others, up to the fullest's, hold 0."""

    features: Int[Tensor, "m b r"]
    """r slots, k of them with room for a value: no fewer than are in use."""
    values: Float[Tensor, "m b k"]
    counts: Int[Tensor, "m b"]
    width: int

    def fullest(self) -> int:
        """As few slots as do for the fullest sample."""
        return max(1, int(self.counts.max())) if self.counts.numel() else 1

    def codes(self) -> Codes:
        """The same as codes, in as few slots as do for the fullest sample; shares its memory."""
        slots = self.fullest()
        return Codes(self.features[..., :slots], self.values[..., :slots], self.width)


@dataclass(frozen=True)
class MemberLists:
    """The lists of one member while they are made."""

    features: np.ndarray
    values: np.ndarray
    counts: np.ndarray
    width: int


def serve(stack: Stack) -> bool:
    """Lists are made for these rules, in float32."""
    rules = (Relu, TopK, BatchTopK, JumpRelu, Gated)
    exact = stack.precision == "float32" and stack.encoder.dtype == torch.float32
    return exact and type(stack.activation) in rules


def too_dense(stack: Stack, inputs: Inputs) -> Bool[Tensor, "m"]:
    """Whether so much of the first few samples fires that dense products are cheaper."""
    if isinstance(stack.activation, TopK | BatchTopK):
        many = isinstance(stack.activation, BatchTopK) and stack.activation.k > DENSE_SHARE * stack.features
        return torch.full((stack.members,), many, device=stack.device)
    first = inputs.x[:PROBE]
    above = stack.pre_activations(first) > listing_floors(stack)[:, None]
    return above.sum((1, 2)) > DENSE_SHARE * len(first) * stack.features


def listing_floors(stack: Stack) -> Float[Tensor, "m f"]:
    """What a pre-activation must exceed to be listed."""
    if isinstance(stack.activation, JumpRelu):
        return stack.rule["log_threshold"].exp() - stack.activation.bandwidth / 2
    return torch.zeros_like(stack.encoder_bias)


def encode_lists(stack: Stack, inputs: Inputs) -> Lists | None:
    """What fires, as lists; None where that is so much that dense products are cheaper."""
    slots = stack.activation.k if isinstance(stack.activation, TopK) else _first_slots(stack, len(inputs.x))
    made = _encode_into(slots, stack, inputs)
    fullest = int(made[2].max(initial=0))
    if fullest > slots:
        if made[2].mean(1).max() > DENSE_SHARE * stack.features:
            return None
        made = _encode_into(fullest, stack, inputs)
    features, values, counts = made
    if isinstance(stack.activation, BatchTopK):
        for member in range(stack.members):
            one = MemberLists(features[member], values[member], counts[member], stack.features)
            _keep_of_batch(one, stack.activation.k * len(inputs.x))
    lists = Lists(torch.from_numpy(features), torch.from_numpy(values), torch.from_numpy(counts), stack.features)
    used = lists.fullest()
    kernels.clear_unused(values[..., :used], features[..., :used], counts)
    return lists


def _first_slots(stack: Stack, samples: int) -> int:
    return min(stack.features, max(LEAST_SLOTS, LISTS_BYTES // (8 * max(1, samples) * stack.members)))


def _encode_into(slots: int, stack: Stack, inputs: Inputs) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, values and counts with this much room a sample; counts tell where a sample has more."""
    members, samples = stack.members, len(inputs.x)
    features, values = np.empty((members, samples, slots), np.int32), np.empty((members, samples, slots), np.float32)
    counts = np.zeros((members, samples), np.int64)
    bias, floors = stack.shifted_bias(), listing_floors(stack)
    for member in range(members):
        one = MemberLists(features[member], values[member], counts[member], stack.features)
        given = one, stack.encoder[member], bias[member]
        if isinstance(stack.activation, TopK):
            _append_largest(given[0], given[1], given[2].numpy(), inputs)
        elif isinstance(stack.activation, BatchTopK):
            _append_of_batch(*given, inputs, stack.activation.k)
        else:
            _append_above(*given, floors[member], inputs)
    return features, values, counts


def _append_above(
    member_lists: MemberLists, encoder: Tensor, bias: Float[Tensor, "f"], floors: Float[Tensor, "f"], inputs: Inputs
) -> None:
    """What is above its floor."""
    _append_positive(member_lists, encoder, (bias - floors).numpy(), inputs)
    if floors.any():
        kernels.raise_slots(member_lists.features, member_lists.counts, floors.numpy(), member_lists.values)


def _append_of_batch(
    member_lists: MemberLists, encoder: Tensor, bias: Float[Tensor, "f"], inputs: Inputs, k: int
) -> None:
    """At least the k·b largest of the batch that are positive."""
    for floor in _guesses(encoder, bias, inputs.x, k):
        member_lists.counts[:] = 0
        _append_above(member_lists, encoder, bias, torch.full_like(bias, floor), inputs)
        if floor == 0 or member_lists.counts.sum() >= k * len(inputs.x):
            return


def _guesses(encoder: Tensor, bias: Float[Tensor, "f"], x: Float[Tensor, "b d"], k: int) -> Iterator[float]:
    """Numbers that the k·b largest of the batch may exceed, ever lower; the last one is 0."""
    some = x[:: max(1, len(x) // GUESS_FROM)]
    rows = some @ encoder.T
    top = float((rows.amax(0) + bias).max())
    if top > 0 and np.isfinite(top):
        bins = np.zeros((len(some), BINS), np.int32)
        kernels.count_above(rows.numpy(), bias.numpy(), np.float32(top), bins)
        above = bins.sum(0)[::-1].cumsum()[::-1]
        for guess in GUESSES:
            yield top / BINS * max(0, int((above >= guess * k * len(some)).sum()) - 1)
    yield 0.0


def _keep_of_batch(member_lists: MemberLists, most: int) -> None:
    """Of what is listed, this many: the largest."""
    total = int(member_lists.counts.sum())
    if total <= most:
        return
    packed = np.empty(total, np.float32)
    kernels.pack(member_lists.values, member_lists.counts, packed)
    packed = np.partition(packed, total - most)
    least = packed[total - most]
    above = int((packed[total - most :] > least).sum())
    kernels.keep_above(member_lists.features, member_lists.values, member_lists.counts, least, most - above)


def _append_largest(member_lists: MemberLists, encoder: Tensor, bias: np.ndarray, inputs: Inputs) -> None:
    if screen.pays() and len(encoder) // kernels.MAXIMUM >= 2 * member_lists.values.shape[1]:
        _append_largest_screened(member_lists, encoder, bias, inputs.x)
        return
    for rows, product in _products(inputs.x, encoder):
        kernels.append_largest(
            product, bias, member_lists.features[rows], member_lists.values[rows], member_lists.counts[rows]
        )


def _append_largest_screened(member_lists: MemberLists, encoder: Tensor, bias: np.ndarray, x: Tensor) -> None:
    screened, screening = screen.of_inputs(x), screen.of_encoder(encoder, torch.from_numpy(bias))
    margins, exact = screen.margins(screened, screening).numpy(), x.contiguous().numpy()
    rows = max(1, min(len(x), SCREEN_BYTES // (2 * len(encoder))))
    buffer = torch.empty(rows, len(encoder), dtype=torch.bfloat16)
    for start in range(0, len(x), rows):
        some = slice(start, start + rows)
        kernels.append_largest_screened(
            screen.signs(screened[some], screening, buffer[: len(screened[some])]),
            screen.NUMBERS,
            margins[some],
            exact[some],
            encoder.numpy(),
            bias,
            member_lists.features[some],
            member_lists.values[some],
            member_lists.counts[some],
        )


def _append_positive(member_lists: MemberLists, encoder: Tensor, bias: np.ndarray, inputs: Inputs) -> None:
    if inputs.planted is not None:
        _append_planted(member_lists, encoder, bias, inputs.planted)
        return
    done = _append_screened(member_lists, encoder, bias, inputs.x) if screen.pays() else 0
    if done < len(encoder):
        for rows, product in _products(inputs.x, encoder[done:]):
            kernels.append_positive(
                product,
                bias[done:],
                done,
                member_lists.features[rows],
                member_lists.values[rows],
                member_lists.counts[rows],
            )


def _append_screened(member_lists: MemberLists, encoder: Tensor, bias: np.ndarray, x: Tensor) -> int:
    """How many features were screened: it stops where so many fire that the exact product is cheaper."""
    screened, exact = screen.of_inputs(x), x.contiguous().numpy()
    width = min(member_lists.width, SCREENED_BLOCK)
    rows = max(1, min(len(x), BLOCK_BYTES // (2 * width)))
    memory = torch.empty(rows * width, dtype=torch.bfloat16)
    for first in range(0, member_lists.width, width):
        if member_lists.counts.sum() > SCREENED_SHARE * first * len(x):
            return first
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
    return member_lists.width


def _append_planted(member_lists: MemberLists, encoder: Tensor, bias: np.ndarray, planted: Planted) -> None:
    products = torch.empty(len(planted.directions), min(PLANTED_BLOCK, member_lists.width))
    for first in range(0, member_lists.width, PLANTED_BLOCK):
        block = encoder[first : first + PLANTED_BLOCK]
        out = products[:, : len(block)]
        torch.mm(planted.directions, block.T, out=out)
        kernels.append_positive_planted(
            planted.places.numpy(),
            planted.strengths.numpy(),
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
