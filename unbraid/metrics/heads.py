"""How much heads repeat one another in what they write, and how much each is used.

Of the representations z of two heads over the same stories:

cosine = mean over stories of |cos(z_h, z_h')|                    random directions: Γ(e/2) / (√π Γ((e+1)/2))
CKA    = HSIC(z_h, z_h') / √(HSIC(z_h, z_h) · HSIC(z_h', z_h'))   linear, debiased; independent heads: 0, at times below
HSIC   = Σ_{i≠j} K_ij L_ij / n(n-3), K and L the inner products of stories with diagonal 0 and rows summing to 0
         (U-centred: Song et al. 2012, Székely and Rizzo 2014)

Heads write in one space, so that both compare like with like. The plain CKA is left out: of few
stories it is far from 0 even where heads are independent.
"""

import math

import torch

from unbraid.axes import Bool, Float, Tensor

FEWEST = 4
"""Of fewer stories there is no debiased CKA."""


def pooled(output: Float[Tensor, "m b h t e"], mask: Bool[Tensor, "b t"]) -> Float[Tensor, "m b h e"]:
    """A head's representation of a story: the mean of what it writes over the story's tokens."""
    kept = mask.to(output.dtype)
    return torch.einsum("mbhte,bt->mbhe", output, kept) / kept.sum(-1)[:, None, None]


def cosine_redundancy(heads: Float[Tensor, "m b h e"]) -> Float[Tensor, "m h h"]:
    """The mean absolute cosine of every two heads; a head that wrote nothing has 0."""
    unit = torch.nn.functional.normalize(heads, dim=-1)
    return (unit @ unit.mT).abs().mean(1)


def expected_cosine(dimensions: int) -> float:
    """The mean absolute cosine of random directions."""
    return math.exp(math.lgamma(dimensions / 2) - math.lgamma((dimensions + 1) / 2)) / math.sqrt(math.pi)


def cka(heads: Float[Tensor, "m b h e"]) -> Float[Tensor, "m h h"]:
    """The debiased linear CKA of every two heads; a head that says the same of every story has 0."""
    if heads.shape[1] < FEWEST:
        return heads.new_full((heads.shape[0], heads.shape[2], heads.shape[2]), torch.nan)
    return torch.stack([_cka(one) for one in heads.double()]).to(heads.dtype)


def _cka(heads: Float[Tensor, "b h e"]) -> Float[Tensor, "h h"]:
    rows = (heads - heads.mean(0)).transpose(0, 1)
    centred = _u_centred(rows @ rows.mT).flatten(1)
    hsic = centred @ centred.T
    own = hsic.diagonal()
    scale = (own[:, None] * own).sqrt()
    return torch.where(scale > 0, hsic / scale, torch.zeros_like(hsic))


def _u_centred(gram: Float[Tensor, "h b b"]) -> Float[Tensor, "h b b"]:
    """Without its diagonal, and so that every row sums to 0 without it."""
    amount = gram.shape[-1]
    bare = gram - torch.diag_embed(gram.diagonal(dim1=-2, dim2=-1))
    rows = bare.sum(-1, keepdim=True)
    found = bare - (rows + rows.mT) / (amount - 2) + rows.sum(-2, keepdim=True) / ((amount - 1) * (amount - 2))
    return found - torch.diag_embed(found.diagonal(dim1=-2, dim2=-1))


def usage(gate: Float[Tensor, "m b t h"], mask: Bool[Tensor, "b t"]) -> Float[Tensor, "m h"]:
    """The share of tokens that are routed to each head; of k heads chosen by chance among h it is k / h."""
    return (gate[:, mask] > 0).to(gate.dtype).mean(1)


def evenness(shares: Float[Tensor, "m h"]) -> Float[Tensor, "m"]:
    """exp of the entropy of use over the number of heads: 1 where all are used alike, 1/h where one is alone."""
    of_all = shares / shares.sum(-1, keepdim=True)
    return torch.special.entr(of_all).sum(-1).exp() / shares.shape[-1]
