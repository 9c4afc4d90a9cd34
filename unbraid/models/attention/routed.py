"""Attention in which each token picks its heads: mixture-of-heads (Jin et al. 2024).

    z = softmax(q kᵀ / √e) v        what is written = W_o [gate_h · z_h]

The first `shared` heads are always on; of the others a token takes the `k` that its router likes best. With shared
heads the two kinds are weighed by 2 · softmax(W₀ x), and shared heads by shared · softmax(W₁ x), so that the
gates are 1 on average among the heads that are on. `balance` is the weight of the cost that keeps all heads in use.
All heads are computed and those not taken are multiplied by 0: this routes information, and saves no time.
"""

from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field

from unbraid.axes import Float, Tensor
from unbraid.models.attention.attention import Attention, HeadInputs, HeadOutputs, Named, mix_by_softmax
from unbraid.models.layers import InitialWeights, init_uniform, linear, route


class Routed(Attention):
    """Mixture of heads (Jin et al. 2024): each token uses the k heads that its router scores highest, and shared ones.

    All heads are computed and those not chosen are multiplied by 0: this routes information and saves no time.

    Examples
    --------
    >>> import unbraid as ub
    >>> ub.Transformer(heads=4, attention=ub.Routed(k=2, shared=1)).head_labels[0]
    'routed'
    """

    kind: Literal["routed"] = "routed"
    """Its name in a configuration."""
    k: int = Field(default=2, ge=1)
    """Heads that each token chooses, besides shared ones; more route less."""
    shared: int = Field(default=0, ge=0)
    """Heads that every token uses; k + shared is at most the number of heads. More leave fewer to choose from."""
    balance: float = Field(default=0.01, ge=0)
    """Weight of the load-balance loss; raising it evens out how often heads are chosen."""
    hooks: ClassVar[frozenset[str]] = frozenset({"hook_pattern", "hook_gate"})

    def validate_heads(self, heads: int) -> None:
        if self.shared + self.k > heads:
            raise ValueError(
                f"attention.k is {self.k} beside {self.shared} shared heads, and there are {heads} heads; "
                f"accepted: together at most {heads}"
            )

    def parameters(self, rng: np.random.Generator, width: int, heads: int) -> InitialWeights:
        weights = {"router": init_uniform(rng, width, heads - self.shared, width)}
        if self.shared:
            weights["kinds"] = init_uniform(rng, width, 2, width)
            weights["sharing"] = init_uniform(rng, width, self.shared, width)
        return weights

    def mix(self, inputs: HeadInputs) -> HeadOutputs:
        output = mix_by_softmax(inputs)
        routed = route(inputs.x, inputs.weights["router"], self.k, inputs.mask.token_mask)
        gate = self._with_shared(inputs, routed.gates) if self.shared else routed.gates
        recorded: Named = {**output.recorded, "hook_gate": gate}
        return HeadOutputs(output.z, gate, recorded, {"balance": self.balance * routed.balance})

    def _with_shared(self, inputs: HeadInputs, routed: Float[Tensor, "m b t n"]) -> Float[Tensor, "m b t h"]:
        kinds = 2 * linear(inputs.x, inputs.weights["kinds"]).softmax(-1)
        shared = self.shared * linear(inputs.x, inputs.weights["sharing"]).softmax(-1)
        return torch.cat([kinds[..., :1] * shared, kinds[..., 1:] * routed], -1)
