"""Every weight of a model by name, as it starts from the member's own seed.

    embed  m v d        positions  m t d (if learned)       final_norm.{weight,bias}  m d       answer.{weight,bias}
    blocks.0.norm_1, norm_2          m d                    blocks.0.attn.qkv  m 3d d: queries, keys, values, by head
    blocks.0.mlp.{in,out}.{weight,bias}                     blocks.0.attn.out  m d d

Each part has its own stream, so that one part more does not change how the others start.
"""

import numpy as np

from unbraid.models.settings import Transformer
from unbraid.models.starting import CARRIED, HIDDEN, WORDS, Start, norm, uniform
from unbraid.randomness import stream

POSITION_DEVIATION = 0.02


def start_of(settings: Transformer, vocabulary: int, length: int, classes: int, seed: int) -> Start:
    """All weights of one member."""
    width = settings.d_model

    def rng(place: str) -> np.random.Generator:
        return stream(seed, "weights", place)

    words = rng("embed").standard_normal((vocabulary, width), np.float32)
    start = {"embed": WORDS * words if settings.start == "carrying" else words}
    if settings.positions == "learned":
        rows = rng("positions").standard_normal((length, width), np.float32)
        start["positions"] = POSITION_DEVIATION * rows
    for layer in range(settings.layers):
        place = f"blocks.{layer}."
        parts = {
            "attn.": _attention(rng(f"{place}attn"), settings),
            "mlp.": _hidden(rng(f"{place}mlp"), settings),
            "": norm("norm_1", width) | norm("norm_2", width),
        }
        start |= {f"{place}{part}{name}": tensor for part, named in parts.items() for name, tensor in named.items()}
    own = rng("answer")
    answer = {"answer.weight": uniform(own, width, classes, width), "answer.bias": uniform(own, width, classes)}
    return start | norm("final_norm", width) | answer


def _attention(rng: np.random.Generator, settings: Transformer) -> Start:
    width = settings.d_model
    qkv, out = uniform(rng, width, 3 * width, width), uniform(rng, width, width, width)
    if settings.start == "carrying":
        qkv[2 * width :] *= CARRIED
        out *= CARRIED
    return {"qkv": qkv, "out": out} | settings.attention.parameters(rng, width, settings.heads)


def _hidden(rng: np.random.Generator, settings: Transformer) -> Start:
    start = settings.feed_forward.parameters(rng, settings.d_model, settings.d_ff)
    if settings.start == "carrying":
        start["out.weight"] *= HIDDEN
    return start
