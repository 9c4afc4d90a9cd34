"""What heads write, how much each is used, which factor each tells; and whether answers are right.

Of the representations z of two heads over the same stories:

cosine = mean over stories of |cos(z_h, z_h')|                    random directions: Γ(e/2) / (√π Γ((e+1)/2))
CKA    = HSIC(z_h, z_h') / √(HSIC(z_h, z_h) · HSIC(z_h', z_h'))   linear, debiased; independent heads: 0, at times below
HSIC   = Σ_{i≠j} K_ij L_ij / n(n-3), K and L the inner products of stories with diagonal 0 and rows summing to 0
         (U-centred: Song et al. 2012, Székely and Rizzo 2014)

Heads write in one space, so that both compare like with like. The plain CKA is left out: of few
stories it is far from 0 even where heads are independent.

held-out R² = 1 - Σ |z_h' - prediction|² / Σ |z_h' - mean|², over stories that the prediction of z_h' from z_h was not
              fitted on: ridge regression with a linear or an RBF kernel, its penalty chosen on the fitted stories
                                                                  independent heads: 0, at times below
effective rank = exp(-Σ p log p), p the singular values of z over stories, scaled to sum 1 (Roy and Vetterli 2007)

CKA weighs a head's directions by their variance: heads can have almost none and yet predict each other through their
small directions. Held-out R² sees that.

explained  = 1 - (Σ within / (n - classes)) / (Σ total / (n - 1)), of the squared distances of z to its class's mean and
             to the mean of all (Kelley's ε², adjusted for the number of classes)    a factor it does not tell: 0
separation = mean over heads of 1 - H(w_h) / log(factors), w_h a head's explained shares scaled to sum 1, heads weighted
             by how much they tell in all (DCI's disentanglement)                    one factor a head: 1; all alike: 0

accuracy    = share of questions whose largest logit is the answer's
steps to a  = the first of the steps looked at where the accuracy is at least a; capped: the last one where it never is
"""

import math
from typing import Literal

import torch

from unbraid.axes import Bool, Float, Int, Tensor

FEWEST_STORIES = 4
"""Of fewer stories there is no debiased CKA."""
FOLDS = 4
FEWEST_TO_PREDICT = 4 * FOLDS
"""Of fewer stories nothing is predicted from three quarters of them."""
PENALTIES = tuple(10.0**power for power in range(-4, 3))
"""Tried for each pair of heads, in units of the mean eigenvalue of the kernel."""


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
    if heads.shape[1] < FEWEST_STORIES:
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


def held_out_r2(heads: Float[Tensor, "m b h e"], kernel: Literal["linear", "rbf"]) -> Float[Tensor, "m h h"]:
    """How much of each head (second axis) is predicted from each other (first) on stories that were not fitted.

    NaN where stories are too few, of a head from itself, and of a head that says the same of every story.
    """
    if heads.shape[1] < FEWEST_TO_PREDICT:
        return heads.new_full((heads.shape[0], heads.shape[2], heads.shape[2]), torch.nan)
    return torch.stack([_held_out_r2(member.transpose(0, 1), kernel) for member in heads.double()]).to(heads.dtype)


def _held_out_r2(heads: Float[Tensor, "h b e"], kernel: str) -> Float[Tensor, "h h"]:
    gram = _gram(heads - heads.mean(1, keepdim=True), kernel)
    fold = torch.arange(heads.shape[1], device=heads.device) % FOLDS
    errors, total = zip(*(_fold_errors(heads, gram, fold != f) for f in range(FOLDS)), strict=True)
    total = torch.stack(total).sum(0)
    r2 = 1 - torch.stack(errors).sum(0) / total
    varies = heads.var(1).sum(-1) > torch.finfo(torch.float32).eps ** 2 * heads.square().mean(1).sum(-1)
    known = varies[:, None] & varies & ~torch.eye(len(heads), dtype=torch.bool, device=heads.device)
    return torch.where(known, r2, torch.nan)


def _gram(heads: Float[Tensor, "h b e"], kernel: str) -> Float[Tensor, "h b b"]:
    """Inner products, or exp(-|x - y|² / median of |x - y|²)."""
    if kernel == "linear":
        return heads @ heads.mT
    squares = torch.cdist(heads, heads).square()
    one, other = torch.triu_indices(*squares.shape[-2:], offset=1).to(squares.device)
    median = squares[:, one, other].median(-1).values[:, None, None]
    return torch.exp(-squares / torch.where(median > 0, median, 1.0))


