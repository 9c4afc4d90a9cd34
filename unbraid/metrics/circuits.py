"""Whether planted connections are found, and whether decoder norms tell in which of two models a factor is.

connection of input factor i with target factor j = |cos(what the feature matched with i writes, direction of j)|
edge AUROC = P(connection of a planted edge > connection of a pair without one)              ties count half
edge F1    = share of planted edges among as many pairs as there are edges, those with the largest connections
relative norm = ‖decoder row at site 2‖ / (‖at site 1‖ + ‖at site 2‖)      0: only in 1, ½: alike in both, 1: only in 2
shared AUROC = P(1 - |2 · relative norm - 1| of a shared factor > that of one in a single model)
shared accuracy = mean of the shares of shared and of single factors called so; shared is a relative norm in [¼, ¾]
"""

import torch
from torch.nn.functional import normalize

from unbraid.axes import Bool, Float, Int, Tensor

SHARED_FROM = 0.25
"""A feature is called shared where its relative norm is at least this far from 0 and from 1."""


def auroc(scores: Float[Tensor, "m n"], positive: Bool[Tensor, "n"]) -> Float[Tensor, "m"]:
    """The chance that a positive scores higher than a negative, by ranks; ties count half. NaN where one has none.

    >>> auroc(torch.tensor([[0.1, 0.4, 0.35, 0.8]]), torch.tensor([False, False, True, True])).tolist()
    [0.75]
    """
    from scipy.stats import rankdata  # takes half a second, and only scoring asks

    ranks, positive = torch.from_numpy(rankdata(scores.cpu().double().numpy(), axis=1)), positive.cpu()
    n_positive, n_negative = int(positive.sum()), int((~positive).sum())
    above = ranks[:, positive].sum(1) - n_positive * (n_positive + 1) / 2
    return above / (n_positive * n_negative) if n_positive and n_negative else torch.full_like(above, torch.nan)


def connections(
    written: Float[Tensor, "m f o"], targets: Float[Tensor, "j o"], matched: Int[Tensor, "m n"]
) -> Float[Tensor, "m n j"]:
    """|cosine| of what the feature matched with each input factor writes with each target factor; 0 without a match."""
    cosine = (normalize(written, dim=-1) @ normalize(targets, dim=-1).T).abs()
    rows = cosine.gather(1, matched.clamp_min(0)[..., None].expand(-1, -1, cosine.shape[-1]))
    return rows * (matched >= 0)[..., None]


def edge_auroc(connection: Float[Tensor, "m n j"], edges: Bool[Tensor, "n j"]) -> Float[Tensor, "m"]:
    """How well connections tell planted edges from pairs without one."""
    return auroc(connection.flatten(1), edges.flatten())


def edge_f1(connection: Float[Tensor, "m n j"], edges: Bool[Tensor, "n j"]) -> Float[Tensor, "m"]:
    """F1 of as many pairs as there are edges, the most connected; precision and recall are then the same."""
    flat = connection.flatten(1)
    chosen = flat.argsort(dim=1, descending=True, stable=True)[:, : int(edges.sum())]
    return edges.flatten()[chosen].double().mean(1)


def relative_norm(written: Float[Tensor, "m f o"], widths: tuple[int, ...]) -> Float[Tensor, "m f"]:
    """Of each feature, the decoder norm at the second of two sites over the sum of both; ½ where both are 0."""
    first, second = (part.norm(dim=-1).double() for part in written.split(list(widths), dim=-1))
    return torch.where(first + second > 0, second / (first + second).clamp_min(1e-30), 0.5)


def sharedness(relative: Float[Tensor, "m f"], matched: Int[Tensor, "m n"]) -> Float[Tensor, "m n"]:
    """1 - |2 · relative norm - 1| of the feature matched with each factor; 0 without a match."""
    return (1 - (2 * relative - 1).abs()).gather(1, matched.clamp_min(0)) * (matched >= 0)


def shared_accuracy(shared: Float[Tensor, "m n"], truth: Bool[Tensor, "n"]) -> Float[Tensor, "m"]:
    """The mean of the shares of shared and of single factors that are called so."""
    called = shared >= 2 * SHARED_FROM
    return (called[:, truth].double().mean(1) + (~called[:, ~truth]).double().mean(1)) / 2
