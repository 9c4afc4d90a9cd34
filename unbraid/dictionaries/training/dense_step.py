"""The step of `step.py` while nearly everything fires: five matrix products, with gradients written out by hand.

error = c·D - x        ∂c = scale · error·Dᵀ + ∂penalties, through `encode`, where c > 0
∂D = scale · cᵀ·error        ∂W = ∂cᵀ·x        ∂bias = Σ ∂c        scale = 2/b, 2/(b·d), or of each sample 1/(b·|error|)

Where x = s·F is a short sum of planted directions, two of the five are smaller: x·Wᵀ = s·(F·Wᵀ), ∂W = (sᵀ·∂c)ᵀ·F.
"""

import torch

from unbraid.axes import Float, Tensor
from unbraid.codes import Codes
from unbraid.dictionaries import kernels as lists_kernels
from unbraid.dictionaries.activations import Named
from unbraid.dictionaries.lists import Inputs
from unbraid.dictionaries.mechanisms.mechanism import Forward, Mechanisms, gather_signals
from unbraid.dictionaries.stack import Stack
from unbraid.dictionaries.training import kernels
from unbraid.dictionaries.training.adam import gradient_lengths
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.gradients import Encoded, find_costs, loss_divisor, norm_slopes
from unbraid.dictionaries.training.step import State, StepOutput, apply_gradients, check_finite, conclude, rates


@torch.no_grad()
def dense_step(state: State, inputs: Inputs, training: Training, mechanisms: Mechanisms) -> StepOutput:
    """Advance `state`, whose activation is relu, by one batch, in place."""
    stack, x = state.stack, inputs.x
    signals = gather_signals(mechanisms, state.memories, stack)
    would_fire = Codes.dense(_codes(stack, inputs))
    encoded = Encoded.of(would_fire, stack, mechanisms, signals)
    forward = Forward(x, encoded.codes, stack.decode(encoded.codes), would_fire=would_fire)
    error = forward.reconstruction - x
    loss, slopes = _loss(error, training)
    with torch.enable_grad():
        costs = find_costs(state, forward, loss, training, mechanisms, signals)
    check_finite({f"loss term '{name}'": cost for name, cost in costs.terms.items()}, state.step)
    error *= slopes
    in_codes = costs.add_to(error @ stack.decoder.mT, encoded.codes)
    in_values, in_weights = encoded.back(in_codes, costs.in_weights)
    bias = torch.empty_like(stack.encoder_bias)
    kernels.through_relu(would_fire.values.numpy(), in_values.numpy(), bias.numpy())
    gradients = {
        "encoder": _encoder_gradient(inputs, in_values),
        "encoder_bias": bias,
        "decoder": encoded.codes.values.mT @ error,
    }
    _pass_on(gradients, stack, error, in_weights)
    lengths = gradient_lengths(gradients)
    check_finite({"gradient": lengths}, state.step)
    rate = rates(state, training)
    if training.clip is None and stack.pre_bias is None:
        named = [gradients[name].numpy() for name in ("encoder", "encoder_bias", "decoder")]
        kernels.take_step(*named, *state.adam.corrections(rate), *state.adam.with_moments(state.stack.parameters()))
    else:
        apply_gradients(state, gradients, lengths, rate, training)
    return conclude(state, forward, costs.terms, training, mechanisms, signals)


def _loss(error: Float[Tensor, "m b d"], training: Training) -> tuple[Float[Tensor, "m"], Tensor | float]:
    """The reconstruction loss, and what times the error is its gradient in the error."""
    if training.reconstruction_loss == "norm":
        lengths = torch.linalg.vector_norm(error, dim=2)
        return lengths.mean(1), norm_slopes(lengths)[..., None]
    divisor = loss_divisor(training, *error.shape[1:])
    return error.square().sum((1, 2)) / divisor, 2 / divisor


def _codes(stack: Stack, inputs: Inputs) -> Float[Tensor, "m b f"]:
    planted = inputs.planted
    if planted is None:
        return stack.pre_activations(inputs.x).relu_()
    codes = torch.empty(stack.members, len(inputs.x), stack.features)
    bias = stack.shifted_bias()
    for member, values in enumerate(codes):
        products = planted.directions @ stack.encoder[member].T
        lists_kernels.fire_planted(
            planted.places, planted.strengths, products.numpy(), bias[member].numpy(), values.numpy()
        )
    return codes


def _encoder_gradient(inputs: Inputs, in_values: Float[Tensor, "m b f"]) -> Float[Tensor, "m f d"]:
    planted = inputs.planted
    if planted is None:
        return in_values.mT @ inputs.x
    gradient = torch.empty(len(in_values), in_values.shape[2], inputs.x.shape[1])
    totals = torch.empty(len(planted.directions), in_values.shape[2])
    for member, rows in enumerate(in_values):
        lists_kernels.add_planted(planted.places, planted.strengths, rows.numpy(), totals.numpy())
        torch.mm(totals.T, planted.directions, out=gradient[member])
    return gradient


def _pass_on(gradients: Named, stack: Stack, in_error: Float[Tensor, "m b d"], in_weights: Named) -> None:
    """What reaches the pre-bias, and what penalties say of weights themselves; in place."""
    if stack.pre_bias is not None:
        through_encoder = (gradients["encoder_bias"][:, None] @ stack.encoder)[:, 0]
        gradients["pre_bias"] = in_error.sum(1) - through_encoder
        gradients["encoder"] -= gradients["encoder_bias"][..., None] * stack.pre_bias[:, None]
    for name, gradient in in_weights.items():
        gradients[name] += gradient
