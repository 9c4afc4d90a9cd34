"""Make codes sparse by the L1 cost, or by one that counts more nearly how many fire.

weight · mean over samples of  Σ_f s(a_f)          (form per_sample)
the same, divided by the number of features        (form published, of the superposition study)

a_f = |code_f|, or |code_f| · Σ_sites ‖w_f‖ of the decoder row    (weigh_by decoder_norm; of a unit row, its shares)
s(a) = a (l1)      tanh(sharpness · a) (tanh)      a^p, where `p_annealing` is on

An activation may have something else than Σ|code| counted: jump-relu how many fire, gated Σ relu(gate).

With `target_l0` a factor on the weight is steered until so many features fire, whatever the activation counts:

factor ← clip(factor · (1 + rate · clip(l0 / target_l0 - 1, -1, 1)), 1/1000, 1000)        l0: a mean with momentum
"""

from typing import ClassVar, Literal

import torch
from pydantic import Field

from unbraid.axes import Float, Tensor
from unbraid.codes import Codes
from unbraid.config import PerMemberFloat
from unbraid.dictionaries.mechanisms.mechanism import Forward, Mechanism, Memory, Signals
from unbraid.dictionaries.stack import Stack
from unbraid.errors import UserError

STEERING_RATE, STEERING_MOMENTUM, LARGEST_FACTOR = 0.02, 0.9, 1000.0
"""Of `target_l0`: largest relative change in a step, how slowly the measured L0 follows, and the factor's bound."""


class Sparsity(Mechanism):
    """The sparsity cost, an L1 penalty on codes unless the activation rule counts something else.

    It is weight · mean over samples of Σ|code|; of the number of features that fire, for `JumpRelu`; of Σ relu(gate),
    for `Gated`.

    Examples
    --------
    >>> import unbraid as ub
    >>> ub.Sparsity(weight=0.15).form
    'per_sample'

    A crosscoder, whose cost weighs each code by its decoder norms, one a site; and as many features as are wanted:

    >>> mechanism = ub.Sparsity(weight=0.15, weigh_by="decoder_norm", target_l0=12.0)
    """

    weight: PerMemberFloat = Field(default=0.1, ge=0)
    """Weight of the cost against the squared error summed over dimensions; higher is sparser and shrinks codes more."""
    form: Literal["per_sample", "published"] = "per_sample"
    """per_sample: Σ|code| of a sample. published: divided by the number of features (superposition study)."""
    weigh_by: Literal["code", "decoder_norm"] = "code"
    """decoder_norm: each code times the length of its decoder row; of a crosscoder, the sum of its lengths by site."""
    cost: Literal["l1", "tanh"] = "l1"
    """l1: a code costs its size. tanh: tanh(sharpness · size), so that large codes are hardly shrunk."""
    sharpness: float = Field(default=4.0, gt=0)
    """Of the tanh: higher is nearer to counting what fires, and gives large codes less gradient."""
    target_l0: PerMemberFloat = Field(default=0.0, ge=0)
    """How many features should fire in a sample; the weight is steered towards it. 0: the weight stays as it is."""
    reads: ClassVar[frozenset[str]] = frozenset({"l1", "l0_factor", "power", "power_scale"})
    writes: ClassVar[frozenset[str]] = frozenset({"l0_factor"})
    sharding: ClassVar[Literal["own", "gathered"] | None] = "own"

    def needs_whole(self) -> str | None:
        return 'is divided by the number of all features (form = "published")' if self.form == "published" else None

    def check_stack(self, name: str, stack: Stack) -> None:
        plain = self.weigh_by == "code" and self.cost == "l1"
        if not plain and not stack.activation.counts_codes:
            asked = f'weigh_by = "{self.weigh_by}"' if self.weigh_by != "code" else f'cost = "{self.cost}"'
            raise UserError(
                f"mechanisms.{name} was given {asked}, and the activation has something else than codes counted; "
                "accepted: an activation of kind relu, topk or batchtopk"
            )
        if stack.decoder_norm == "free" and self.weigh_by == "code" and stack.activation.counts_codes:
            raise UserError(
                f'mechanisms.{name}.weigh_by is "code" and dictionary.decoder_norm "free", so that codes shrink and '
                'rows grow for ever; accepted: weigh_by = "decoder_norm"'
            )

    def start(self, stack: Stack) -> Memory:
        if not torch.as_tensor(self.target_l0).any():
            return {}
        zero = stack.encoder.new_zeros(stack.members)
        return {"factor": zero + 1, "l0": zero, "steps": zero.clone()}

    def signal(self, memory: Memory, stack: Stack) -> dict[str, Tensor]:
        return {"l0_factor": memory.get("factor", stack.encoder.new_ones(stack.members))}

    def penalty(self, forward: Forward, memory: Memory, stack: Stack, signals: Signals) -> Float[Tensor, "m"]:
        cost = self.weight * signals.l1 * signals.l0_factor * self._counted(forward, stack, signals).mean(-1)
        return cost / stack.features if self.form == "published" else cost

    def observe(self, forward: Forward, memory: Memory, stack: Stack, signals: Signals) -> Memory:
        if not memory:
            return memory
        now = forward.codes.l0().to(memory["l0"].dtype).mean(-1)
        steps, l0 = memory["steps"] + 1, memory["l0"].lerp(now, 1 - STEERING_MOMENTUM)
        target = torch.as_tensor(self.target_l0, dtype=l0.dtype, device=l0.device)
        error = (l0 / (1 - STEERING_MOMENTUM**steps) / target.clamp_min(1e-12) - 1).clamp(-1, 1)
        moved = (memory["factor"] * (1 + STEERING_RATE * error)).clamp(1 / LARGEST_FACTOR, LARGEST_FACTOR)
        return {"factor": torch.where(target > 0, moved, memory["factor"]), "l0": l0, "steps": steps}

    def logged(self, memory: Memory) -> dict[str, Tensor]:
        return {"factor": memory["factor"]} if memory else {}

    def _counted(self, forward: Forward, stack: Stack, signals: Signals) -> Float[Tensor, "m b"]:
        if self.weigh_by == "code" and self.cost == "l1" and signals.power is None:
            return forward.counted()
        sizes = forward.codes.values.abs()
        if self.weigh_by == "decoder_norm":
            sizes = sizes * in_slots(decoder_norms(stack), forward.codes)
        if signals.power is not None:
            return powers(sizes, signals.power).sum(-1) * signals.power_scale[:, None]
        return (torch.tanh(self.sharpness * sizes) if self.cost == "tanh" else sizes).sum(-1)


def decoder_norms(stack: Stack) -> Float[Tensor, "m f"]:
    """Σ_sites ‖w‖ of each decoder row: as a share of the whole row, where training brings that back to length one.

    The share has no gradient along the row, which would only be undone, and until then disturb Adam.
    """
    norms = stack.site_norms().sum(-1)
    return norms if stack.decoder_norm == "free" else norms / stack.decoder.norm(dim=-1).clamp_min(1e-12)


def in_slots(by_feature: Float[Tensor, "m f"], codes: Codes) -> Float[Tensor, "m _ k"]:
    """A number of each feature, in the slots of codes."""
    if codes.features is None:
        return by_feature[:, None]
    features = codes.features.long()
    return by_feature.gather(1, features.flatten(1)).view(features.shape)


def powers(sizes: Float[Tensor, "m b k"], power: Float[Tensor, "m"]) -> Float[Tensor, "m b k"]:
    """size^p, with value and gradient 0 where nothing fired."""
    fired = sizes > 0
    return torch.where(fired, torch.where(fired, sizes, 1) ** power[:, None, None], 0)
