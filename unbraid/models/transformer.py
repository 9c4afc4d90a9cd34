"""m pre-norm transformers of one configuration, on one page.

    x ← embed(tokens) + positions
    x ← x + W_o [z of all heads](norm x)        x ← x + feed_forward(norm x)        for each layer
    answer = read(norm x)            at the question's last token, or from the mean over tokens

With sinusoidal positions the embedding is multiplied by √d, as in Vaswani et al. (2017). Queries, keys, values and the
heads' output have no bias. The weights by name:

    embed  m v d        positions  m t d (if learned)       final_norm.{weight,bias}  m d       answer.{weight,bias}
    blocks.0.norm_1, norm_2          m d                    blocks.0.attn.qkv  m 3d d: queries, keys, values, by head
    blocks.0.mlp.{in,out}.{weight,bias}                     blocks.0.attn.out  m d d

Each part begins from its own random stream, so that one part more does not change how the others begin. With
`init = "scaled_attention"` values and the heads' output are twice as large, token embeddings a fifth, and the weights
by which the hidden layer writes a tenth. Then what a head reads is heard beside the word that stands there, and a later
layer can attend to it: else a model sits for a thousand steps where it knows words alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch

from unbraid.axes import Float, Int, Tensor
from unbraid.config.plugins import returned
from unbraid.models.attention import AttentionMask, HeadInputs
from unbraid.models.attention.attention import Drop, Named, Weights
from unbraid.models.config import Transformer
from unbraid.models.feed_forward import FeedForwardInputs
from unbraid.models.layers import (
    Dropout,
    InitialWeights,
    embed_tokens,
    init_norm,
    init_uniform,
    layer_norm,
    linear,
    rotate,
    sinusoidal_positions,
)
from unbraid.models.models import ForwardOutput, Models, Recorder
from unbraid.randomness import stream

ATTENTION_SCALE, EMBEDDING_SCALE, HIDDEN_SCALE = 2.0, 0.2, 0.1
"""What `scaled_attention` multiplies: values and the heads' output, token embeddings, the hidden layer's output."""
POSITION_DEVIATION = 0.02


@dataclass(frozen=True)
class Transformers(Models):
    """Pre-norm transformers with softmax, routed or Hopfield attention."""

    settings: Transformer

    def run(
        self, tokens: Int[Tensor, "b t"], recorder: Recorder, head_masks: Mapping[int, Tensor], step: int | None
    ) -> ForwardOutput:
        mask = self.attention_mask(tokens, self.settings.positions == "alibi")
        dropout = None
        if step is not None and self.settings.dropout:
            dropout = Dropout(self.settings.dropout, self.seeds, step)
        context = ForwardContext(self.settings, self.weights, mask, recorder, head_masks, dropout)
        x = self._embed(tokens)
        x = x if dropout is None else dropout.apply("", "embed", x)
        for layer in range(self.settings.layers):
            x = forward_layer(layer, x, context)
        return ForwardOutput(context.norm("final_norm", x), mask, recorder.kept, context.costs)

    @property
    def words(self) -> int:
        return self.weights["embed"].shape[1]

    def _embed(self, tokens: Int[Tensor, "b t"]) -> Float[Tensor, "m b t d"]:
        x, length = embed_tokens(self.weights["embed"], tokens), tokens.shape[1]
        match self.settings.positions:
            case "learned":
                return x + self.weights["positions"][:, None, :length]
            case "sinusoidal":
                width = self.settings.d_model
                return x * width**0.5 + sinusoidal_positions(self.length, width)[:length].to(x)
            case "rotary" | "alibi":
                return x


@dataclass(frozen=True)
class ForwardContext:
    """What goes along with a batch from layer to layer."""

    settings: Transformer
    weights: Weights
    mask: AttentionMask
    recorder: Recorder
    head_masks: Mapping[int, Tensor] = field(default_factory=dict)
    """Of a layer: 0 for each ablated head, else 1."""
    dropout: Dropout | None = None
    costs: Named = field(default_factory=dict)

    def weights_under(self, prefix: str) -> Weights:
        """The weights below a prefix, by their names without it."""
        return {name.removeprefix(prefix): w for name, w in self.weights.items() if name.startswith(prefix)}

    def drop(self, layer: str) -> Drop | None:
        return None if self.dropout is None else partial(self.dropout.apply, layer)

    def norm(self, name: str, x: Float[Tensor, "m b t d"]) -> Float[Tensor, "m b t d"]:
        return layer_norm(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def keep(self, prefix: str, recorded: Named, costs: Named) -> None:
        for name, tensor in recorded.items():
            self.recorder.keep(prefix + name, tensor)
        self.costs.update({prefix + name: cost for name, cost in costs.items()})


def forward_layer(layer: int, x: Float[Tensor, "m b t d"], context: ForwardContext) -> Float[Tensor, "m b t d"]:
    """Attention, then the feed-forward, each added to the residual stream."""
    block, keep = f"blocks.{layer}.", context.recorder.keep
    x = keep(f"{block}hook_resid_pre", x)
    out = _attend(layer, context.norm(f"{block}norm_1", x), context)
    x = keep(f"{block}hook_resid_mid", x + keep(f"{block}hook_attn_out", out))
    out = _feed_forward(f"{block}mlp.", context.norm(f"{block}norm_2", x), context)
    return keep(f"{block}hook_resid_post", x + keep(f"{block}hook_mlp_out", out))


def _attend(layer: int, x: Float[Tensor, "m b t d"], context: ForwardContext) -> Float[Tensor, "m b t d"]:
    """What the heads write together."""
    prefix, settings = f"blocks.{layer}.attn.", context.settings
    weights = context.weights_under(prefix)
    q, k, v = _split(linear(x, weights["qkv"]), settings.heads)
    if settings.positions == "rotary":
        q, k = rotate(q), rotate(k)
    q, k, v = (context.recorder.keep(f"{prefix}hook_{name}", x) for name, x in (("q", q), ("k", k), ("v", v)))
    asked = context.recorder.under(prefix)
    output = settings.attention.mix(HeadInputs(x, q, k, v, context.mask, weights, asked, context.drop(prefix)))
    if output.z.shape != q.shape:
        shapes = f"z of shape {tuple(output.z.shape)}; accepted: that of the queries, {tuple(q.shape)}"
        raise returned(settings.attention.mix, shapes)
    z = output.z
    if (head_mask := context.head_masks.get(layer)) is not None:
        z = z * head_mask.to(z)[:, None, None]
    z = context.recorder.keep(f"{prefix}hook_z", z)
    context.keep(prefix, output.recorded, output.costs)
    gated = z if output.gate is None else z * output.gate.mT[..., None]
    if context.recorder.wants(f"{prefix}hook_result"):
        written = context.recorder.keep(f"{prefix}hook_result", _written(gated, weights["out"]))
        if f"{prefix}hook_result" in context.recorder.edits:
            return written.sum(2)
    return linear(gated.transpose(2, 3).flatten(3), weights["out"])


def _split(qkv: Float[Tensor, "m b t w"], heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, each `m b h t e`, out of one product."""
    q, k, v = qkv.unflatten(-1, (3, heads, -1)).permute(3, 0, 1, 4, 2, 5).unbind(0)
    return q, k, v


