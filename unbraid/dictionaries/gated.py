"""Gated (Rajamanoharan et al. 2024): one half of the encoder decides whether a feature fires, the other how strongly.

    gate = Wx + encoder_bias        magnitude = relu(exp(gain) · Wx + magnitude_bias)        code = H(gate) · magnitude

Sparsity counts Σ relu(gate), so it does not shrink magnitudes. The step has no slope in the gate; the gate learns from
relu(gate), from which the decoder, held still, must reconstruct x as well: the cost `auxiliary`.
"""

from typing import Literal

import torch

from unbraid.axes import Float, Tensor
from unbraid.codes import Codes
from unbraid.dictionaries.activation import Activation, Fired, Named, Weights


class Gated(Activation):
    kind: Literal["gated"] = "gated"

    def parameters(self, members: int, features: int) -> Named:
        return {name: torch.zeros(members, features) for name in ("gain", "magnitude_bias")}

    def codes(self, pre: Float[Tensor, "m b f"], weights: Weights) -> Codes:
        return Codes.dense(torch.where(pre > 0, magnitudes(pre, weights), 0))

    def fire(self, pre: Float[Tensor, "m b f"], weights: Weights) -> Fired:
        gate = Codes.dense(pre.relu())
        return Fired(self.codes(pre, weights), gate.l1(), again=gate)


def magnitudes(pre: Float[Tensor, "m b f"], weights: Weights) -> Float[Tensor, "m b f"]:
    """relu(exp(gain) · Wx + magnitude_bias), from the one product Wx that gates and magnitudes share."""
    gain = weights["gain"].exp()
    bias = weights["magnitude_bias"] - gain * weights["encoder_bias"]
    return (gain[:, None] * pre + bias[:, None]).relu()
