"""Make heads tell independent things about a story: what one head writes of it must not predict what another writes.

    corrected         mean over ordered pairs of R²_ij, each clamped at 0
                      R²_ij = ⟨U(S_i), U(K_j)⟩ / ⟨U(S_j), U(K_j)⟩        S_i = G_i (G_i + ridge I)⁻¹
    published         CE = mean over pairs i < j and stories b of  -log softmax_c(z_ib · z_jc / temperature)[c = b]
    info_nce_bound    log B - CE
    club              mean over ordered pairs of  (E_b[log q(y_jb | y_ib)] - E_b E_c[log q(y_jc | y_ib)]) / dimensions
    club_unit_length  the same of z in place of y, summed over dimensions

**corrected.** K_j is the B × B matrix of inner products, over stories, of what head j writes (mean over tokens,
centred); G_i = exp(-|·|² / mean |·|²) of its distances, centred. S_i is what kernel ridge regression on head i does to
any target, U(·) the U-centring of Song et al. (2012): ⟨U(S_i), U(K_j)⟩ is the debiased HSIC of the two heads under a
whitened RBF and a linear kernel. Its expectation is 0 where heads are independent, for any number of stories, and the
ratio is 1 for a head and itself: it is the debiased share of a head's variance that another predicts, and positive
wherever one head tells something of another's mean, linearly or not. Linear CKA is not enough. It weighs the directions
of a head by their variance, and a model meets it by telling in a small direction what another head tells (one_fact,
two seeds: CKA .01, held-out R² .88). An estimate below 0 is no dependence and is not rewarded; noise then leaves a cost
of about .01 at 64 stories.

**published.** z is what a head reads, mean over tokens, at length one. InfoNCE says I(z_i; z_j) ≥ log B - CE: to lower
CE raises the bound, and draws heads together. **info_nce_bound** lowers the bound, which has no lower end and is
already vacuous for independent heads: it turns heads into mirror images (cosine -1, R² 1), as dependent as equal ones.

**club** (Cheng et al. 2020) is a bound from above where q is the true conditional; here q is Gaussian around a ridge
regression on the batch at hand, held still while heads descend. y is what a head reads, mean over tokens, each
dimension at mean 0 and variance 1 over the batch. **club_unit_length** has no such scale, so that the quickest way to
lower it is to say the same of every story: on one_fact, variances fall to .0001, R² stays .99 and nothing is learned,
at weights from .005 (one seed). Both `…_bound` and `…_unit_length` are kept because runs have been made with them.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch.nn.functional import normalize

from unbraid.axes import Bool, Float, Tensor
from unbraid.config import PerMemberFloat
from unbraid.models.constraints.base import Constraint, over_tokens, pairs

RIDGE = 0.1
"""Of `corrected`, in units of the kernel's mean diagonal; of `club`, of a head's mean variance: added to what predicts,
and to what is left over."""
FEWEST_STORIES = 4
"""Of fewer stories there is no debiased estimate."""
LEAST_COSINE = 0.1
"""Of U(S_j) and U(K_j); less only where stories are fewer than a head's dimensions, and the ratio means nothing."""
TINY = 1e-9
WEIGHTS = {"corrected": 0.2, "club": 0.2}
"""At which the form acts beside the task; that of the others is the study's."""


class Independence(Constraint):
    """Penalise dependence between what two heads tell of a story, in the mean over all pairs.

    corrected: the debiased share of one head's variance that another predicts, 0 for independent heads. published:
    lowers InfoNCE's CE, which *rewards* dependence. info_nce_bound: lowers log B - CE, which turns heads into mirror
    images and does not make them independent either. club: lowers CLUB's bound from above (Cheng et al. 2020).
    club_unit_length: the same without a scale, which makes heads constant.

    Examples
    --------
    >>> import torch, unbraid as ub
    >>> first, second = torch.randn(2, 1, 400, 1, 3, 8, generator=torch.Generator().manual_seed(0))
    >>> every = torch.ones(400, 3, dtype=torch.bool)  # sequence, token: none is padding
    >>> mirrored = torch.cat([first, -first], 2)  # member, sequence, head, token, dimension
    >>> round(ub.Independence().cost(every, written=mirrored).item(), 2)
    1.0
    >>> round(ub.Independence().cost(every, written=torch.cat([first, second], 2)).item(), 2)
    0.0
    """

    weight: PerMemberFloat = Field(default=0.05, ge=0)
    """Factor of the cost in the loss; raising it enforces more. By default .2 (corrected, club), else .05."""
    form: Literal["corrected", "published", "info_nce_bound", "club", "club_unit_length"] = "corrected"
    """corrected: predictability. published, info_nce_bound: InfoNCE with either sign. club: an upper bound."""
    temperature: float = Field(default=0.2, gt=0)
    """Temperature of InfoNCE's softmax over cosines, above 0; lower contrasts more sharply."""

    @model_validator(mode="before")
    @classmethod
    def weigh(cls, settings: Any) -> Any:
        """The default weight is that of the form."""
        form = settings.get("form", "corrected")
        return {"weight": WEIGHTS[form], **settings} if form in WEIGHTS else settings

    @property
    def needs(self) -> tuple[str, ...]:
        return ("written" if self.form == "corrected" else "output", "mask")

    def cost(
        self,
        mask: Bool[Tensor, "b t"],
        output: Float[Tensor, "m b h t e"] | None = None,
        written: Float[Tensor, "m b h t d"] | None = None,
    ) -> Float[Tensor, "m"]:
        done = output if output is not None else written
        assert done is not None, "one of what heads read and what they write is needed"
        z = over_tokens(done, mask)
        if z.shape[2] == 1:
            return z.new_zeros(len(z))
        if self.form == "corrected":
            apart = ~torch.eye(z.shape[2], dtype=torch.bool, device=z.device)
            return predictability(z)[:, apart].relu().mean(1)
        if self.form == "club":
            y = standardised(z)
            return club(y, Conditional.of(y.detach())) / y.shape[-1]
        z = normalize(z, dim=-1)
        if self.form == "club_unit_length":
            return club(z, Conditional.of(z.detach()))
        contrast = info_nce(z, self.temperature)
        return contrast if self.form == "published" else math.log(z.shape[1]) - contrast


