"""Train through the model: what a dictionary makes of activations must do to the model's output what they do.

    y  what the model says     ŷ  what it says with reconstructions in place of the activations, at every token
    kl             weight · mean over places of  Σ_v y_v (log y_v - log ŷ_v)
    cross_entropy  weight · mean over places of  -log ŷ at the right word or answer
    downstream     and its weight · mean over the later layers of  Σ |h - ĥ|² / Σ |h - mean of h|²

`reconstruction` weighs the usual loss beside that: 0 is training end to end (Braun et al. 2024), and with `downstream`
their e2e+ds.
"""

from typing import Literal

import torch
from pydantic import Field

from unbraid.axes import Float, Tensor
from unbraid.config import PerMemberFloat
from unbraid.dictionaries.downstream import Downstream, Said
from unbraid.dictionaries.mechanisms.mechanism import Forward, Mechanism, Memory, Signals
from unbraid.dictionaries.stack import Stack
from unbraid.errors import UserError


class EndToEnd(Mechanism):
    """A loss through the model that activations are of: its output must stay what it is (Braun et al. 2024).

    It needs activations that were captured from a model, and draws whole sequences of them: of `training.batch` rows as
    many sequences as have about so many.

    Examples
    --------
    >>> import unbraid as ub
    >>> end_to_end = ub.EndToEnd(weight=10.0, reconstruction=0.0)
    >>> end_to_end.loss, end_to_end.needs_model
    ('kl', True)
    """

    needs_model = True
    whole_because = "runs the model on reconstructions of all features"

    weight: PerMemberFloat = Field(default=1.0, ge=0)
    """Weight of the loss through the model; higher favours what the model uses over what there is."""
    loss: Literal["kl", "cross_entropy"] = "kl"
    """kl: the model's output must stay what it is, right or wrong. cross_entropy: it must be right."""
    reconstruction: PerMemberFloat = Field(default=1.0, ge=0)
    """Weight of the reconstruction loss beside it; 0 leaves only the model's output to learn from."""
    downstream: PerMemberFloat = Field(default=0.0, ge=0)
    """Weight of the errors of the residual stream after later layers, as a share of its variance; 0: none."""

    @property
    def reconstruction_weight(self) -> Tensor | float:
        return self.reconstruction

    def penalty(self, forward: Forward, memory: Memory, stack: Stack, signals: Signals) -> Float[Tensor, "m"]:
        model = forward.downstream
        if model is None:
            raise UserError(
                "mechanisms.end_to_end was given inputs without the model they are of; accepted: activations of one "
                "site that were captured from a model"
            )
        said = model.run(forward.reconstruction)
        cost = self.weight * self._of_output(said, model)
        if torch.as_tensor(self.downstream).any():
            cost = cost + self.downstream * _of_later_layers(said, model.as_it_is)
        return cost.to(forward.reconstruction.dtype)

    def _of_output(self, said: Said, model: Downstream) -> Float[Tensor, "m"]:
        found = said.logits.log_softmax(-1)
        if self.loss == "cross_entropy":
            right = model.right[None, :, None].expand(len(found), -1, 1)
            return -found.gather(-1, right)[..., 0].mean(-1)
        asked = model.as_it_is.logits.log_softmax(-1)
        return (asked.exp() * (asked - found)).sum(-1).mean(-1)


def _of_later_layers(said: Said, as_it_is: Said) -> Float[Tensor, "m"]:
    if not said.later:
        raise UserError("mechanisms.end_to_end.downstream is not 0, and no layer is behind the site; accepted: 0")
    shares = [
        (found - asked).square().sum((1, 2)) / (asked - asked.mean(1, keepdim=True)).square().sum()
        for found, asked in zip(said.later, as_it_is.later, strict=True)
    ]
    return torch.stack(shares).mean(0)
