"""What each head is needed for: the answers that go wrong when it is silenced, and in which stories.

importance   = accuracy - accuracy without the head               a head that nothing reads: 0
needed       = share of answers that are right and, without the head, wrong
largest drop = largest importance of the head in any group of questions, over several ways of grouping them
               its chance: the same with questions dealt to the groups at random, which is above 0 by luck alone
"""

from collections.abc import Sequence

import numpy as np
import torch

from unbraid.axes import Bool, Float, Int, Tensor

FEWEST = 20
"""A group of fewer questions tells nothing."""
DEALS = 20


def importance(right: Bool[Tensor, "m b"], without: Bool[Tensor, "m k b"]) -> Float[Tensor, "m k"]:
    """From which of b questions are answered right, and which without each of k heads."""
    return right.double().mean(-1, keepdim=True) - without.double().mean(-1)


def needed(right: Bool[Tensor, "m b"], without: Bool[Tensor, "m k b"]) -> Float[Tensor, "m k"]:
    return (right[:, None] & ~without).double().mean(-1)


def importance_by_group(
    right: Bool[Tensor, "m b"], without: Bool[Tensor, "m k b"], groups: Int[Tensor, "b"]
) -> Float[Tensor, "m k g"]:
    """The importance in each group, numbered from 0 (below it is none); NaN where there are too few questions."""
    member = torch.nn.functional.one_hot(groups.clamp_min(0)).double() * (groups >= 0)[:, None]
    size = member.sum(0)
    drop = (right[:, None].double() - without.double()) @ member / size
    return torch.where(size >= FEWEST, drop, torch.nan)


def largest_drop(
    right: Bool[Tensor, "m b"], without: Bool[Tensor, "m k b"], groupings: Sequence[Int[Tensor, "b"]]
) -> Float[Tensor, "m k"]:
    """NaN where no group is large enough."""
    drops = torch.cat([importance_by_group(right, without, groups) for groups in groupings], -1)
    found = drops.nan_to_num(nan=-torch.inf).amax(-1)
    return torch.where(found.isfinite(), found, torch.nan)


def chance_of_largest_drop(
    right: Bool[Tensor, "m b"],
    without: Bool[Tensor, "m k b"],
    groupings: Sequence[Int[Tensor, "b"]],
    rng: np.random.Generator,
) -> Float[Tensor, "m k"]:
    """Its mean over deals: each deals all questions anew, the same for every way of grouping."""
    deals = (torch.from_numpy(rng.permutation(right.shape[-1])) for _ in range(DEALS))
    return torch.stack([largest_drop(right, without, [each[deal] for each in groupings]) for deal in deals]).mean(0)