def _written(z: Float[Tensor, "m b h t e"], out: Float[Tensor, "m d w"]) -> Float[Tensor, "m b h t d"]:
    """What each head alone adds to the residual stream."""
    return torch.einsum("mbhte,mdhe->mbhtd", z, out.unflatten(-1, (z.shape[2], -1)))


def _feed_forward(prefix: str, x: Float[Tensor, "m b t d"], context: ForwardContext) -> Float[Tensor, "m b t d"]:
    weights, asked = context.weights_under(prefix), context.recorder.under(prefix)
    inputs = FeedForwardInputs(x, context.mask.token_mask, weights, asked, context.drop(prefix))
    output = context.settings.feed_forward.forward(inputs)
    context.keep(prefix, output.recorded, output.costs)
    return output.out


def init_transformer(settings: Transformer, vocabulary: int, length: int, classes: int, seed: int) -> InitialWeights:
    """All weights of one member before training."""
    width = settings.d_model

    def rng(name: str) -> np.random.Generator:
        return stream(seed, "weights", name)

    embedding = rng("embed").standard_normal((vocabulary, width), np.float32)
    weights = {"embed": EMBEDDING_SCALE * embedding if settings.init == "scaled_attention" else embedding}
    if settings.positions == "learned":
        rows = rng("positions").standard_normal((length, width), np.float32)
        weights["positions"] = POSITION_DEVIATION * rows
    for layer in range(settings.layers):
        block = f"blocks.{layer}."
        parts = {
            "attn.": _init_attention(rng(f"{block}attn"), settings),
            "mlp.": _init_feed_forward(rng(f"{block}mlp"), settings),
            "": init_norm("norm_1", width) | init_norm("norm_2", width),
        }
        weights |= {f"{block}{part}{name}": tensor for part, named in parts.items() for name, tensor in named.items()}
    draws = rng("answer")
    answer = {
        "answer.weight": init_uniform(draws, width, classes, width),
        "answer.bias": init_uniform(draws, width, classes),
    }
    return weights | init_norm("final_norm", width) | answer


def _init_attention(rng: np.random.Generator, settings: Transformer) -> InitialWeights:
    width = settings.d_model
    qkv, out = init_uniform(rng, width, 3 * width, width), init_uniform(rng, width, width, width)
    if settings.init == "scaled_attention":
        qkv[2 * width :] *= ATTENTION_SCALE
        out *= ATTENTION_SCALE
    return {"qkv": qkv, "out": out} | settings.attention.parameters(rng, width, settings.heads)


def _init_feed_forward(rng: np.random.Generator, settings: Transformer) -> InitialWeights:
    weights = settings.feed_forward.parameters(rng, settings.d_model, settings.d_ff)
    if settings.init == "scaled_attention":
        weights["out.weight"] *= HIDDEN_SCALE
    return weights
