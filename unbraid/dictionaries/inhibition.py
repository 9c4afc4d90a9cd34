"""Weaken codes that stand beside a much stronger one: what `lateral_inhibition` does, in training and in use.

    strongest_j = max of a_i over j's inhibitors i
    a_j ← relu(a_j - strength · strongest_j)        where 0 < a_j < threshold · strongest_j

`inhibit_dense` is the formula in torch, for every dtype and device. In float32 on the CPU a loop over what fired does
the same; its cost is that of looking up the inhibitors of what fired, and its gradients are

    ∂/∂a_j ← g_j unless a_j was silenced        ∂/∂a_strongest ← -strength · g_j where a_j was weakened and still fires
"""

from typing import Any

import numpy as np
import torch
from numba import prange

from unbraid.axes import Float, Int, Tensor
from unbraid.codes import Codes
from unbraid.dictionaries.kernels import compiled

EMPTY = -1
"""What a place of a list holds when nobody is in it."""
SAMPLES = 64
"""How many samples one thread takes at a time."""
NOBODY = -1


def inhibit(
    codes: Codes, inhibitors: Int[Tensor, "m f r"], strength: Tensor | float, threshold: Tensor | float
) -> Float[Tensor, "m b k"]:
    """The values of these codes, weakened."""
    values, members = codes.values, len(codes.values)
    strengths, thresholds = (torch.as_tensor(setting).to(values).expand(members) for setting in (strength, threshold))
    if values.dtype == torch.float32 and values.device.type == "cpu":
        return _Inhibit.apply(values, codes.features, inhibitors, strengths, thresholds)  # pyright: ignore[reportReturnType]
    dense = inhibit_dense(codes.to_dense(), inhibitors, strengths, thresholds)
    if codes.features is None:
        return dense
    return torch.where(values > 0, dense.gather(-1, codes.features.long()), values)


def inhibit_dense(
    values: Float[Tensor, "m b f"],
    inhibitors: Int[Tensor, "m f r"],
    strength: Float[Tensor, "m"],
    threshold: Float[Tensor, "m"],
) -> Float[Tensor, "m b f"]:
    strongest = torch.zeros_like(values)
    for inhibitor in inhibitors.unbind(-1):
        theirs = values.gather(-1, inhibitor.clamp_min(0).long()[:, None].expand_as(values))
        theirs = torch.where((inhibitor >= 0)[:, None], theirs, 0)
        strongest = torch.where(theirs > strongest, theirs, strongest)
    weak = (values > 0) & (values < threshold[:, None, None] * strongest)
    return torch.where(weak, (values - strength[:, None, None] * strongest).relu(), values)


class _Inhibit(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, values: Tensor, features: Tensor | None, inhibitors: Tensor, *per_member_fields: Tensor
    ) -> Tensor:
        weakened, by = torch.empty(values.shape), torch.empty(values.shape, dtype=torch.int32)
        listed = np.empty((0, 0, 0), np.int32) if features is None else features.int().contiguous().numpy()
        strength, threshold = (knob.contiguous().numpy() for knob in per_member_fields)
        lists = inhibitors.int().contiguous().numpy()
        weaken(listed, values.contiguous().numpy(), lists, strength, threshold, weakened.numpy(), by.numpy())
        ctx.save_for_backward(weakened, by, per_member_fields[0])
        return weakened

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        weakened, by, strength = ctx.saved_tensors
        in_values = torch.empty(weakened.shape)
        given = gradients[0].contiguous().numpy()
        carry_back(given, weakened.numpy(), by.numpy(), strength.contiguous().numpy(), in_values.numpy())
        return in_values, None, None, None, None


@compiled(parallel=True)
def weaken(features, values, inhibitors, strength, threshold, weakened, by):
    """Write the weakened values, and which slot weakened each; without features, slot j is feature j."""
    members, samples, slots = values.shape
    width = inhibitors.shape[1]
    dense = features.shape[0] == 0
    parts = (samples + SAMPLES - 1) // SAMPLES
    for part in prange(members * parts):
        m, first = part // parts, part % parts * SAMPLES
        slot_of = np.arange(width).astype(np.int32) if dense else np.full(width, NOBODY, np.int32)
        for b in range(first, min(first + SAMPLES, samples)):
            row = values[m, b]
            if not dense:
                for k in range(slots):
                    if row[k] > 0:
                        slot_of[features[m, b, k]] = k
            for k in range(slots):
                value, found, strongest = row[k], NOBODY, np.float32(0.0)
                if value > 0:
                    feature = k if dense else features[m, b, k]
                    for r in range(inhibitors.shape[2]):
                        one = inhibitors[m, feature, r]
                        slot = slot_of[one] if one >= 0 else NOBODY
                        if slot >= 0 and row[slot] > strongest:
                            found, strongest = slot, row[slot]
                    if value < threshold[m] * strongest:
                        value = max(value - strength[m] * strongest, np.float32(0.0))
                    else:
                        found = NOBODY
                weakened[m, b, k], by[m, b, k] = value, found
            if not dense:
                for k in range(slots):
                    if row[k] > 0:
                        slot_of[features[m, b, k]] = NOBODY


@compiled(parallel=True)
def carry_back(gradients, weakened, by, strength, found):
    """Gradients in the values from those in the weakened values."""
    members, samples, slots = gradients.shape
    for i in prange(members * samples):
        m, b = i // samples, i % samples
        row = found[m, b]
        row[:] = 0
        for k in range(slots):
            slot, gradient = by[m, b, k], gradients[m, b, k]
            if slot == NOBODY:
                row[k] += gradient
            elif weakened[m, b, k] > 0:
                row[k] += gradient
                row[slot] -= strength[m] * gradient
