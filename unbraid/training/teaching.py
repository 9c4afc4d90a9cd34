"""Teach m transformers to answer questions about stories: one step, on one page.

batch → forward → cross-entropy of answers + the model's own costs + the constraints' → gradients → clip → AdamW

Asked for the next token of a text, at every token, they learn its language. Members share the batch; their losses are
summed, and no weight, draw or clipping is shared: company does not matter.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from pydantic import Field, model_validator
from torch.nn.functional import cross_entropy

from unbraid.axes import Float, Int, Tensor
from unbraid.config import Knob, Record
from unbraid.constraints import Constraints, costs, recorded_for
from unbraid.models import Models, Shape, start_models
from unbraid.training.adamw import AdamW, Laid
from unbraid.training.asking import Asked, Asking
from unbraid.training.schedule import MOST_STEPS, rate_factor, refuse_overfull
from unbraid.training.step import Terms, refuse_infinite

EXPLOSION = 10.0
"""A gradient longer than this is counted as one that exploded."""


class Teaching(Record):
    """How long, on how many stories at a time, and how fast."""

    steps: int = Field(default=600, ge=1, le=MOST_STEPS)
    batch: int = Field(default=64, ge=1, le=1 << 20)
    learning_rate: Knob = Field(default=2e-3, gt=0)
    warmup_steps: int = Field(default=0, ge=0, le=MOST_STEPS)
    decay_steps: int = Field(default=0, ge=0, le=MOST_STEPS)
    weight_decay: float = Field(default=0.01, ge=0)
    clip: float | None = Field(default=1.0, gt=0)

    @model_validator(mode="after")
    def fit_the_schedule(self) -> Self:
        refuse_overfull(self)
        return self


@dataclass
class Pupils:
    """Everything a teaching is, between two steps; saving its tensors and its step is enough to go on."""

    models: Models
    weights: Laid
    adam: AdamW
    own_rates: Float[Tensor, "1 p"]
    """How much faster than others each number learns."""
    explosions: Int[Tensor, "m"]
    """So many steps had a gradient longer than `EXPLOSION`, before it was clipped."""
    step: int = 0

    @classmethod
    def start(cls, settings: Shape, world: Asking, seeds: Sequence[int]) -> "Pupils":
        models = start_models(settings, len(world.vocabulary), world.length, len(world.answers), seeds)
        return cls.of(models)

    @classmethod
    def of(cls, models: Models) -> "Pupils":
        """Pupils who begin with these weights, which are copied."""
        weights = Laid.out(models.parameters())
        rates = [torch.full((1, p[0].numel()), models.settings.rate_of(name)) for name, p in weights.named.items()]
        none, own = torch.zeros(models.members, dtype=torch.int64), torch.cat(rates, 1)
        return cls(models.with_parameters(weights.named), weights, AdamW.start(weights), own, none)

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor of the state by a flat name; the same storage, not copies."""
        groups = {"models": self.weights.named, "mean": self.adam.mean.named, "square": self.adam.square.named}
        flat = {f"{group}.{name}": tensor for group, named in groups.items() for name, tensor in named.items()}
        return {**flat, "explosions": self.explosions}


@dataclass(frozen=True)
class Lesson:
    """What a step reports: its costs, which sum to what was descended, and the share of right answers before it.

    `length` is that of the gradient, before it was clipped.
    """

    terms: Terms
    accuracy: Float[Tensor, "m"]
    length: Float[Tensor, "m"]


def teach(pupils: Pupils, world: Asking, teaching: Teaching, constraints: Constraints) -> Iterator[Lesson]:
    """Go on from where the pupils are; whoever iterates decides what to log and when to save."""
    recorded_for(constraints, pupils.models.settings.layers)  # refuses before the first batch is made
    while pupils.step < teaching.steps:
        yield learn(pupils, world.batch(pupils.step, teaching.batch), teaching, constraints)


def learn(pupils: Pupils, batch: Asked, teaching: Teaching, constraints: Constraints) -> Lesson:
    """Advance the pupils by one batch, in place. A cost that is not finite stops before anything changed."""
    leaves, layers = pupils.models.leaves(), pupils.models.settings.layers
    passed = leaves.forward(batch.tokens, recorded_for(constraints, layers), step=pupils.step)
    logits = leaves.read(passed, batch.asked)
    terms = {"answers": answer_loss(logits, batch.answers), **passed.costs, **costs(constraints, passed, layers)}
    refuse_infinite({f"loss term '{name}'": cost for name, cost in terms.items()}, pupils.step)

    named = leaves.parameters()
    total = torch.stack(list(terms.values())).sum()  # over members too: members never share a weight
    gradients = torch.autograd.grad(
        total, list(named.values()), materialize_grads=True
    )  # scalars have no use for frames
    length = _descend(pupils, torch.cat([gradient.flatten(1) for gradient in gradients], 1), teaching)
    accuracy = (logits.argmax(-1) == batch.answers).float().mean((1, 2))
    return Lesson({name: cost.detach() for name, cost in terms.items()}, accuracy, length)


def answer_loss(logits: Float[Tensor, "m b q c"], answers: Int[Tensor, "b q"]) -> Float[Tensor, "m"]:
    """Cross-entropy of the right answers, in the mean over questions."""
    members = len(logits)
    each = cross_entropy(logits.flatten(0, 2), answers.flatten().repeat(members), reduction="none")
    return each.view(members, -1).mean(1)


@torch.no_grad()
def _descend(pupils: Pupils, gradient: Float[Tensor, "m p"], teaching: Teaching) -> Float[Tensor, "m"]:
    """Shorten each member's gradient where it is too long, and take AdamW's step; how long they were."""
    lengths = torch.linalg.vector_norm(gradient, dim=1)
    refuse_infinite({"gradient": lengths}, pupils.step)
    pupils.explosions += lengths > EXPLOSION
    if teaching.clip is not None:
        gradient.mul_((teaching.clip / lengths.clamp_min(1e-12)).clamp_max(1)[:, None])
    rate = torch.as_tensor(teaching.learning_rate).expand(pupils.models.members)
    rate = rate.to(gradient.dtype)[:, None] * rate_factor(pupils.step, teaching) * pupils.own_rates
    pupils.step += 1
    pupils.adam.update(pupils.weights.row, gradient, rate, teaching.weight_decay, age=pupils.step)
    return lengths
