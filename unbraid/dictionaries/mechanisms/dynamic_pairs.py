"""Let the batch say how many pairs are worth selecting: those that stand out among the pairs there are.

T ← momentum · T + (1-momentum) · (mean + 2 std of the pairs)        pairs = max(least, how many are above T)

corrected  over the cosines of pairs that fired together at least once: in a wide dictionary nearly all never do, and
           with their zeros in it T falls to where a single sample shared is enough
published  over all f² entries of |FᵀF| without its diagonal, zeros and both halves included

The number is that of the step before, as every signal is; the first step has the reader's own share.
"""

from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field

from unbraid.axes import Tensor
from unbraid.devices import place
from unbraid.dictionaries.mechanisms.mechanism import Forward, Mechanism, Memory, Signals
from unbraid.dictionaries.stack import Stack


class DynamicPairs(Mechanism):
    """Let each batch decide how many pairs `PairOrthogonality` selects: those whose score stands out.

    Examples
    --------
    >>> import unbraid as ub
    >>> mechanisms = [ub.PairOrthogonality(), ub.DynamicPairs(least=20)]
    >>> sorted(ub.DynamicPairs.writes)
    ['pairs']
    """

    initial: float = Field(default=0.5, ge=0)
    """The threshold at the start, in cosines (corrected) or sums of products (published); higher selects fewer."""
    momentum: float = Field(default=0.9, ge=0, le=1)
    """How slowly the threshold follows new batches, from 0 (the last batch alone) to nearly 1 (very slowly)."""
    least: int = Field(default=10, ge=1)
    """Smallest number of pairs that are selected; more keeps more pairs where few stand out."""
    form: Literal["corrected", "published"] = "corrected"
    """corrected: as the source describes it. published: as the source's code does it."""
    writes: ClassVar[frozenset[str]] = frozenset({"pairs"})
    sharding: ClassVar[Literal["own", "gathered"] | None] = "own"

    def start(self, stack: Stack) -> Memory:
        threshold = place(torch.full((stack.members,), self.initial, dtype=torch.float64), stack.device)
        return {"threshold": threshold, "pairs": torch.zeros_like(threshold)}

    def signal(self, memory: Memory, stack: Stack) -> dict[str, Tensor]:
        return {"pairs": memory["pairs"]}

    def observe(self, forward: Forward, memory: Memory, stack: Stack, signals: Signals) -> Memory:
        together, kind = forward.together(), "raw" if self.form == "published" else "cosine"
        count, total, squares = together.moments(kind)
        if self.form == "published":
            count, total, squares = np.full_like(count, stack.features**2), 2 * total, 2 * squares
        mean = total / np.maximum(count, 1)
        variance = (squares - count * mean**2) / np.maximum(count - 1, 1)
        standing_out = torch.from_numpy(mean + 2 * np.sqrt(np.maximum(variance, 0)))
        threshold = self.momentum * memory["threshold"] + (1 - self.momentum) * place(standing_out, stack.device)
        pairs = place(torch.from_numpy(together.above(kind, threshold.tolist())), stack.device).clamp_min(self.least)
        return {"threshold": threshold, "pairs": pairs}
