"""Features that start anew: when, how loud, and where.

When: not once the learning rate falls, nor in the last part of a training, so that what is new has time to settle.
How loud: with a short encoder row, so that it fires little until it has learned what to say (as Bricken et al. 2023).
Where: directions at random, or what the dictionary cannot say yet and no survivor says.

The latter are the errors x - x̂ of the worst samples, each made orthogonal to the survivors and to those before it. Once
there are as many as dimensions nothing is orthogonal to all of them: then to the d/4 that are most related to it.
Errors that say the same, as of one missing feature at several strengths, give one direction; where they give too
few, directions at random, made orthogonal alike.
"""

from typing import Literal

import torch
from pydantic import Field
from torch.nn.functional import normalize

from unbraid.axes import Float, Int, Tensor
from unbraid.dictionaries.mechanisms.mechanism import Mechanism
from unbraid.dictionaries.stack import Stack
from unbraid.errors import UserError
from unbraid.randomness import seed_of, stream
from unbraid.schedule import Moment

LEAST_LEFT = 1e-3
"""Of an error's length: less is said already, and the rest is mostly rounding."""


class StartsAnew(Mechanism):
    """The base class of mechanisms that restart features: when they stop, and how loud a restarted feature is."""

    until: float = Field(default=0.8, ge=0, le=1)
    """Share of the training after which nothing restarts; nor does it once the learning rate decays. Corrected form."""
    encoder_scale: float = Field(default=0.2, gt=0)
    """Length of a restarted encoder row, as a share of the others' mean; higher fires more at once. Corrected form."""
    form: Literal["corrected", "published"] = "corrected"
    """corrected: as the source describes it. published: as the source's code does it."""

    def check_stack(self, name: str, stack: Stack) -> None:
        if stack.is_transcoder:
            raise UserError(
                f"mechanisms.{name} restarts features where an input is missed, and here the target is not the input; "
                "accepted: without it (top-k rules bring dead features back by auxk)"
            )

    def too_late(self, moment: Moment) -> bool:
        """Whether what restarted now would have too little time; the published form never asks."""
        return self.form == "corrected" and (moment.decaying or moment.done > self.until)

    @property
    def scale(self) -> float:
        """What the others' encoder length is multiplied by."""
        return self.encoder_scale if self.form == "corrected" else 1.0


def own_seeds(stack: Stack) -> Int[Tensor, "m"]:
    """A seed for each member, from what its own seed made of its weights; the same however features are labelled."""
    drawn = stack.encoder.detach()[..., 0].cpu()
    return torch.tensor([seed_of(first.sort().values.float().numpy()) for first in drawn]).to(stack.device)


def at_random(count: int, dimensions: int, seed: Tensor, who: str, step: Tensor) -> Float[Tensor, "n d"]:
    """So many unit rows, drawn by a member's seed for this mechanism and step."""
    drawn = stream(int(seed), who, int(step)).standard_normal((count, dimensions))
    return normalize(torch.from_numpy(drawn), dim=-1)


def toward_errors(
    errors: Float[Tensor, "b d"], survivors: Float[Tensor, "s d"], spare: Float[Tensor, "n d"]
) -> Float[Tensor, "k d"]:
    """As many unit rows as there are spare ones, the worst error's first; fewer only where nothing differs any more."""
    count = len(spare)
    worst = errors[errors.square().sum(-1).argsort(descending=True, stable=True)]
    wanted = torch.cat([worst, spare.to(errors)])
    known, dimensions = survivors, errors.shape[1]
    half = max(1, dimensions // 2)  # of more, the last would be mostly rounding
    while len(wanted) and len(known) - len(survivors) < count:
        room = dimensions - len(known)
        some, wanted = wanted.tensor_split([min(room, half) if room > 0 else half])
        left = _without_span(known, some) if room > 0 else _without_related(known, some)
        known = torch.cat([known, _apart(left, some.norm(dim=-1))])
    return known[len(survivors) :][:count]


def _without_span(known: Float[Tensor, "s d"], rows: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    basis = torch.linalg.qr(known.T).Q
    return rows - rows @ basis @ basis.T


def _without_related(known: Float[Tensor, "s d"], rows: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    closest = (rows @ known.T).abs().topk(max(1, rows.shape[1] // 4)).indices
    near = known[closest]
    square = near @ near.mT + 1e-6 * torch.eye(near.shape[1]).to(near)  # never singular
    shares = torch.linalg.solve(square, near @ rows[..., None])
    return rows - (near.mT @ shares)[..., 0]


def _apart(rows: Float[Tensor, "n d"], lengths: Float[Tensor, "n"]) -> Float[Tensor, "k d"]:
    """Each row without what the ones before it say, at length one; one of whose length almost nothing is left goes."""
    basis, kept = torch.zeros_like(rows), 0
    for row, length in zip(rows, lengths, strict=True):
        for _ in range(2):  # once leaves rounding where little is left
            row = row - basis[:kept].T @ (basis[:kept] @ row)
        if row.norm() > LEAST_LEFT * length:
            basis[kept] = normalize(row, dim=0)
            kept += 1
    return basis[:kept]
