"""Ordinary attention: each head reads the values of all tokens in sight, by the softmax of their scores.

    pattern = softmax(q kᵀ / √e)        z = pattern v

When no pattern is asked for, torch's `scaled_dot_product_attention` does both without ever holding the pattern.
"""

from typing import Literal

from torch.nn.functional import scaled_dot_product_attention

from unbraid.axes import Float, Tensor
from unbraid.models.attention.attention import Attention, Heads, Mixed, Sight, softmax_pattern


class Softmax(Attention):
    kind: Literal["softmax"] = "softmax"

    def mix(self, given: Heads) -> Mixed:
        return mix_by_softmax(given)


def mix_by_softmax(given: Heads) -> Mixed:
    """As torch does it, unless somebody wants the pattern or drops from it."""
    if given.drop is None and "hook_pattern" not in given.asked:
        return Mixed(without_pattern(given.q, given.k, given.v, given.sight))
    scores = given.q @ given.k.mT * given.q.shape[-1] ** -0.5
    pattern = softmax_pattern(scores, given.sight.allowed())
    if given.drop is not None:
        pattern = given.drop("pattern", pattern)
    return Mixed(pattern @ given.v, recorded={"hook_pattern": pattern})


def without_pattern(
    q: Float[Tensor, "m b h t e"], k: Float[Tensor, "m b h s e"], v: Float[Tensor, "m b h s e"], sight: Sight
) -> Float[Tensor, "m b h t e"]:
    """Members and stories are one axis to torch."""
    members = len(q)
    q, k, v = (part.flatten(0, 1) for part in (q, k, v))
    if sight.causal:
        z = scaled_dot_product_attention(q, k, v, is_causal=True)
    else:
        mask = sight.allowed().repeat(members, 1, 1, 1)
        z = scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return z.unflatten(0, (members, -1))