def _fold_errors(
    heads: Float[Tensor, "h b e"], gram: Float[Tensor, "h b b"], fitted: Bool[Tensor, "b"]
) -> tuple[Float[Tensor, "h h"], Float[Tensor, "h"]]:
    """Squared errors on the stories that are not fitted, of each head from each; and of predicting the mean."""
    mean = heads[:, fitted].mean(1, keepdim=True)
    targets, unseen = (heads[:, part] - mean for part in (fitted, ~fitted))
    within, across = gram[:, fitted][:, :, fitted], gram[:, ~fitted][:, :, fitted]
    level = within.mean(1, keepdim=True)
    across = across - across.mean(2, keepdim=True) - level + level.mean(2, keepdim=True)
    within = within - within.mean(2, keepdim=True) - level + level.mean(2, keepdim=True)
    errors = [(unseen - k @ _fit(own, targets)).square().sum((1, 2)) for own, k in zip(within, across, strict=True)]
    return torch.stack(errors), unseen.square().sum((1, 2))


def _fit(gram: Float[Tensor, "b b"], targets: Float[Tensor, "h b e"]) -> Float[Tensor, "h b e"]:
    """Coefficients of kernel ridge regression, with the penalty that leaves out one story best, for each target.

    Kernel and targets are centred. Leaving out a story moves the mean, too: (y - ŷ) / (1 - hat - 1/n).
    """
    values, vectors = torch.linalg.eigh(gram)
    values = values.clamp_min(0)
    turned = vectors.mT @ targets
    fits, misses = [], []
    for penalty in PENALTIES:
        ridge = penalty * values.mean() + torch.finfo(values.dtype).tiny
        fits.append(vectors @ (turned / (values + ridge)[:, None]))
        kept = ridge * (vectors.square() / (values + ridge)).sum(1) - 1 / len(gram)
        misses.append((ridge * fits[-1] / kept[:, None]).square().sum((1, 2)))
    best = torch.stack(misses).argmin(0)
    return torch.stack(fits)[best, torch.arange(len(targets), device=targets.device)]


def largest_between(table: Float[Tensor, "m h h"]) -> Float[Tensor, "m"]:
    """The largest entry of two different heads; NaN where none has a value."""
    heads = table.shape[-1]
    apart = table.masked_fill(torch.eye(heads, dtype=torch.bool, device=table.device), torch.nan)
    largest = apart.nan_to_num(nan=-torch.inf).flatten(1).amax(1)
    return torch.where(largest.isfinite(), largest, torch.nan)


def between_layers(table: Float[Tensor, "m k k"], layers: int) -> Float[Tensor, "m"]:
    """The mean over pairs of heads of different layers, of k heads in order of their layers; NaN of a single layer."""
    layer = torch.arange(table.shape[-1], device=table.device) // (table.shape[-1] // layers)
    apart = layer[:, None] != layer
    return table[:, apart].mean(-1)


def effective_rank(heads: Float[Tensor, "m b h e"]) -> Float[Tensor, "m h"]:
    """Over how many directions each head's representations of stories spread, about their mean; 0 where they do not."""
    rows = (heads - heads.mean(1, keepdim=True)).double().transpose(1, 2)
    sizes = torch.linalg.svdvals(rows)
    total = sizes.sum(-1, keepdim=True)
    rank = torch.special.entr(sizes / torch.where(total > 0, total, 1.0)).sum(-1).exp()
    return torch.where(total[..., 0] > 0, rank, 0.0).to(heads.dtype)


def usage(gate: Float[Tensor, "m b t h"], mask: Bool[Tensor, "b t"]) -> Float[Tensor, "m h"]:
    """The share of tokens that are routed to each head; of k heads chosen by chance among h it is k / h."""
    return (gate[:, mask] > 0).to(gate.dtype).mean(1)


def evenness(shares: Float[Tensor, "m h"]) -> Float[Tensor, "m"]:
    """exp of the entropy of use over the number of heads: 1 where all are used alike, 1/h where one is alone."""
    of_all = shares / shares.sum(-1, keepdim=True)
    return torch.special.entr(of_all).sum(-1).exp() / shares.shape[-1]


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


def right(logits: Float[Tensor, "m b q c"], answers: Int[Tensor, "b q"]) -> Bool[Tensor, "m b q"]:
    """Whether the largest of c logits is the answer's, for b stories with q questions each."""
    return logits.argmax(-1) == answers


def accuracy(answered: Bool[Tensor, "m b q"]) -> Float[Tensor, "m"]:
    """The share of questions answered right."""
    return answered.double().mean((1, 2))


def steps_to(level: float, accuracies: Float[Tensor, "m c"], steps: Int[Tensor, "c"]) -> Float[Tensor, "m"]:
    """From the accuracy at each step that was looked at; NaN where it is never so high."""
    reached = accuracies >= level
    first = steps[reached.int().argmax(-1)].double()
    return torch.where(reached.any(-1), first, torch.nan)


def capped_steps_to(level: float, accuracies: Float[Tensor, "m c"], steps: Int[Tensor, "c"]) -> Float[Tensor, "m"]:
    """The same with the last step looked at where it is never so high: there it is a lower bound."""
    return steps_to(level, accuracies, steps).nan_to_num(float(steps[-1]))
