"""The step of `step.py` while nearly everything fires: five matrix products, with gradients written out by hand.

error = c·D - x        ∂c = scale · error·Dᵀ + ∂penalties, through `encode`, where c > 0
∂D = scale · cᵀ·error        ∂W = ∂cᵀ·x        ∂bias = Σ ∂c
"""

import torch

from unbraid.axes import Float, Tensor
from unbraid.codes import Codes
from unbraid.dictionaries.activation import Named
from unbraid.dictionaries.lists import Inputs
from unbraid.dictionaries.stack import Stack
from unbraid.mechanisms.mechanism import Forward, Mechanisms, gather_signals
from unbraid.training import kernels
from unbraid.training.adam import gradient_lengths
from unbraid.training.costs import find_costs, shared_by
from unbraid.training.encoding import Encoded
from unbraid.training.in_place import grown_older, weights_and_moments
from unbraid.training.schedule import Training
from unbraid.training.step import Outcome, State, apply_gradients, conclude, rates, refuse_infinite


@torch.no_grad()
def dense_step(state: State, inputs: Inputs, training: Training, mechanisms: Mechanisms) -> Outcome:
    """Advance `state`, whose activation is relu, by one batch, in place."""
    stack, x = state.stack, inputs.x
    signals = gather_signals(mechanisms, state.memories, stack)
    would_fire = Codes.dense(stack.pre_activations(x).relu_())
    encoded = Encoded.of(would_fire, stack, mechanisms, signals)
    forward = Forward(x, encoded.codes, stack.decode(encoded.codes), would_fire=would_fire)
    error = forward.reconstruction - x
    shared = shared_by(training, *x.shape)
    with torch.enable_grad():
        costs = find_costs(stack, forward, error.square().sum((1, 2)) / shared, mechanisms, signals)
    refuse_infinite({f"loss term '{name}'": cost for name, cost in costs.terms.items()}, state.step)
    in_codes = costs.in_values.baddbmm_(error, stack.decoder.mT, alpha=2 / shared)
    in_values, in_weights = encoded.back(in_codes, costs.in_weights)
    in_values.mul_(would_fire.values > 0)
    gradients = _gradients(stack, forward, error * (2 / shared), in_values, in_weights)
    lengths = gradient_lengths(gradients)
    refuse_infinite({"gradient": lengths}, state.step)
    rate = rates(state, training)
    if training.clip is None and stack.pre_bias is None:
        named = [gradients[name].numpy() for name in ("encoder", "encoder_bias", "decoder")]
        kernels.take_step(*named, *grown_older(state, rate), *weights_and_moments(state))
    else:
        apply_gradients(state, gradients, lengths, rate, training)
    return conclude(state, forward, costs.terms, mechanisms, signals)


def _gradients(
    stack: Stack,
    forward: Forward,
    in_error: Float[Tensor, "m b d"],
    in_values: Float[Tensor, "m b f"],
    in_weights: Named,
) -> Named:
    gradients = {
        "encoder": in_values.mT @ forward.x,
        "encoder_bias": in_values.sum(1),
        "decoder": forward.codes.values.mT @ in_error,
    }
    if stack.pre_bias is not None:
        through_encoder = (gradients["encoder_bias"][:, None] @ stack.encoder)[:, 0]
        gradients["pre_bias"] = in_error.sum(1) - through_encoder
        gradients["encoder"] -= gradients["encoder_bias"][..., None] * stack.pre_bias[:, None]
    for name, gradient in in_weights.items():
        gradients[name] += gradient
    return gradients
