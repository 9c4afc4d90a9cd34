"""AuxK: dead features learn from what the living leave over (Gao et al. 2024).

    e  = x - x̂, held still (the target's, in a transcoder)        ê = Σ code_f · direction_f  over the dead features f
    code = relu of the k largest pre-activations of dead features in a sample        cost = weight · |e - ê|²

A feature is dead once it has not fired for `dead_after` samples. A top-k rule gives it no gradient then; this does, and
so it comes back where the dictionary fails. Only the rows of dead features are multiplied.
"""

import torch
from pydantic import Field

from unbraid.axes import Bool, Float, Tensor
from unbraid.config import Config


class AuxK(Config):
    """AuxK (Gao et al. 2024): features that no longer fire must reconstruct what the others leave over.

    Examples
    --------
    >>> import unbraid as ub
    >>> rule = ub.TopK(k=5, auxk=ub.AuxK(dead_after=50_000))
    >>> rule.auxk.weight
    0.03125
    >>> off = ub.TopK(k=5, auxk=ub.AuxK(weight=0))
    """

    weight: float = Field(default=1 / 32, ge=0)
    """Weight of the dead features' reconstruction loss against that of the others; 0 turns AuxK off."""
    k: int | None = Field(default=None, ge=1, le=1 << 24)
    """Number of dead features that fire in a sample, at most. None: half the dimensions of the inputs."""
    dead_after: int = Field(default=20_000, ge=1)
    """Samples without firing after which a feature counts as dead; fewer reach rare features too."""

    def of_residual(
        self,
        x: Float[Tensor, "b d"],
        dead: Bool[Tensor, "m f"],
        encoder: Float[Tensor, "m f d"],
        bias: Float[Tensor, "m f"],
        decoder: Float[Tensor, "m f o"],
    ) -> Float[Tensor, "m b o"] | None:
        """ê, what the dead features make of the inputs; None where nothing is dead.

        Members are padded to as many rows as the one with most dead features has; what pads never fires.
        """
        members, features, dimensions = encoder.shape
        most = int(dead.sum(-1).max())
        if most == 0:
            return None
        index = dead.int().argsort(dim=-1, descending=True, stable=True)[:, :most]
        real = dead.gather(-1, index)
        flat = (index + features * torch.arange(members, device=index.device)[:, None]).flatten()
        rows, its_bias, directions = (t.flatten(0, 1).index_select(0, flat) for t in (encoder, bias, decoder))
        pre = torch.baddbmm(
            its_bias.view(members, 1, most),
            x.expand(members, *x.shape),
            rows.view(members, most, dimensions).mT,
        )
        codes = _largest(pre.where(real[:, None], -torch.inf), min(self.k or max(1, dimensions // 2), most))
        return codes @ directions.view(members, most, -1)


def _largest(pre: Float[Tensor, "m b n"], k: int) -> Float[Tensor, "m b n"]:
    """The k largest of each sample where they are positive, and 0 for the others."""
    if k == pre.shape[-1]:
        return pre.relu()
    values, chosen = pre.topk(k, dim=-1, sorted=False)
    return torch.zeros_like(pre).scatter(-1, chosen, values.relu())
