"""One layer of a transformer.

x ← x + W_o [z of all heads](norm x)        x ← x + feed_forward(norm x)
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import torch

from unbraid.axes import Float, Tensor
from unbraid.models.attention import Heads, Sight
from unbraid.models.attention.attention import Drop, Named, Weights
from unbraid.models.dropout import Dropout
from unbraid.models.feed_forward import Tokens
from unbraid.models.layers import layer_norm, linear
from unbraid.models.positions import turn
from unbraid.models.recording import Recorder
from unbraid.models.settings import Transformer


@dataclass(frozen=True)
class Passing:
    """What goes along with a batch from layer to layer."""

    settings: Transformer
    weights: Weights
    sight: Sight
    recorder: Recorder
    silenced: Mapping[int, Tensor] = field(default_factory=dict)
    """Of a layer: 0 for each head that is silenced, else 1."""
    dropout: Dropout | None = None
    costs: Named = field(default_factory=dict)

    def inside(self, place: str) -> Weights:
        """The weights within a place, by their names there."""
        return {name.removeprefix(place): w for name, w in self.weights.items() if name.startswith(place)}

    def drop(self, place: str) -> Drop | None:
        return None if self.dropout is None else partial(self.dropout.at, place)

    def norm(self, place: str, x: Float[Tensor, "m b t d"]) -> Float[Tensor, "m b t d"]:
        return layer_norm(x, self.weights[f"{place}.weight"], self.weights[f"{place}.bias"])

    def keep(self, place: str, recorded: Named, costs: Named) -> None:
        for name, tensor in recorded.items():
            self.recorder.keep(place + name, tensor)
        self.costs.update({place + name: cost for name, cost in costs.items()})


def pass_layer(layer: int, x: Float[Tensor, "m b t d"], passing: Passing) -> Float[Tensor, "m b t d"]:
    place, keep = f"blocks.{layer}.", passing.recorder.keep
    keep(f"{place}hook_resid_pre", x)
    out = _attend(layer, passing.norm(f"{place}norm_1", x), passing)
    keep(f"{place}hook_attn_out", out)
    x = x + out
    keep(f"{place}hook_resid_mid", x)
    out = _feed(f"{place}mlp.", passing.norm(f"{place}norm_2", x), passing)
    keep(f"{place}hook_mlp_out", out)
    x = x + out
    keep(f"{place}hook_resid_post", x)
    return x


def _attend(layer: int, x: Float[Tensor, "m b t d"], passing: Passing) -> Float[Tensor, "m b t d"]:
    """What the heads write together."""
    place, settings = f"blocks.{layer}.attn.", passing.settings
    own = passing.inside(place)
    q, k, v = _split(linear(x, own["qkv"]), settings.heads)
    if settings.positions == "rotary":
        q, k = turn(q), turn(k)
    asked = passing.recorder.inside(place)
    mixed = settings.attention.mix(Heads(x, q, k, v, passing.sight, own, asked, passing.drop(place)))
    z = mixed.z
    if (audible := passing.silenced.get(layer)) is not None:
        z = z * audible.to(z.dtype)[:, None, None]
    passing.keep(place, {**mixed.recorded, "hook_q": q, "hook_k": k, "hook_v": v, "hook_z": z}, mixed.costs)
    taken = z if mixed.gate is None else z * mixed.gate.mT[..., None]
    if "hook_result" in asked:
        passing.recorder.keep(f"{place}hook_result", _written(taken, own["out"]))
    return linear(taken.transpose(2, 3).flatten(3), own["out"])


def _split(qkv: Float[Tensor, "m b t w"], heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, each `m b h t e`, out of one product."""
    q, k, v = qkv.unflatten(-1, (3, heads, -1)).permute(3, 0, 1, 4, 2, 5).unbind(0)
    return q, k, v


def _written(z: Float[Tensor, "m b h t e"], out: Float[Tensor, "m d w"]) -> Float[Tensor, "m b h t d"]:
    """What each head alone adds to the residual stream."""
    return torch.einsum("mbhte,mdhe->mbhtd", z, out.unflatten(-1, (z.shape[2], -1)))


def _feed(place: str, x: Float[Tensor, "m b t d"], passing: Passing) -> Float[Tensor, "m b t d"]:
    given = Tokens(x, passing.sight.mask, passing.inside(place), passing.recorder.inside(place), passing.drop(place))
    fed = passing.settings.feed_forward.feed(given)
    passing.keep(place, fed.recorded, fed.costs)
    return fed.out
