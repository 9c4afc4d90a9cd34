"""Ordinary attention: each head reads the values of all tokens in sight, by the softmax of their scores.

    pattern = softmax(q kᵀ / √e + nearness)        z = pattern v

When no pattern is asked for, torch's `scaled_dot_product_attention` does both without ever holding the pattern.
"""

from typing import Literal

from torch.nn.functional import scaled_dot_product_attention

from unbraid.axes import Float, Tensor
from unbraid.models.attention.attention import Attention, Heads, Mixed, Sight


class Softmax(Attention):
    kind: Literal["softmax"] = "softmax"

    def mix(self, given: Heads) -> Mixed:
        return mix_by_softmax(given)


def mix_by_softmax(given: Heads) -> Mixed:
    """As torch does it, unless somebody wants the pattern or drops from it."""
    if given.drop is None and "hook_pattern" not in given.asked:
        return Mixed(without_pattern(given.q, given.k, given.v, given.sight))
    scores = given.q @ given.k.mT * given.q.shape[-1] ** -0.5
    pattern = (scores + given.sight.added().to(scores.dtype)).softmax(-1)
    if given.drop is not None:
        pattern = given.drop("pattern", pattern)
    return Mixed(pattern @ given.v, recorded={"hook_pattern": pattern})


def without_pattern(
    q: Float[Tensor, "m b h t e"],
    k: Float[Tensor, "m b h s e"],
    v: Float[Tensor, "m b h s e"],
    sight: Sight,
    added: Float[Tensor, "#b #h #t s"] | None = None,
    scale: float | None = None,
) -> Float[Tensor, "m b h t e"]:
    """The same by torch, to whom members and stories are one axis; `added` where there are keys beside the tokens."""
    members = len(q)
    q, k, v = (part.flatten(0, 1) for part in (q, k, v))
    if added is None and sight.causal and sight.nearness is None:
        z = scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
    else:
        added = sight.added() if added is None else added
        added = added if len(added) == 1 else added.repeat(members, 1, 1, 1)
        z = scaled_dot_product_attention(q, k, v, attn_mask=added.to(q.dtype), scale=scale)
    return z.unflatten(0, (members, -1))
