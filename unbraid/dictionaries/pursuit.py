"""Pursuit: codes of a trained dictionary by greedy search instead of its encoder; for use, not for training.

    residual r = x - bias, nothing chosen. Until k are chosen or the residual is 0:
        choose the feature whose direction has the largest product with r (largest |product|, without `nonnegative`)
        omp        codes of the chosen ← the least squares solution; r ← what it leaves over
        gradient   codes of the chosen ← codes + a · g, g their products with r, a = r·ĝ / |ĝ|², ĝ = Σ g · w

Orthogonal matching pursuit (Pati et al. 1993) solves a least squares problem at every choice; gradient pursuit
(Blumensath and Davies 2008) takes one step of it, which is cheaper and nearly as good. What an encoder loses against
them at the same L0 is its amortisation gap.
"""

from typing import Literal

import torch

from unbraid.axes import Float, Int, Tensor
from unbraid.codes import Codes
from unbraid.dictionaries.stack import Stack
from unbraid.errors import UserError

STOP = 1e-6
"""A residual shorter than this share of the input is 0: nothing more is chosen."""


@torch.no_grad()
def pursue(
    stack: Stack,
    x: Float[Tensor, "b d"],
    k: int,
    method: Literal["omp", "gradient"] = "omp",
    nonnegative: bool = True,
) -> Codes:
    """Encode inputs by pursuit: at most k features a sample, chosen one after the other by what is left over.

    Parameters
    ----------
    stack : Stack
        Trained autoencoders; their encoders are not used.
    x : Tensor, shape (b, d)
        Inputs, in the stack's units.
    k : int
        Features that fire in a sample, at most.
    method : {"omp", "gradient"}
        Orthogonal matching pursuit, or gradient pursuit, which is cheaper and nearly as good.
    nonnegative : bool, default True
        Choose only features that point towards the residual, and end with codes of 0 or more, as the encoders' are.

    Returns
    -------
    Codes
        Of shape (m, b, f) when dense; `stack.decode` takes them.

    Examples
    --------
    >>> import torch, unbraid as ub
    >>> stack = ub.Stack.start(ub.Dictionary(d_sae=16), dimensions=8, seeds=[0])
    >>> x = 2 * stack.decoder[0, 3:4] + stack.decoder[0, 7:8]
    >>> codes = ub.pursue(stack, x, k=4)
    >>> bool((stack.decode(codes)[0] - x).abs().max() < 1e-3)
    True
    """
    if stack.is_transcoder:
        raise UserError("pursuit explains inputs, and a transcoder predicts something else; accepted: an autoencoder")
    if not 1 <= k <= stack.features:
        raise UserError(f"pursuit was asked for k = {k} features; accepted: 1 to {stack.features}")
    inputs = x.expand(stack.members, *x.shape) if stack.pre_bias is None else x - stack.pre_bias[:, None]
    chosen = [_pursue(rows, given, k, method, nonnegative) for rows, given in zip(stack.decoder, inputs, strict=True)]
    features, values = (torch.stack(part) for part in zip(*chosen, strict=True))
    return Codes(features, values, stack.features)


def _pursue(
    rows: Float[Tensor, "f d"], x: Float[Tensor, "b d"], k: int, method: str, nonnegative: bool
) -> tuple[Int[Tensor, "b k"], Float[Tensor, "b k"]]:
    """The features of one member and their values; a slot that is not needed holds the value 0."""
    features, values = torch.zeros(len(x), k, dtype=torch.long), x.new_zeros(len(x), k)
    taken, residual = torch.zeros(len(x), len(rows), dtype=torch.bool), x.clone()
    going, enough = x.norm(dim=1) > 0, STOP * x.norm(dim=1)
    unit = torch.nn.functional.normalize(rows, dim=1)
    for slot in range(k):
        products = residual @ unit.T
        products = (products if nonnegative else products.abs()).masked_fill(taken, -torch.inf)
        best, feature = products.max(1)
        going = going & (best > 0) & (residual.norm(dim=1) > enough)
        if not going.any():
            break
        features[going, slot] = feature[going]
        taken[going, feature[going]] = True
        at = going.nonzero()[:, 0]
        directions = rows[features[at, : slot + 1]]
        if method == "omp":
            solved = torch.linalg.lstsq(directions.mT, x[at, :, None], driver="gelsd").solution[..., 0]
        else:
            solved = _gradient_step(directions, residual[at], values[at, : slot + 1])
        values[at, : slot + 1] = solved
        residual[at] = x[at] - torch.einsum("bk,bkd->bd", values[at, : slot + 1], directions)
    return features, values.relu() if nonnegative else values


def _gradient_step(
    directions: Float[Tensor, "b k d"], residual: Float[Tensor, "b d"], old: Float[Tensor, "b k"]
) -> Float[Tensor, "b k"]:
    """From the old values, with 0 for the newest, as far along the gradient as lowers the error most."""
    gradient = torch.einsum("bkd,bd->bk", directions, residual)
    change = torch.einsum("bk,bkd->bd", gradient, directions)
    length = (change * residual).sum(1) / change.square().sum(1).clamp_min(1e-30)
    return old + length[:, None] * gradient
