"""The step of `step.py`, at the cost of what fired: the same mathematics, with gradients written out by hand.

    error = x̂ - x        ∂/∂value = scale · error·direction + ∂penalties        scale = 2/b, or 2/(b·d)
    ∂/∂direction = scale · Σ value · error        ∂/∂encoder row = Σ ∂value · x        ∂/∂bias = Σ ∂value

Penalties are differentiated by autograd, but only with respect to the few values that fired (and to weights, where
a mechanism looks at those). It declines, before anything has changed, where codes are too dense for lists.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from unbraid.axes import Float, Tensor
from unbraid.codes import Codes
from unbraid.dictionaries import kernels as lists_kernels
from unbraid.dictionaries.activations import Relu, TopK
from unbraid.dictionaries.lists import Inputs, Lists, encode_lists
from unbraid.dictionaries.stack import Stack
from unbraid.mechanisms.mechanism import Forward, Mechanism, Mechanisms, Signals, gather_signals
from unbraid.training import kernels
from unbraid.training.adam import BETA1, BETA2, gradient_lengths
from unbraid.training.schedule import Training, rate_factor
from unbraid.training.step import Outcome, State, Terms, apply_gradients, conclude, refuse_infinite


def sparse_step(state: State, inputs: Inputs, training: Training, mechanisms: Mechanisms) -> Outcome | None:
    """Advance `state` by one batch, in place; None, with nothing changed, where lists are not the way."""
    if not applies(state.stack, mechanisms):
        return None
    signals = gather_signals(mechanisms, state.memories, state.stack)
    lists = encode_lists(state.stack, inputs)
    if lists is None:
        return None
    x = inputs.x
    decoded = _Decoded.of(state.stack, lists, x, training)
    terms, value_gradients, weight_gradients = _costs(state.stack, decoded, x, mechanisms, signals)
    refuse_infinite({f"loss term '{name}'": cost for name, cost in terms.items()}, state.step)
    decoded.add_to(value_gradients)
    refuse_infinite({"gradient": value_gradients.flatten(1).abs().amax(1)}, state.step)
    events = _Events.of(lists, value_gradients)
    rate = torch.as_tensor(training.learning_rate).expand(state.stack.members) * rate_factor(state.step, training)
    if training.clip is None and not weight_gradients and state.stack.pre_bias is None:
        _update_at_once(state, events, decoded, rate)
    else:
        gradients = _all_gradients(state.stack, events, decoded, weight_gradients)
        apply_gradients(state, gradients, gradient_lengths(gradients), rate, training)
    forward = Forward(x, decoded.codes, decoded.reconstruction)
    return conclude(state, forward, terms, mechanisms, signals)


def applies(stack: Stack, mechanisms: Mechanisms) -> bool:
    """Lists serve relu and top-k in float32, where no mechanism reaches into the pre-activations."""
    reaches_in = any(type(mechanism).encode is not Mechanism.encode for mechanism in mechanisms.values())
    return isinstance(stack.activation, Relu | TopK) and stack.encoder.dtype == torch.float32 and not reaches_in


@dataclass(frozen=True)
class _Decoded:
    """Lists decoded: the reconstruction, its squared error per member, and what scales that error's gradient."""

    stack: Stack
    lists: Lists
    codes: Codes
    x: np.ndarray
    reconstruction: Tensor
    fidelity: Float[Tensor, "m"]
    scale: np.float32

    @classmethod
    def of(cls, stack: Stack, lists: Lists, x: Tensor, training: Training) -> "_Decoded":
        members, samples, dimensions = stack.members, *x.shape
        reconstruction = np.empty((members, samples, dimensions), np.float32)
        squares = np.empty((members, samples), np.float32)
        offset = np.zeros((members, dimensions), np.float32) if stack.pre_bias is None else stack.pre_bias.numpy()
        rows = x.contiguous().numpy()
        decoder = stack.decoder.numpy()
        lists_kernels.reconstruct(
            lists.features, lists.values, lists.counts, decoder, offset, rows, reconstruction, squares
        )
        shared = samples * (dimensions if training.fidelity == "mean_square" else 1)
        fidelity = torch.from_numpy(squares).sum(1) / shared
        return cls(
            stack, lists, lists.codes(), rows, torch.from_numpy(reconstruction), fidelity, np.float32(2 / shared)
        )

    def add_to(self, value_gradients: Float[Tensor, "m b k"]) -> None:
        """Add the squared error's part to the gradients of the values that fired."""
        lists_kernels.code_gradients(
            self.lists.features,
            self.lists.counts,
            self.stack.decoder.numpy(),
            self.x,
            self.reconstruction.numpy(),
            self.scale,
            value_gradients.numpy(),
        )


def _costs(
    stack: Stack, decoded: _Decoded, x: Tensor, mechanisms: Mechanisms, signals: Signals
) -> tuple[Terms, Tensor, dict[str, Tensor]]:
    """Every cost, and the penalties' gradients: in the values that fired, and in weights where there are any."""
    terms, leaves = {"fidelity": decoded.fidelity}, stack.leaves()
    values = decoded.codes.values.detach().requires_grad_()
    forward = Forward(x, Codes(decoded.codes.features, values, stack.features), decoded.reconstruction)
    for name, mechanism in mechanisms.items():
        cost = mechanism.penalty(forward, leaves, signals)
        if cost is not None:
            terms[name] = cost
    penalties = [cost for name, cost in terms.items() if name != "fidelity" and cost.requires_grad]
    named = leaves.parameters()
    found: list[Tensor | None] = [None] * (1 + len(named))
    if penalties:
        inputs = [values, *named.values()]
        found = list(torch.autograd.grad(torch.stack(penalties).sum(), inputs, allow_unused=True))
    in_values = torch.zeros_like(values, memory_format=torch.contiguous_format) if found[0] is None else found[0]
    in_weights = {name: gradient for name, gradient in zip(named, found[1:], strict=True) if gradient is not None}
    return {name: cost.detach() for name, cost in terms.items()}, in_values.contiguous(), in_weights


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
    adam, weights = state.adam, state.stack.parameters()
    for age in adam.age.values():
        age.add_(1)
    age = adam.age["encoder"]
    rates = rate[:, None] / (1 - BETA1**age)
    corrections = (1 - BETA2**age).sqrt()
    triples = [
        tensors[name].numpy()
        for name in ("encoder", "encoder_bias", "decoder")
        for tensors in (weights, adam.mean, adam.square)
    ]
    kernels.update_weights(
        events.starts,
        events.samples,
        events.values,
        events.gradients,
        decoded.x,
        decoded.reconstruction.numpy(),
        decoded.scale,
        rates.float().numpy(),
        corrections.float().numpy(),
        *triples,
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
        decoded.reconstruction.numpy(),
        decoded.scale,
        *(gradients[name].numpy() for name in ("encoder", "encoder_bias", "decoder")),
    )
    if stack.pre_bias is not None:
        total = (decoded.reconstruction - torch.from_numpy(decoded.x)).sum(1) * float(decoded.scale)
        gradients["pre_bias"] = total - (gradients["encoder_bias"][:, None] @ stack.encoder)[:, 0]
        gradients["encoder"] -= gradients["encoder_bias"][..., None] * stack.pre_bias[:, None]
    for name, gradient in weight_gradients.items():
        gradients[name] += gradient
    return gradients
