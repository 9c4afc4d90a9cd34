"""How wide a head must be to attend sharply, from the pairs of tokens of a text alone: before any training.

What tokens believe is taken from what follows them. A model that reads only the last token v and predicts with logits
W μ_v loses, to second order about independent tokens,

    ½ Σ_vw p(v) p(w) (W_w·μ_v - δ_vw)²,    δ_vw = p(w | v) / p(w) - 1

which is least, in K dimensions, for correspondence analysis: with √p(v) δ_vw √p(w) = U S Vᵀ, split evenly,

    μ_vk = √S_k U_vk / √p(v)      variances 1, as beliefs start
    KL   = ½ |μ_v - μ_v'|²        attention = softmax(-KL / κ) on windows of the text itself

so that over the text the variance of a head's k-th dimension is S_k, the k-th canonical correlation of a token with the
next: at most 1, whatever the text. p(w | v) is Witten and Bell's, as in `language`: a rare token says little.

The smallest K is the least whose attention is sharper than a threshold. Tokens that come again in a window are alike to
every head, so that sharpness has a ceiling below 1 that no K passes. Assumed: nothing but pairs, the K leading
dimensions in one head (where several heads share them, each has less), no positions. A trained head may set tokens
farther apart than that, or nearer: it stands beside what trained heads do, and says where the text alone puts them.
"""

import numpy as np
import scipy.linalg
import torch

from unbraid.axes import Float, Int, Tensor
from unbraid.metrics.attention import allowed, sharpness, without_self
from unbraid.metrics.gaussians import Rule, temperature

WIDEST = 64
"""Dimensions that are looked at."""


def pair_beliefs(training: Int[np.ndarray, "n"], vocabulary: int) -> Float[Tensor, "v k"]:
    """The mean that each token has by what follows it in a text, the dimension that tells most first.

    Parameters
    ----------
    training : integer array, shape (n,)
        The tokens of the text, in order.
    vocabulary : int
        v, the number of tokens that there are.

    Returns
    -------
    Tensor, shape (v, k)
        Means, for k up to 64 dimensions and less than v; 0 for a token that nothing follows.

    Examples
    --------
    Two tokens that always alternate are 2·√S apart, where S is the correlation with the next: nearly 1:

    >>> import numpy as np
    >>> means = pair_beliefs(np.tile([0, 1], 10_000), 2)
    >>> round(float((means[0] - means[1]).norm()), 3)
    2.0
    """
    counts = np.zeros((vocabulary, vocabulary))
    np.add.at(counts, (training[:-1], training[1:]), 1)
    followed, follows, different = counts.sum(1), counts.sum(0), (counts > 0).sum(1)
    once = np.maximum(followed, 1)  # what nothing follows has a row of zeros, whatever it is divided by
    independent = np.outer(followed, follows) / counts.sum()
    unlike = (counts - independent) / np.sqrt(np.outer(once, np.maximum(follows, 1)))
    table = (followed / np.maximum(followed + different, 1))[:, None] * unlike
    dimensions = min(WIDEST, vocabulary - 1)
    squares, left = scipy.linalg.eigh(table @ table.T, subset_by_index=[vocabulary - dimensions, vocabulary - 1])
    halves = np.maximum(squares, 0) ** 0.25
    means = (followed > 0)[:, None] * left * halves / np.sqrt(once / counts.sum())[:, None]
    return torch.from_numpy(means[:, ::-1].copy())


def text_sharpness(
    means: Float[Tensor, "v k"],
    tokens: Int[Tensor, "b t"],
    kappa: float,
    rule: Rule = "shared",
    self_masked: bool = False,
) -> Float[Tensor, "k"]:
    """How sharply a head of each width would attend on windows of a text, if tokens had these means.

    Parameters
    ----------
    means : Tensor, shape (v, k)
        Of each token, from `pair_beliefs`; a head of K dimensions has the first K.
    tokens : integer Tensor, shape (b, t)
        Windows of the text; every token sees those before it.
    kappa : float
        The temperature, in nats.
    rule : "shared" or "head", default "shared"
        One κ for heads of all widths, or κ·√K.
    self_masked : bool, default False
        Whether a token does not attend to itself.

    Returns
    -------
    Tensor, shape (k,)
        Sharpness of a head of 1 to k dimensions: 0 is uniform, 1 is a single token.

    Examples
    --------
    >>> import torch
    >>> means = torch.tensor([[0.0, 0.0], [0.0, 9.0], [0.0, -9.0]])
    >>> text_sharpness(means, torch.tensor([[0, 1, 2]]), kappa=1.0).round(decimals=3).tolist()
    [0.0, 1.0]
    """
    keys = allowed(torch.ones_like(tokens, dtype=torch.bool), causal=True)
    if self_masked:
        keys = without_self(keys)
    held = means.double()[tokens]
    kl = held.new_zeros(keys.shape)
    found: list[Tensor] = []
    for width in range(1, means.shape[1] + 1):
        own = held[..., width - 1]
        kl = kl + (own[:, :, None] - own[:, None]).square() / 2
        scores = -kl / temperature(kappa, rule, width)
        pattern = scores.masked_fill(~keys, -torch.inf).softmax(-1)
        found.append(sharpness(pattern[None, :, None], keys)[0, 0])
    return torch.stack(found)


def first_above(values: Float[Tensor, "k"], threshold: float) -> int | None:
    """The least width whose value is above the threshold, from 1; None where none is.

    >>> import torch
    >>> first_above(torch.tensor([0.1, 0.4, 0.7]), 0.5), first_above(torch.tensor([0.1]), 0.5)
    (3, None)
    """
    above = (values > threshold).nonzero()
    return int(above[0]) + 1 if len(above) else None
