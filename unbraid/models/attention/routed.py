"""Attention in which each token picks its heads: mixture-of-heads (Jin et al. 2024).

    z = softmax(q kᵀ / √e) v        what is written = W_o [gate_h · z_h]

The first `shared` heads are always on; of the others a token takes the `k` that its router likes best. With shared
heads the two kinds are weighed by 2 · softmax(W₀ x), and shared heads by shared · softmax(W₁ x), so that the
gates are 1 on average among the heads that are on. `balance` is the weight of the cost that keeps all heads in use.
All heads are reckoned and those not taken are multiplied by 0: this routes information, and saves no time.
"""

from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field

from unbraid.axes import Float, Tensor
from unbraid.models.attention.attention import Attention, Heads, Mixed, Named
from unbraid.models.attention.softmax import mix_by_softmax
from unbraid.models.layers import linear
from unbraid.models.routing import route
from unbraid.models.starting import Start, uniform


class Routed(Attention):
    kind: Literal["routed"] = "routed"
    k: int = Field(default=2, ge=1)
    shared: int = Field(default=0, ge=0)
    balance: float = Field(default=0.01, ge=0)
    hooks: ClassVar[frozenset[str]] = frozenset({"hook_pattern", "hook_gate"})

    def refuse(self, heads: int) -> None:
        if self.shared + self.k > heads:
            raise ValueError(
                f"attention.k is {self.k} beside {self.shared} shared heads, and there are {heads} heads; "
                f"accepted: together at most {heads}"
            )

    def parameters(self, rng: np.random.Generator, width: int, heads: int) -> Start:
        own = {"router": uniform(rng, width, heads - self.shared, width)}
        if self.shared:
            own["kinds"] = uniform(rng, width, 2, width)
            own["sharing"] = uniform(rng, width, self.shared, width)
        return own

    def mix(self, given: Heads) -> Mixed:
        mixed = mix_by_softmax(given)
        routed = route(given.x, given.weights["router"], self.k, given.sight.mask)
        gate = self._with_shared(given, routed.gates) if self.shared else routed.gates
        recorded: Named = {**mixed.recorded, "hook_gate": gate}
        return Mixed(mixed.z, gate, recorded, {"balance": self.balance * routed.balance})

    def _with_shared(self, given: Heads, routed: Float[Tensor, "m b t n"]) -> Float[Tensor, "m b t h"]:
        kinds = 2 * linear(given.x, given.weights["kinds"]).softmax(-1)
        shared = self.shared * linear(given.x, given.weights["sharing"]).softmax(-1)
        return torch.cat([kinds[..., :1] * shared, kinds[..., 1:] * routed], -1)
