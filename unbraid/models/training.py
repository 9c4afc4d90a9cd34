"""Train m transformers on sequences with questions: one step, on one page.

batch → forward → cross-entropy of answers + the model's own costs + the constraints' → gradients → clip → AdamW

A text asks for the next token at every token. Members share the batch; their losses are summed, and no weight, draw or
clipping is shared: company does not matter.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch.nn.functional import cross_entropy

from unbraid.axes import Float, Int, Tensor
from unbraid.devices import Precision, find_device
from unbraid.models import ModelConfig, Models, start_models
from unbraid.models.config import ModelTraining
from unbraid.models.constraints import Constraints, costs, recorded_for
from unbraid.schedule import BETA1, BETA2, EPSILON, check_finite, rate_factor

LOSS_SCALE = 1024.0
"""In float16 the loss is multiplied by this on its way back, and its gradients divided: they would vanish."""
GRADIENT_SPIKE = 10.0
"""A gradient whose norm exceeds this, before clipping, counts as a spike."""


Named = dict[str, Tensor]


@dataclass(frozen=True)
class FlatParameters:
    """All weights of each member as one row, and the same numbers by name."""

    row: Float[Tensor, "m p"]
    named: Named

    @classmethod
    def copy_of(cls, tensors: Named) -> "FlatParameters":
        """These tensors, copied side by side."""
        return cls.view_of(torch.cat([tensor.flatten(1) for tensor in tensors.values()], 1), tensors)

    @classmethod
    def view_of(cls, row: Float[Tensor, "m p"], like: Named) -> "FlatParameters":
        """A row under the names and shapes of these tensors."""
        pieces = row.split([tensor[0].numel() for tensor in like.values()], 1)
        named = {name: piece.view(t.shape) for piece, (name, t) in zip(pieces, like.items(), strict=True)}
        return cls(row, named)


@dataclass(frozen=True)
class AdamW:
    """The moments of every weight; every member has its own rate, and decay is decoupled.

    mean ← β₁ mean + (1-β₁) g        square ← β₂ square + (1-β₂) g²
    p    ← p - rate · decay · p - rate · (mean / (1-β₁^age)) / (√(square / (1-β₂^age)) + ε)
    """

    mean: FlatParameters
    square: FlatParameters

    @classmethod
    def start(cls, weights: FlatParameters) -> "AdamW":
        mean, square = (FlatParameters.view_of(torch.zeros_like(weights.row), weights.named) for _ in range(2))
        return cls(mean, square)

    def update(self, row: Tensor, gradient: Tensor, rate: Float[Tensor, "m #p"], decay: float, age: int) -> None:
        """One step down the gradient, in place; `age` counts this one."""
        mean, square = self.mean.row, self.square.row
        mean.lerp_(gradient, 1 - BETA1)
        square.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
        denominator = square.sqrt().div_((1 - BETA2**age) ** 0.5).add_(EPSILON)
        row.mul_(1 - rate * decay)
        row.sub_(torch.div(mean, denominator, out=denominator).mul_(rate / (1 - BETA1**age)))


@runtime_checkable
class QABatch(Protocol):
    """Sequences, the positions at which questions are asked, and the right answers."""

    @property
    def tokens(self) -> Int[Tensor, "b t"]: ...
    @property
    def asked(self) -> Int[Tensor, "b q"]: ...
    @property
    def answers(self) -> Int[Tensor, "b q"]: ...


@runtime_checkable
class SequenceTask(Protocol):
    """A world of stories or text to train on: the same position always gives the same batch."""

    @property
    def vocabulary(self) -> tuple[str, ...]: ...
    @property
    def answers(self) -> tuple[str, ...]: ...
    @property
    def length(self) -> int: ...
    def batch(self, position: int, size: int) -> QABatch: ...


@dataclass
class ModelState:
    """A training in progress: models, the optimiser's moments and the step. `train_model` advances it in place.

    Attributes
    ----------
    models : Models
        The models as trained so far.
    step : int
        Steps done.
    gradient_spikes : integer Tensor, shape (m,)
        Steps so far whose gradient norm, before clipping, was above 10.
    gradient_peak : Tensor, shape (m,)
        The largest gradient norm so far, before clipping.

    Examples
    --------
    >>> import unbraid as ub
    >>> config = ub.Transformer(d_model=8, heads=2, d_ff=8)
    >>> state = ub.ModelState.start(config, ub.Stories(), seeds=[0, 1])
    >>> state.models.members, state.step
    (2, 0)
    """

    models: Models
    weights: FlatParameters
    adam: AdamW
    rate_multipliers: Float[Tensor, "1 p"]
    """The learning rate of each number, relative to the others."""
    gradient_spikes: Int[Tensor, "m"]
    """Steps so far whose gradient norm exceeded `GRADIENT_SPIKE`, before clipping."""
    gradient_peak: Float[Tensor, "m"]
    """The largest gradient norm so far, before clipping."""
    step: int = 0

    @classmethod
    def start(
        cls,
        settings: ModelConfig,
        task: SequenceTask,
        seeds: Sequence[int],
        device: str = "cpu",
        precision: Precision = "float32",
    ) -> "ModelState":
        """Untrained models for this task, one per seed, on a device; their weights are drawn on the CPU."""
        models = start_models(settings, len(task.vocabulary), task.length, len(task.answers), seeds)
        return cls.of(models.to(find_device(device), precision))

    @classmethod
    def of(cls, models: Models) -> "ModelState":
        """A training that begins with these weights, which are copied."""
        weights = FlatParameters.copy_of(models.parameters())
        multiplier = models.settings.rate_multiplier
        rates = torch.cat([torch.full((1, p[0].numel()), multiplier(name)) for name, p in weights.named.items()], 1)
        rates = rates.to(models.device)
        spikes, peak = torch.zeros(models.members, dtype=torch.int64), weights.row.new_zeros(models.members)
        spikes = spikes.to(models.device)
        return cls(models.with_parameters(weights.named), weights, AdamW.start(weights), rates, spikes, peak)

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor of the state by a flat name; the same storage, not copies."""
        groups = {"models": self.weights.named, "mean": self.adam.mean.named, "square": self.adam.square.named}
        flat = {f"{group}.{name}": tensor for group, named in groups.items() for name, tensor in named.items()}
        return {**flat, "gradient_spikes": self.gradient_spikes, "gradient_peak": self.gradient_peak}