def predictability(z: Float[Tensor, "m b h e"]) -> Float[Tensor, "m h h"]:
    """The debiased share of each head's variance (last axis) that each other one predicts; 1 of itself."""
    stories = z.shape[1]
    if stories < FEWEST_STORIES:
        return 0 * z.sum((1, 3))[:, :, None] * z.sum((1, 3))[:, None, :]
    rows = (z - z.mean(1, keepdim=True)).transpose(1, 2)
    gram = _in_units_of_its_diagonal(rows @ rows.mT)
    lengths = gram.diagonal(dim1=-2, dim2=-1)
    kernel = torch.exp(gram - (lengths[..., :, None] + lengths[..., None, :]) / 2)  # e^(-|x - y|² / 2)
    kernel = kernel - kernel.mean(-1, keepdim=True)
    kernel = _in_units_of_its_diagonal(kernel - kernel.mean(-2, keepdim=True))
    smoother = torch.linalg.solve(kernel + RIDGE * torch.eye(stories).to(z), kernel)
    smoothing, inner = u_centred(smoother).flatten(2), u_centred(gram).flatten(2)
    predicted = smoothing @ inner.mT
    least = LEAST_COSINE * (smoothing.detach().norm(dim=-1) * inner.detach().norm(dim=-1)) + TINY
    return predicted / torch.maximum(predicted.diagonal(dim1=-2, dim2=-1), least)[:, None, :]


def _in_units_of_its_diagonal(gram: Float[Tensor, "m h b b"]) -> Float[Tensor, "m h b b"]:
    return gram / gram.diagonal(dim1=-2, dim2=-1).mean(-1).clamp_min(TINY)[..., None, None]


def u_centred(gram: Float[Tensor, "*n b b"]) -> Float[Tensor, "*n b b"]:
    """Without its diagonal, and so that every row sums to 0 without it (Székely and Rizzo 2014)."""
    stories = gram.shape[-1]
    apart = 1 - torch.eye(stories).to(gram)
    bare = gram * apart
    rows = bare.sum(-1, keepdim=True)
    total = rows.sum(-2, keepdim=True)
    return (bare - (rows + rows.mT) / (stories - 2) + total / ((stories - 1) * (stories - 2))) * apart


def standardised(z: Float[Tensor, "m b h e"]) -> Float[Tensor, "m b h e"]:
    """Each dimension at mean 0 and variance 1 over the stories."""
    centred = z - z.mean(1, keepdim=True)
    return centred / (centred.square().mean(1, keepdim=True) + TINY).sqrt()


def info_nce(z: Float[Tensor, "m b h e"], temperature: float) -> Float[Tensor, "m"]:
    """How hard it is to tell, among all stories, which one another head read."""
    first, second = pairs(z.shape[2], z.device)
    scores = torch.einsum("mbpe,mcpe->mpbc", z[:, :, first], z[:, :, second]) / temperature
    return (scores.logsumexp(-1) - scores.diagonal(dim1=-2, dim2=-1)).mean((1, 2))


@dataclass(frozen=True)
class Conditional:
    """q(z_j | z_i) = N(z_i · slope_ij + shift_ij, variance_ij), of all pairs of heads."""

    slope: Float[Tensor, "m h e g"]
    """g runs over the heads j and their dimensions."""
    shift: Float[Tensor, "m h 1 g"]
    variance: Float[Tensor, "m h 1 g"]

    @classmethod
    def of(cls, z: Float[Tensor, "m b h e"]) -> "Conditional":
        """By ridge regression over the stories."""
        x, y = z.transpose(1, 2), z.flatten(2)[:, None]
        x_mean, y_mean = x.mean(2, keepdim=True), y.mean(2, keepdim=True)
        own = (x - x_mean).mT @ (x - x_mean) / z.shape[1]
        level = own.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
        own = own + (RIDGE * level + TINY) * torch.eye(z.shape[-1]).to(z)
        slope = torch.linalg.solve(own, (x - x_mean).mT @ (y - y_mean) / z.shape[1])
        shift = y_mean - x_mean @ slope
        left = (y - x @ slope - shift).square().mean(2, keepdim=True)
        return cls(slope, shift, left + RIDGE * y.var(2, correction=0, keepdim=True) + TINY)


def club(z: Float[Tensor, "m b h e"], q: Conditional) -> Float[Tensor, "m"]:
    """How much better q tells a story's own reading than that of another."""
    y = z.flatten(2)[:, None]
    expected = z.transpose(1, 2) @ q.slope + q.shift
    own = (y - expected).square()
    other = y.var(2, correction=0, keepdim=True) + (y.mean(2, keepdim=True) - expected).square()
    gained = ((other - own) / (2 * q.variance)).mean(2)
    heads = z.shape[2]
    apart = 1 - torch.eye(heads).to(z)
    return (gained.unflatten(-1, (heads, -1)).sum(-1) * apart).sum((1, 2)) / (heads * (heads - 1))
