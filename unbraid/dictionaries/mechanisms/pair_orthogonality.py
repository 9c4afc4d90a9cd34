"""Push apart the pairs of features that fire together most, a small share of all pairs chosen anew in every batch.

cost = weight · τ · mean over the top pairs of  max(score - threshold, 0)

corrected       the score is the cosine of the two features' activations
published       the entry of |FᵀF|: a sum that grows with batch and size; the top is of entries, each pair twice
decoder_cosine  |w_i · w_j|, decoder rows: what the source's idea file says

τ is a strength in every form. The top is chosen by the score; for decoder_cosine, by |FᵀF|. `share` is a share of the
f(f-1)/2 pairs.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from pydantic import Field

from unbraid.axes import Float, Tensor
from unbraid.config import PerMemberFloat
from unbraid.dictionaries.coactivation import Chosen, Kind, Pairs
from unbraid.dictionaries.mechanisms.mechanism import Forward, Mechanism, Memory, Signals
from unbraid.dictionaries.stack import Stack


class PairOrthogonality(Mechanism):
    """Push apart the pairs of features that fire together most.

    Every batch selects its own pairs. `AdaptiveTau` may set `tau`, and `DynamicPairs` the number of pairs.

    Examples
    --------
    >>> import unbraid as ub
    >>> sorted(ub.PairOrthogonality(weight=0.5).reads)
    ['pairs', 'tau']
    """

    weight: PerMemberFloat = Field(default=1.0, ge=0)
    """Weight of the cost against the squared error; higher pushes harder."""
    share: PerMemberFloat = Field(default=0.001, gt=0, le=1)
    """Share of the f(f-1)/2 pairs that is pushed apart, at least one pair; higher also reaches weaker pairs."""
    tau: PerMemberFloat = Field(default=0.1, ge=0)
    """Strength of the cost, a second factor on `weight`, which `AdaptiveTau` may set; higher pushes harder."""
    threshold: PerMemberFloat = Field(default=0.0, ge=0)
    """Score at and below which a pair costs nothing (a hinge); higher leaves more pairs alone, 0 none."""
    form: Literal["corrected", "published", "decoder_cosine"] = "corrected"
    """corrected: cosines of codes. published: sums |FᵀF|. decoder_cosine: cosines of decoder rows."""
    reads: ClassVar[frozenset[str]] = frozenset({"tau", "pairs"})
    sharding: ClassVar[Literal["own", "gathered"] | None] = "gathered"

    def needs_whole(self) -> str | None:
        return "compares decoder rows of all pairs" if self.form == "decoder_cosine" else None

    @property
    def kind(self) -> Kind:
        """What pairs are chosen by."""
        return "cosine" if self.form == "corrected" else "raw"

    def select(self, together: Pairs, counts: Sequence[int]) -> Chosen:
        """The pairs to push apart, so many places a member; as published each pair takes two."""
        return together.top(self.kind, counts, copies=2 if self.form == "published" else 1)

    def penalty(self, forward: Forward, memory: Memory, stack: Stack, signals: Signals) -> Float[Tensor, "m"]:
        together, kind = forward.together(), self.kind
        counts = together.how_many(self.share, signals.pairs)
        chosen = self.select(together, counts)
        tau, threshold = (
            torch.as_tensor(setting, device=stack.device).expand(stack.members)[chosen.member]
            for setting in (self.tau if signals.tau is None else signals.tau, self.threshold)
        )
        if self.form == "decoder_cosine":
            scores = _decoder_cosines(stack, chosen)
        else:
            scores = together.differentiable(kind, chosen, forward.codes.values)
        costs = (tau * (scores.abs() - threshold).relu()).to(forward.codes.values.dtype)
        return self.weight * chosen.sum(costs, stack.members) / torch.tensor(counts).to(costs).clamp_min(1)


def _decoder_cosines(stack: Stack, chosen: Chosen) -> Float[Tensor, "p"]:
    rows = stack.decoder_directions
    first, second = rows[chosen.member, chosen.first], rows[chosen.member, chosen.second]
    return (first * second).sum(-1)
