"""Which head tells which factor: how much of what a head says is explained by what is so, and how pure that is.

explained  = 1 - (Σ within / (n - classes)) / (Σ total / (n - 1)), of the squared distances of z to its class's mean and
             to the mean of all (Kelley's ε², adjusted for the number of classes)    a factor it does not tell: 0
separation = mean over heads of 1 - H(w_h) / log(factors), w_h a head's explained shares scaled to sum 1, heads weighted
             by how much they tell in all (DCI's disentanglement)                    one factor a head: 1; all alike: 0
"""

import math

import torch

from unbraid.axes import Float, Int, Tensor


def explained(heads: Float[Tensor, "m n h e"], values: Int[Tensor, "n"]) -> Float[Tensor, "m h"]:
    """Of n tokens with the value of one factor each (below 0 where it has none); NaN where it takes fewer than two."""
    known = values >= 0
    classes, of_token = values[known].unique(return_inverse=True)
    amount = len(of_token)
    if len(classes) < 2 or amount <= len(classes):
        return heads.new_full((heads.shape[0], heads.shape[2]), torch.nan)
    z = heads[:, known].double()
    z = z - z.mean(1, keepdim=True)
    total = z.square().sum((1, 3))
    sums = z.new_zeros(z.shape[0], len(classes), *z.shape[2:]).index_add_(1, of_token, z)
    between = (sums.square().sum(-1) / of_token.bincount()[:, None]).sum(1)
    share = (total - between) / total * (amount - 1) / (amount - len(classes))
    return torch.where(total > 0, 1 - share, 0.0).to(heads.dtype)


def separation(table: Float[Tensor, "m h f"]) -> Float[Tensor, "m"]:
    """From how much of each head each factor explains; NaN where there is a single factor, or none tells anything."""
    told = table.nan_to_num().clamp_min(0)
    by_head = told.sum(-1)
    shares = told / by_head.clamp_min(torch.finfo(told.dtype).tiny)[..., None]
    factors = told.shape[-1]
    purity = 1 - torch.special.entr(shares).sum(-1) / (math.log(factors) if factors > 1 else math.nan)
    return (purity * by_head).sum(-1) / by_head.sum(-1)
