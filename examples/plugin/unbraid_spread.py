"""Turn every feature away from the mean direction of the others: weight · mean over features of cos(w_i, w̄)²."""

from pydantic import Field
from torch.nn.functional import cosine_similarity

import unbraid as ub
from unbraid.config import PerMemberFloat


class DecoderSpread(ub.Mechanism):
    """Penalise what all decoder rows have in common."""

    weight: PerMemberFloat = Field(default=0.5, ge=0)
    """The weight of the cost; 0 is off. Per member: a sweep over it trains as one stack."""

    def penalty(self, forward, memory, stack, signals):
        rows = stack.directions  # m f d
        mean = rows.mean(1, keepdim=True)
        return self.weight * cosine_similarity(rows, mean, dim=-1).square().mean(-1)
