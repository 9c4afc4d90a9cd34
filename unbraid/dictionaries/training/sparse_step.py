"""The step of `step.py`, at the cost of what fired: the same mathematics, with gradients written out by hand.

    error = factor · (x̂ - target)        ∂/∂code = error·direction + ∂penalties        factor = 2/b, or 2/(b·d)
    ∂/∂direction = Σ code · error        ∂/∂encoder row = Σ ∂pre · x        ∂/∂bias = Σ ∂pre

Where the loss is the error's length, `error` is also divided by it, sample by sample, and factor is 1/b.
Prefixes of `Matryoshka` are further errors of the same pass: a direction learns from those it is part of, their sum.
`rules.py` goes back from ∂code to ∂pre. Where a mechanism acts at `encode`, ∂code goes back through that before.
Other penalties and `encode` are differentiated by autograd, but only with respect to the few values that fired (and to
weights, where a mechanism looks at those). It declines, before anything has changed, where codes are too dense.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

import torch

from unbraid.axes import Float, Int, Tensor
from unbraid.dictionaries import operations
from unbraid.dictionaries.activations import Named
from unbraid.dictionaries.lists import Inputs, Lists
from unbraid.dictionaries.mechanisms.matryoshka import Matryoshka
from unbraid.dictionaries.mechanisms.mechanism import Forward, Mechanisms, Signals, gather_signals
from unbraid.dictionaries.operations.contract import Parts, Sums
from unbraid.dictionaries.stack import Stack
from unbraid.dictionaries.training.adam import ROWS, gradient_lengths
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.gradients import Encoded, find_costs, loss_divisor
from unbraid.dictionaries.training.revival import Revived, revive
from unbraid.dictionaries.training.rules import Back, Learned, fire, remembered
from unbraid.dictionaries.training.step import State, StepOutput, apply_gradients, check_finite, conclude, rates


@torch.no_grad()
def sparse_step(state: State, inputs: Inputs, training: Training, mechanisms: Mechanisms) -> StepOutput | None:
    """Advance `state` by one batch, in place; None, with nothing changed, where lists are not the way."""
    stack, x, target = state.stack, inputs.x, inputs.x
    signals = gather_signals(mechanisms, state.memories, stack)
    lists = operations.of(x).select(stack, inputs)
    if lists is None:
        return None
    memory, fired = remembered(stack, lists), fire(stack, lists)
    encoded = _encode_in_place(lists, state, mechanisms, signals)
    slots = encoded.codes.values.shape[-1]
    decoded = _Decoded.of(stack, lists, slots, target, _Nested.of(stack, mechanisms), training)
    again = None if fired.again is None else _auxiliary(stack, lists, fired.again, target, training)
    revived = revive(state, x, target, decoded.reconstruction, training)
    forward = Forward(x, encoded.codes, decoded.reconstruction, would_fire=encoded.would_fire)
    with torch.enable_grad():
        terms = _terms(decoded, revived, again)
        costs = find_costs(state, forward, terms, fired.counted, mechanisms, signals)
    check_finite({f"loss term '{name}'": cost for name, cost in costs.terms.items()}, state.step)
    in_codes = costs.add_to(decoded.gradients, encoded.codes, codes_count=fired.counted is None)
    in_codes, in_weights = encoded.back(in_codes, costs.in_weights)
    back = fired.back(Learned(in_codes, costs.in_counted, again and again.gradients))
    check_finite({"gradient": back.in_pre.flatten(1).abs().amax(1)}, state.step)
    sums = _RowSums(_sums(stack, lists, x, decoded, revived, back), decoded, revived, back)
    rate = rates(state, training)
    if training.clip is None and not in_weights:
        _update_at_once(state, sums, rate)
    else:
        gradients = _all_gradients(stack, sums, in_weights)
        apply_gradients(state, gradients, gradient_lengths(gradients), rate, training)
    stack.remember(memory)
    return conclude(state, forward, costs.terms, training, mechanisms, signals)


def _terms(decoded: "_Decoded", revived: Revived, again: "_Decoded | None") -> Named:
    """The costs whose gradients are written out."""
    terms = {"reconstruction": decoded.loss, **decoded.nested_costs}
    if revived.cost is not None:
        terms["auxk"] = revived.cost
    return terms if again is None else {**terms, "auxiliary": again.loss}


def _encode_in_place(lists: Lists, state: State, mechanisms: Mechanisms, signals: Signals) -> Encoded:
    """Let mechanisms lower and silence what would fire; the lists then hold what fires, in the same slots."""
    encoded = Encoded.of(lists.codes(), state.stack, mechanisms, signals, state.memories)
    if encoded.codes is not encoded.would_fire:
        values = encoded.codes.values
        lists.values[..., : values.shape[-1]] = values
    return encoded


@dataclass(frozen=True)
class _Nested:
    """Prefixes of the features that reconstruct alone: their widths, rising, whose each is, and its weight there."""

    widths: list[int]
    names: list[str]
    weights: Float[Tensor, "m p"]

    @classmethod
    def of(cls, stack: Stack, mechanisms: Mechanisms) -> "_Nested":
        asked = [
            (ceil(share * stack.features), name, torch.as_tensor(mechanism.weight).expand(stack.members))
            for name, mechanism in mechanisms.items()
            if isinstance(mechanism, Matryoshka)
            for share in mechanism.prefixes
        ]
        asked.sort(key=lambda prefix: prefix[0])
        weights = [weight.float() for _, _, weight in asked]
        together = (
            torch.stack(weights, 1).to(stack.encoder.device) if weights else stack.encoder.new_zeros(stack.members, 0)
        )
        return cls([width for width, _, _ in asked], [name for _, name, _ in asked], together)

    def segments(self, features: int, device: torch.device) -> Int[Tensor, "f"]:
        """The segment of each feature: the number of prefixes it is no part of."""
        widths = torch.tensor(self.widths, dtype=torch.int64).to(device)
        return torch.searchsorted(widths, torch.arange(features, device=device), right=True)


@dataclass(frozen=True)
class _Decoded:
    """Lists decoded: reconstruction, errors by segment, the losses, and their gradients in the codes."""

    reconstruction: Tensor
    errors: Float[Tensor, "m s b d"]
    segments: Int[Tensor, "f"]
    loss: Float[Tensor, "m"]
    nested_costs: Named
    gradients: Float[Tensor, "m b k"]

    @classmethod
    def of(
        cls, stack: Stack, lists: Lists, slots: int, target: Tensor, nested: _Nested, training: Training
    ) -> "_Decoded":
        members, samples, dimensions = stack.members, *target.shape
        divisor, norm = loss_divisor(training, samples, dimensions), training.reconstruction_loss == "norm"
        whole = torch.full((members, 1), (1 if norm else 2) / divisor, device=target.device)
        parts = Parts(
            torch.tensor([*nested.widths, lists.width], dtype=torch.int64).to(target.device),
            torch.cat([nested.weights * 2 / samples, whole], 1),
            norm,
        )
        made = operations.of(target).decode(stack, lists, slots, target, parts)
        found = made.squares
        loss = (found[:, -1].sqrt() if norm else found[:, -1]).sum(1) / divisor
        means = found[:, :-1].mean(2) * nested.weights
        named = list(zip(means.unbind(1), nested.names, strict=True))
        costs = {
            name: torch.stack([mean for mean, other in named if name == other]).sum(0).float()
            for name in dict.fromkeys(nested.names)
        }
        segments = nested.segments(lists.width, target.device)
        return cls(made.reconstruction, made.errors, segments, loss.float(), costs, made.gradients)


def _auxiliary(
    stack: Stack, lists: Lists, codes: Float[Tensor, "m b k"], target: Tensor, training: Training
) -> _Decoded:
    """What the detached decoder makes of other codes in the same slots."""
    other = Lists(lists.features, codes, lists.counts, lists.width)
    return _Decoded.of(stack, other, codes.shape[-1], target, _Nested.of(stack, {}), training)


def _sums(stack: Stack, lists: Lists, x: Tensor, decoded: _Decoded, revived: Revived, back: Back) -> Sums:
    """All that the gradients of the rows are sums of."""
    return Sums(
        operations.of(x).sort_by_feature(lists, back.in_pre),
        x.contiguous(),
        decoded.errors,
        decoded.segments,
        x.new_zeros(stack.members, 0) if stack.pre_bias is None else stack.pre_bias,
        revived.places,
        revived.encoder,
        revived.decoder,
    )


@dataclass(frozen=True)
class _RowSums:
    """The rows' sums, and what the gradients of other weights are made of."""

    rows: Sums
    decoded: _Decoded
    revived: Revived
    back: Back

    def of_features(self) -> Named:
        """The gradients of weights that a feature has one of, each `m f`."""
        named = self.back.in_weights
        return {**named, "encoder_bias": named["encoder_bias"] + self.revived.in_bias}

    def of_output(self) -> Float[Tensor, "m d"]:
        """The gradient of what is added to every reconstruction."""
        return self.decoded.errors[:, 0].sum(1)


