"""AuxK of `auxk.py` with its gradients written out: products over the rows of dead features alone.

c = relu of the k largest of x·Wᵀ + bias        e = x̂ + c·D - target, x̂ held still        cost = weight · loss(e)
∂c = ∂e·Dᵀ where c > 0        ∂D = cᵀ·∂e        ∂W = ∂cᵀ·x        ∂bias = Σ ∂c
"""

from dataclasses import dataclass

import torch

from unbraid.axes import Float, Int, Tensor
from unbraid.dictionaries import operations
from unbraid.dictionaries.auxk import AuxK
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.gradients import loss_of
from unbraid.dictionaries.training.step import State


@dataclass(frozen=True)
class Revived:
    """What dead features cost, and their gradients: one row for each, at the place that `places[m, f]` says, or -1."""

    cost: Float[Tensor, "m"] | None
    places: Int[Tensor, "m f"]
    encoder: Float[Tensor, "n e"]
    """Behind each row its sum over samples of ∂c, which is its bias' gradient."""
    decoder: Float[Tensor, "n o"]

    @property
    def in_bias(self) -> Float[Tensor, "m f"]:
        ends = torch.cat([self.encoder[:, -1], self.encoder.new_zeros(1)])
        return ends[self.places.long()]


@torch.no_grad()
def revive(
    state: State, x: Float[Tensor, "b d"], target: Tensor, reconstruction: Float[Tensor, "m b d"], training: Training
) -> Revived:
    """What AuxK costs and says, where the rule has it and something is dead."""
    stack, auxk = state.stack, state.stack.activation.revival()
    places = torch.full((stack.members, stack.features), -1, dtype=torch.int32, device=x.device)
    none = Revived(None, places, x.new_zeros(0, stack.d_in + 1), x.new_zeros(0, target.shape[1]))
    if auxk is None or state.since_fired is None:
        return none
    dead, cost, rows = state.since_fired >= auxk.dead_after, x.new_zeros(stack.members), 0
    encoders, decoders = [none.encoder], [none.decoder]
    for member in dead.any(1).nonzero()[:, 0].tolist():
        features = dead[member].nonzero()[:, 0]
        error, encoder, decoder = _of_member(state, member, features, x, target, reconstruction[member], auxk, training)
        cost[member] = auxk.weight * error
        places[member, features] = torch.arange(rows, rows + len(features), dtype=torch.int32, device=x.device)
        rows += len(features)
        encoders.append(encoder)
        decoders.append(decoder)
    return Revived(cost, places, torch.cat(encoders), torch.cat(decoders))


def _of_member(
    state: State,
    member: int,
    features: Tensor,
    x: Float[Tensor, "b d"],
    target: Tensor,
    reconstruction: Float[Tensor, "b d"],
    auxk: AuxK,
    training: Training,
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss of what is reconstructed with the help of dead features, and the gradients of their rows."""
    stack = state.stack
    rows, directions = stack.encoder[member][features], stack.decoder[member][features]
    bias = stack.encoder_bias[member][features]
    if stack.pre_bias is not None:
        bias = bias - rows @ stack.pre_bias[member]
    codes = torch.addmm(bias, x, rows.T)
    most = min(auxk.k or max(1, x.shape[1] // 2), len(features))
    operations.of(codes).keep_largest(codes, most)
    error = torch.addmm(reconstruction, codes, directions).sub_(target)
    loss, slopes = loss_of(error[None], training)
    error = (error * (auxk.weight * slopes)).view_as(error)
    in_codes = error @ directions.T
    encoder, total = (
        x.new_empty(len(features), x.shape[1] + 1),
        operations.of(x).through_relu(codes[None], in_codes[None]),
    )
    encoder[:, :-1], encoder[:, -1] = in_codes.T @ x, total[0]
    return loss[0], encoder, codes.T @ error
