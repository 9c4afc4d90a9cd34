"""AuxK where features are shared out among processes; the mathematics are those of `revival.py`.

Each process makes the codes of its own dead features. Where more are dead than may fire, candidates are exchanged as
top-k does (`selection.py`). What dead features reconstruct is summed over shards; the rest is own.
"""

from dataclasses import dataclass

import numpy as np
import torch

from unbraid.axes import Float, Tensor
from unbraid.dictionaries.auxk import AuxK
from unbraid.dictionaries.training import kernels
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.gradients import loss_of
from unbraid.dictionaries.training.selection import keep_dense
from unbraid.dictionaries.training.step import State
from unbraid.mesh import Mesh


@dataclass(frozen=True)
class OwnRevived:
    """What all dead features cost, and the gradients of own ones: a row each, where `places[m, f]` says, or -1."""

    cost: Float[Tensor, "m"] | None
    places: np.ndarray
    encoder: np.ndarray
    """Behind each row stands its bias' gradient."""
    decoder: np.ndarray

    @property
    def in_bias(self) -> Float[Tensor, "m f"]:
        return torch.from_numpy(np.append(self.encoder[:, -1], np.float32(0))[self.places])


def revive_own(
    state: State, x: Float[Tensor, "b d"], made: Float[Tensor, "m b o"], target: Tensor, training: Training, mesh: Mesh
) -> OwnRevived:
    """What AuxK costs, where the rule has it, and its gradients in own rows; `made` are the reconstructions."""
    stack, auxk = state.stack, state.stack.activation.revival()
    places = np.full((stack.members, stack.features), -1, np.int32)
    encoders, decoders = [np.zeros((0, stack.d_in + 1), np.float32)], [np.zeros((0, stack.d_out), np.float32)]
    if auxk is None or state.since_fired is None:
        return OwnRevived(None, places, encoders[0], decoders[0])
    dead, cost, rows = state.since_fired >= auxk.dead_after, torch.zeros(stack.members), 0
    everywhere = mesh.gather(dead.sum(1), "shards", "dead")
    for member in everywhere.any(0).nonzero()[:, 0].tolist():
        features = dead[member].nonzero()[:, 0]
        codes = _codes(state, member, features, x, auxk, everywhere[:, member], mesh)
        directions = stack.decoder[member][features]
        error = mesh.sum(codes @ directions, "shards", "revival") + made[member] - target
        loss, slopes = loss_of(error[None], training)
        error = (error * (auxk.weight * slopes)).view_as(error)
        in_codes, total = error @ directions.T, torch.empty(1, len(features))
        kernels.through_relu(codes.numpy()[None], in_codes.numpy()[None], total.numpy())
        cost[member] = auxk.weight * loss[0]
        places[member, features.numpy()] = np.arange(rows, rows + len(features))
        rows += len(features)
        encoders.append(torch.cat([in_codes.T @ x, total.T], 1).numpy())
        decoders.append((codes.T @ error).numpy())
    return OwnRevived(cost, places, np.concatenate(encoders), np.concatenate(decoders))


def _codes(
    state: State, member: int, features: Tensor, x: Float[Tensor, "b d"], auxk: AuxK, everywhere: Tensor, mesh: Mesh
) -> Float[Tensor, "b n"]:
    """The codes of own dead features, `everywhere` being how many are dead in each shard."""
    stack = state.stack
    rows, bias = stack.encoder[member][features], stack.shifted_bias()[member][features]
    codes = torch.addmm(bias, x, rows.T)
    most = min(auxk.k or max(1, x.shape[1] // 2), int(everywhere.sum()))
    kernels.keep_largest(codes.numpy(), codes.numpy().view(np.int32), most)
    if most < everywhere.sum():
        keep_dense(codes, most, min(most, int(everywhere.max())), mesh)
    return codes