def _update_at_once(state: State, sums: _RowSums, rate: Float[Tensor, "m"]) -> None:
    """Gradients, Adam and unit rows in one pass over the rows; then the few weights that are left."""
    stack = state.stack
    rates, rows = state.adam.of_rows(rate, stack.parameters())
    passed_on = operations.of(rate).update_rows(sums.rows, rates, rows)
    gradients = sums.of_features()
    if stack.pre_bias is not None:
        gradients["pre_bias"] = sums.of_output() - passed_on
    state.adam.update_others(stack.parameters(), gradients, rate)


def _all_gradients(stack: Stack, sums: _RowSums, in_weights: Mapping[str, Tensor]) -> Named:
    """The gradients of all weights, written out: for clipping, or penalties on weights."""
    parameters = stack.parameters()
    made = operations.of(stack.encoder).weight_gradients(sums.rows, stack)
    gradients = {**dict(zip(ROWS, made, strict=True)), **sums.of_features()}
    if stack.pre_bias is not None:
        totals = sums.back.total + sums.revived.in_bias
        gradients["pre_bias"] = sums.of_output() - (totals[:, None] @ stack.encoder)[:, 0]
    for name, gradient in in_weights.items():
        gradients[name] += gradient
    return {name: gradients[name] for name in parameters}
