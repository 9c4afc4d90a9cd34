"""Let the first features reconstruct alone, at several widths: what is general comes first (Bussmann et al. 2025).

weight · Σ over prefixes n of  mean over samples of |x - Σ_{f<n} code_f · direction_f|²

A prefix is the first share of the features, rounded up. Features are then no longer alike: their order matters.
"""

from dataclasses import replace
from math import ceil
from typing import Annotated, ClassVar

import torch
from pydantic import Field

from unbraid.axes import Float, Tensor
from unbraid.codes import Codes
from unbraid.config import PerMemberFloat
from unbraid.dictionaries.mechanisms.mechanism import Forward, Mechanism, Memory, Signals
from unbraid.dictionaries.stack import Stack

Share = Annotated[float, Field(gt=0, lt=1)]


class Matryoshka(Mechanism):
    """Nested dictionaries: the first features must also reconstruct alone, at several widths (Bussmann et al. 2025).

    General features come first, so the order of features has a meaning.

    Examples
    --------
    >>> import unbraid as ub
    >>> ub.Matryoshka(prefixes=[0.25, 0.5]).ordered
    True
    """

    weight: PerMemberFloat = Field(default=1.0, ge=0)
    """Weight of the prefixes' squared errors against the whole dictionary's; higher favours the first features."""
    prefixes: list[Share] = Field(default=[0.0625, 0.125, 0.25, 0.5], min_length=1)
    """Widths of the nested dictionaries as shares of all features, each in (0, 1); more prefixes cost more time."""
    whole_because: ClassVar[str] = "sums up every prefix of the features on its own"

    @property
    def ordered(self) -> bool:
        return True

    def penalty(self, forward: Forward, memory: Memory, stack: Stack, signals: Signals) -> Float[Tensor, "m"]:
        widths = [ceil(share * stack.features) for share in self.prefixes]
        made = (stack.decode(first(forward.codes, n), forward.x) for n in widths)
        errors = [(prefix - forward.target).square().sum(-1).mean(-1) for prefix in made]
        return self.weight * torch.stack(errors).sum(0)


def first(codes: Codes, width: int) -> Codes:
    """Of these codes, those of the first features."""
    features = torch.arange(codes.width, device=codes.values.device) if codes.features is None else codes.features
    return replace(codes, values=torch.where(features < width, codes.values, 0))
