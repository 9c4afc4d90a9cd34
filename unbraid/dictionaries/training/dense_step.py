"""The step of `step.py` while nearly everything fires: five matrix products, with gradients written out by hand.

error = c·D - target        ∂c = scale · error·Dᵀ + ∂penalties, through `encode`; then ∂z through the rule (`rules.py`)
∂D = scale · cᵀ·error       ∂W = ∂zᵀ·x        ∂bias = Σ ∂z        scale = 2/b, 2/(b·d), or of each sample 1/(b·|error|)

Gated has two more: the detached decoder makes the target of its gates as well, and that is passed back to them.

Where x = s·F is a short sum of planted directions, two of the five are smaller: x·Wᵀ = s·(F·Wᵀ), ∂W = (sᵀ·∂c)ᵀ·F.
"""

import torch

from unbraid.axes import Float, Tensor
from unbraid.codes import Codes
from unbraid.dictionaries import operations
from unbraid.dictionaries.activations import Named, Relu
from unbraid.dictionaries.lists import Inputs
from unbraid.dictionaries.mechanisms.mechanism import Forward, Mechanisms, gather_signals
from unbraid.dictionaries.stack import Stack
from unbraid.dictionaries.training.adam import gradient_lengths
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.gradients import Encoded, find_costs, loss_of
from unbraid.dictionaries.training.rules import Dense, Learned, fire_dense
from unbraid.dictionaries.training.step import State, StepOutput, apply_gradients, check_finite, conclude, rates


@torch.no_grad()
def dense_step(state: State, inputs: Inputs, training: Training, mechanisms: Mechanisms) -> StepOutput:
    """Advance `state`, whose activation is relu, jump-relu or gated, by one batch, in place."""
    stack, x, target = state.stack, inputs.x, inputs.x
    signals = gather_signals(mechanisms, state.memories, stack)
    fired = _fire(stack, inputs)
    would_fire = Codes.dense(fired.codes)
    encoded = Encoded.of(would_fire, stack, mechanisms, signals)
    forward = Forward(x, encoded.codes, stack.decode(encoded.codes), would_fire=would_fire)
    error, terms, in_again = forward.reconstruction - target, {}, None
    terms["reconstruction"], slopes = loss_of(error, training)
    if fired.again is not None:
        other = stack.decode(Codes.dense(fired.again)) - target
        terms["auxiliary"], its_slopes = loss_of(other, training)
        in_again = other.mul_(its_slopes) @ stack.decoder.mT
    with torch.enable_grad():
        costs = find_costs(state, forward, terms, fired.counted, mechanisms, signals)
    check_finite({f"loss term '{name}'": cost for name, cost in costs.terms.items()}, state.step)
    error *= slopes
    in_codes = costs.add_to(error @ stack.decoder.mT, encoded.codes, codes_count=fired.counted is None)
    in_codes, in_weights = encoded.back(in_codes, costs.in_weights)
    back = fired.back(Learned(in_codes, costs.in_counted, in_again))
    gradients = {"encoder": _encoder_gradient(inputs, back.in_pre), "decoder": encoded.codes.values.mT @ error}
    gradients |= back.in_weights
    _pass_on(gradients, stack, error, back.total, in_weights)
    lengths = gradient_lengths(gradients)
    check_finite({"gradient": lengths}, state.step)
    rate = rates(state, training)
    if training.clip is None:
        rates_of_rows, rows = state.adam.of_rows(rate, stack.parameters())
        operations.of(x).adam_rows(gradients["encoder"], gradients["decoder"], rates_of_rows, rows)
        state.adam.update_others(stack.parameters(), gradients, rate)
    else:
        apply_gradients(state, gradients, lengths, rate, training)
    return conclude(state, forward, costs.terms, training, mechanisms, signals)


def _fire(stack: Stack, inputs: Inputs) -> Dense:
    planted = inputs.planted
    if planted is None or not isinstance(stack.activation, Relu):
        return fire_dense(stack, stack.pre_activations(inputs.x))
    codes = stack.encoder.new_empty(stack.members, len(inputs.x), stack.features)
    bias, device = stack.shifted_bias(), operations.of(inputs.x)
    for member, values in enumerate(codes):
        device.fire_planted(planted, planted.directions @ stack.encoder[member].T, bias[member], values)
    return fire_dense(stack, codes)


def _encoder_gradient(inputs: Inputs, in_values: Float[Tensor, "m b f"]) -> Float[Tensor, "m f d"]:
    planted = inputs.planted
    if planted is None:
        return in_values.mT @ inputs.x
    gradient = in_values.new_empty(len(in_values), in_values.shape[2], inputs.x.shape[1])
    for member, rows in enumerate(in_values):
        totals = operations.of(rows).add_planted(planted, rows)
        torch.mm(totals.T, planted.directions, out=gradient[member])
    return gradient


def _pass_on(gradients: Named, stack: Stack, in_error: Tensor, total: Float[Tensor, "m f"], in_weights: Named) -> None:
    """What reaches the pre-bias, and what penalties say of weights themselves; in place."""
    if stack.pre_bias is not None:
        gradients["pre_bias"] = in_error.sum(1) - (total[:, None] @ stack.encoder)[:, 0]
        gradients["encoder"] -= total[..., None] * stack.pre_bias[:, None]
    for name, gradient in in_weights.items():
        gradients[name] += gradient
