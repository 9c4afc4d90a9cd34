"""Start features that hardly ever fire anew, where the dictionary fails most (study "mechanisms", run 9).

    activity ← momentum · activity + (1-momentum) · share of samples in which it fires        corrected for its age

Every `every` steps, features at least that old are judged, so that one that has just started anew gets its time.

corrected    idle: activity < threshold · the mean activity. Each idle feature starts at the residual of another of the
             worst reconstructed samples, its encoder `encoder_scale` times as long as those of the others are on
             average; nobody does once the learning rate decays, nor after `until` of the training
published    idle: activity < threshold, however sparse the codes (so nearly all, in a wide dictionary). They start in
             random directions, with the others' full encoder length, to the last step. (As written it never ran: it
             shared a counter with pruning, which set it back at 100.)

Which idle feature gets which direction is decided by their old directions, not by their labels.
"""

from typing import ClassVar

import torch
from pydantic import Field
from torch.nn.functional import normalize

from unbraid.axes import Bool, Float, Int, Tensor
from unbraid.config import PerMemberFloat
from unbraid.dictionaries.mechanisms.directions import StartsAnew, at_random, own_seeds
from unbraid.dictionaries.mechanisms.mechanism import Forward, Memory, Reset, Signals
from unbraid.dictionaries.stack import Stack


class Reallocation(StartsAnew):
    """Restart features that hardly ever fire, in the directions of the largest reconstruction errors.

    The published form restarts them in random directions.

    Examples
    --------
    >>> import unbraid as ub
    >>> ub.Reallocation(every=250).threshold
    0.01
    """

    threshold: PerMemberFloat = Field(default=0.01, ge=0)
    """Activity below which a feature restarts, as a share of the mean (published: of all samples); higher: more do."""
    momentum: float = Field(default=0.99, ge=0, lt=1)
    """How slowly the activity follows new batches, from 0 (the last batch alone) to nearly 1 (very slowly)."""
    every: int = Field(default=1000, ge=1)
    """Steps between two checks, and the age from which a feature is checked; lower restarts more often."""
    whole_because: ClassVar[str] = "ranks all features and moves their rows"

    def start(self, stack: Stack) -> Memory:
        new = torch.zeros(stack.members, stack.features, device=stack.device)
        steps = torch.zeros(stack.members, dtype=torch.int64, device=stack.device)
        return {"activity": new, "age": new.clone(), "steps": steps, "seed": own_seeds(stack)}

    def observe(self, forward: Forward, memory: Memory, stack: Stack, signals: Signals) -> Memory:
        now = forward.codes.counts().float() / len(forward.x)
        activity = memory["activity"].lerp(now, 1 - self.momentum)
        return {**memory, "activity": activity, "age": memory["age"] + 1, "steps": memory["steps"] + 1}

    def edit(self, forward: Forward, memory: Memory, stack: Stack, signals: Signals) -> Reset | None:
        if int(memory["steps"][0]) % self.every or self.too_late(forward.moment):
            return None
        idle = self.idle(memory)
        anew, rows = torch.zeros_like(idle), torch.zeros_like(stack.encoder)
        lengths = stack.encoder.norm(dim=-1)
        scale = torch.where(idle, 0, lengths).sum(-1) / (~idle).sum(-1).clamp_min(1)
        for member in range(stack.members):
            features = in_an_order_of_their_own(idle[member], stack.decoder[member])
            directions = self._directions(forward, memory, member, len(features))
            rows[member, features[: len(directions)]] = directions.to(rows)
            anew[member, features[: len(directions)]] = True
        return Reset(anew, self.scale * scale[:, None, None] * rows, rows) if anew.any() else None

    def idle(self, memory: Memory) -> Bool[Tensor, "m f"]:
        """Old enough to be judged, and hardly ever firing; nobody, where that would be everybody."""
        activity = memory["activity"] / (1 - self.momentum ** memory["age"]).clamp_min(1e-12)
        bar = torch.as_tensor(self.threshold, device=activity.device).reshape(-1, 1)
        if self.form == "corrected":
            bar = bar * activity.mean(-1, keepdim=True)
        idle = (activity < bar) & (memory["age"] >= self.every)
        return idle & ~idle.all(-1, keepdim=True)

    def _directions(self, forward: Forward, memory: Memory, member: int, number: int) -> Float[Tensor, "n d"]:
        if self.form == "corrected":
            return worst(forward.x - forward.reconstruction[member], number)
        dimensions, seed, step = forward.x.shape[1], memory["seed"][member], memory["steps"][member]
        return at_random(number, dimensions, seed, "reallocation", step)


def worst(residuals: Float[Tensor, "b d"], number: int) -> Float[Tensor, "n d"]:
    """The directions of the longest residuals, longest first; fewer where there are not so many."""
    lengths, samples = residuals.norm(dim=-1).topk(min(number, len(residuals)))
    return normalize(residuals[samples[lengths > 0]], dim=-1)


def in_an_order_of_their_own(chosen: Bool[Tensor, "f"], directions: Float[Tensor, "f d"]) -> Int[Tensor, "n"]:
    """The chosen features, by the first coordinate of their directions."""
    features = chosen.nonzero()[:, 0]
    return features[directions[features, 0].argsort()]
