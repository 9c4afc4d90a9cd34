"""The step of `step.py`, at the cost of what fired: the same mathematics, with gradients written out by hand.

    error = x̂ - x        ∂/∂value = scale · error·direction + ∂penalties        scale = 2/b, or 2/(b·d)
    ∂/∂direction = scale · Σ value · error        ∂/∂encoder row = Σ ∂value · x        ∂/∂bias = Σ ∂value

Where the loss is the error's length, `error` is first divided by b times it, sample by sample, and scale is 1.
Where a mechanism acts at `encode`, ∂value goes back through that before it reaches the encoder. Penalties and `encode`
are differentiated by autograd, but only with respect to the few values that fired (and to weights, where a mechanism
looks at those). It declines, before anything has changed, where codes are too dense for lists.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from unbraid.axes import Float, Tensor
from unbraid.codes import Codes
from unbraid.dictionaries import kernels as lists_kernels
from unbraid.dictionaries.lists import Inputs, Lists, encode_lists
from unbraid.dictionaries.mechanisms.mechanism import Forward, Mechanisms, Signals, gather_signals
from unbraid.dictionaries.stack import Stack
from unbraid.dictionaries.training import kernels
from unbraid.dictionaries.training.adam import gradient_lengths
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.gradients import Encoded, find_costs, loss_divisor, norm_slopes
from unbraid.dictionaries.training.step import State, StepOutput, apply_gradients, check_finite, conclude, rates


def sparse_step(state: State, inputs: Inputs, training: Training, mechanisms: Mechanisms) -> StepOutput | None:
    """Advance `state` by one batch, in place; None, with nothing changed, where lists are not the way."""
    signals = gather_signals(mechanisms, state.memories, state.stack)
    lists = encode_lists(state.stack, inputs)
    if lists is None:
        return None
    x = inputs.x
    encoded = _encode_in_place(lists, state.stack, mechanisms, signals)
    decoded = _Decoded.of(state.stack, lists, x, training)
    forward = Forward(x, decoded.codes, decoded.reconstruction, would_fire=encoded.would_fire)
    costs = find_costs(state, forward, decoded.loss, training, mechanisms, signals)
    check_finite({f"loss term '{name}'": cost for name, cost in costs.terms.items()}, state.step)
    in_codes = costs.add_to(decoded.gradients, encoded.codes)
    in_values, in_weights = encoded.back(in_codes, costs.in_weights)
    check_finite({"gradient": in_values.flatten(1).abs().amax(1)}, state.step)
    events = _Events.of(lists, in_values)
    rate = rates(state, training)
    if training.clip is None and not in_weights and state.stack.pre_bias is None:
        _update_at_once(state, events, decoded, rate)
    else:
        gradients = _all_gradients(state.stack, events, decoded, in_weights)
        apply_gradients(state, gradients, gradient_lengths(gradients), rate, training)
    return conclude(state, forward, costs.terms, training, mechanisms, signals)


def _encode_in_place(lists: Lists, stack: Stack, mechanisms: Mechanisms, signals: Signals) -> Encoded:
    """Let mechanisms lower and silence what would fire; the lists then hold what fires, in the same slots."""
    encoded = Encoded.of(lists.codes(), stack, mechanisms, signals)
    values = encoded.codes.values.numpy()
    lists.values[..., : values.shape[-1]] = values
    return encoded


@dataclass(frozen=True)
class _Decoded:
    """Lists decoded: reconstruction, error, its square per member, and that square's gradients in the codes."""

    codes: Codes
    x: np.ndarray
    reconstruction: Tensor
    error: np.ndarray
    loss: Float[Tensor, "m"]
    scale: np.float32
    gradients: Float[Tensor, "m b k"]

    @classmethod
    def of(cls, stack: Stack, lists: Lists, x: Tensor, training: Training) -> "_Decoded":
        codes, shape = lists.codes(), (stack.members, *x.shape)
        reconstruction, error = np.empty(shape, np.float32), np.empty(shape, np.float32)
        squares, gradients = np.empty(shape[:2], np.float32), np.empty(codes.values.shape, np.float32)
        offset = np.zeros((shape[0], shape[2]), np.float32) if stack.pre_bias is None else stack.pre_bias.numpy()
        rows, divisor = x.contiguous().numpy(), loss_divisor(training, *x.shape)
        norm = training.reconstruction_loss == "norm"
        scale = np.float32(1 if norm else 2 / divisor)
        lists_kernels.decode(
            lists.features,
            lists.values,
            lists.counts,
            stack.decoder.numpy(),
            offset,
            rows,
            scale,
            reconstruction,
            error,
            squares,
            gradients,
        )
        loss = torch.from_numpy(squares).sum(1) / divisor
        if norm:
            lengths = torch.from_numpy(squares).sqrt()
            loss, slopes = lengths.mean(1), norm_slopes(lengths)[..., None].numpy()
            error *= slopes
            gradients *= slopes
        return cls(codes, rows, torch.from_numpy(reconstruction), error, loss, scale, torch.from_numpy(gradients))


@dataclass(frozen=True)
class _Events:
    """What fired, in the order of features."""

    starts: np.ndarray
    samples: np.ndarray
    values: np.ndarray
    gradients: np.ndarray

    @classmethod
    def of(cls, lists: Lists, value_gradients: Tensor) -> "_Events":
        members = len(lists.counts)
        most = int(lists.counts.sum(1).max(initial=0))
        events = cls(
            np.empty((members, lists.width + 1), np.int64),
            np.empty((members, most), np.int32),
            np.empty((members, most), np.float32),
            np.empty((members, most), np.float32),
        )
        lists_kernels.sort_by_feature(
            lists.features,
            lists.values,
            value_gradients.numpy(),
            lists.counts,
            events.starts,
            events.samples,
            events.values,
            events.gradients,
        )
        return events


def _update_at_once(state: State, events: _Events, decoded: _Decoded, rate: Float[Tensor, "m"]) -> None:
    """Gradients, Adam and unit rows in one pass over the weights."""
    kernels.update_weights(
        events.starts,
        events.samples,
        events.values,
        events.gradients,
        decoded.x,
        decoded.error,
        decoded.scale,
        *state.adam.corrections(rate),
        *state.adam.with_moments(state.stack.parameters()),
    )


def _all_gradients(
    stack: Stack, events: _Events, decoded: _Decoded, weight_gradients: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The gradients of all weights, written out: for clipping, a pre-bias, or penalties on weights."""
    gradients = {name: torch.empty_like(p) for name, p in stack.parameters().items()}
    kernels.weight_gradients(
        events.starts,
        events.samples,
        events.values,
        events.gradients,
        decoded.x,
        decoded.error,
        decoded.scale,
        *(gradients[name].numpy() for name in ("encoder", "encoder_bias", "decoder")),
    )
    if stack.pre_bias is not None:
        total = torch.from_numpy(decoded.error).sum(1) * float(decoded.scale)
        gradients["pre_bias"] = total - (gradients["encoder_bias"][:, None] @ stack.encoder)[:, 0]
        gradients["encoder"] -= gradients["encoder_bias"][..., None] * stack.pre_bias[:, None]
    for name, gradient in weight_gradients.items():
        gradients[name] += gradient
    return gradients