@dataclass(frozen=True)
class StepOutput:
    """What a step reports, `m` each."""

    terms: dict[str, Tensor]
    """Costs by name; their sum was descended."""
    accuracy: Float[Tensor, "m"]
    """Share of right answers before the step."""
    gradient_norm: Float[Tensor, "m"]
    """Before clipping."""


def train_model(
    state: ModelState, task: SequenceTask, training: ModelTraining, constraints: Constraints
) -> Iterator[StepOutput]:
    """Train models on stories or text, one step per iteration, from where the state is to `training.steps`.

    Nothing happens until you iterate. You decide what to log and when to save.

    Parameters
    ----------
    state : ModelState
        The training so far, from `ModelState.start`; changed in place.
    task : Stories or Text
        The world to train on; step i uses its batch i.
    training : ModelTraining
        Steps, batch size and learning rate.
    constraints : dict of str to Constraint
        Costs on heads by name; {} for none.

    Returns
    -------
    iterator of StepOutput
        One per step: `terms`, the loss terms by name in nats, `accuracy` and `gradient_norm`, each of shape (m,).

    Examples
    --------
    >>> import unbraid as ub
    >>> world = ub.Stories()
    >>> state = ub.ModelState.start(ub.Transformer(d_model=8, heads=2, d_ff=8), world, seeds=[0])
    >>> training = ub.ModelTraining(steps=2, batch=4)
    >>> outputs = list(ub.train_model(state, world, training, {"orthogonality": ub.Orthogonality()}))
    >>> state.step, sorted(outputs[-1].terms)
    (2, ['answers', 'orthogonality'])
    >>> state.models.members
    1
    """
    recorded_for(constraints, state.models.settings.layers)  # refuses before the first batch is made
    while state.step < training.steps:
        yield train_step(state, task.batch(state.step, training.batch), training, constraints)


def train_step(state: ModelState, batch: QABatch, training: ModelTraining, constraints: Constraints) -> StepOutput:
    """Advance the state by one batch, in place. A cost that is not finite stops before anything changed."""
    models, layers = state.models.requires_grad_copy(), state.models.settings.layers
    tokens, asked, answers = (t.to(models.device) for t in (batch.tokens, batch.asked, batch.answers))
    output = models.forward(tokens, recorded_for(constraints, layers), step=state.step)
    logits = models.read(output, asked)
    terms = {"answers": answer_loss(logits, answers), **output.costs, **costs(constraints, output, layers)}
    check_finite({f"loss term '{name}'": cost for name, cost in terms.items()}, state.step)

    parameters = list(models.parameters().values())
    total = torch.stack(list(terms.values())).sum()  # over members too: members never share a weight
    scale = LOSS_SCALE if models.precision == "float16" else 1.0
    gradients = torch.autograd.grad(total * scale, parameters, materialize_grads=True)  # scalars have no use for frames
    norms = _descend(state, torch.cat([gradient.flatten(1) for gradient in gradients], 1).div_(scale), training)
    accuracy = (logits.argmax(-1) == answers).float().mean((1, 2))
    return StepOutput({name: cost.detach() for name, cost in terms.items()}, accuracy, norms)


def answer_loss(logits: Float[Tensor, "m b q c"], answers: Int[Tensor, "b q"]) -> Float[Tensor, "m"]:
    """Cross-entropy of the right answers, in the mean over questions, in nats."""
    members = len(logits)
    losses = cross_entropy(logits.flatten(0, 2), answers.flatten().repeat(members), reduction="none")
    return losses.view(members, -1).mean(1)


@torch.no_grad()
def _descend(state: ModelState, gradient: Float[Tensor, "m p"], training: ModelTraining) -> Float[Tensor, "m"]:
    """Clip each member's gradient and take AdamW's step; the norms before clipping."""
    norms = torch.linalg.vector_norm(gradient, dim=1)
    check_finite({"gradient": norms}, state.step)
    state.gradient_spikes += norms > GRADIENT_SPIKE
    state.gradient_peak.copy_(torch.maximum(state.gradient_peak, norms))
    if training.clip is not None:
        gradient.mul_((training.clip / norms.clamp_min(1e-12)).clamp_max(1)[:, None])
    rate = torch.as_tensor(training.learning_rate).to(gradient).expand(state.models.members)
    rate = rate[:, None] * rate_factor(state.step, training) * state.rate_multipliers
    state.step += 1
    state.adam.update(state.weights.row, gradient, rate, training.weight_decay, age=state.step)
    return norms
