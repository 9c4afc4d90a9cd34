"""What autograd differentiates in the fast steps: the mechanisms' `encode` and their penalties, in the slots alone.

total = reconstruction + Σ penalties      the reconstruction's gradients are written out in the fast steps
∂/∂(what would fire) = (∂ encode)ᵀ · ∂/∂(what fires)

What a sparsity cost counts, Σ|code| of each sample, is one number to autograd: its gradient is that of every code
that fired.
"""

from dataclasses import dataclass, replace

import torch

from unbraid.axes import Float, Tensor
from unbraid.codes import Codes
from unbraid.dictionaries import operations
from unbraid.dictionaries.activations import Fired, Named
from unbraid.dictionaries.mechanisms.mechanism import Forward, Mechanism, Mechanisms, Signals
from unbraid.dictionaries.stack import Stack
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.step import State, encode
from unbraid.schedule import Terms


@dataclass(frozen=True)
class Encoded:
    """What fires, and what would have; and what that was made from, where a mechanism acts here."""

    codes: Codes
    would_fire: Codes
    inputs: Named
    """What `encode` was given, as autograd sees it: values and weights."""
    fires: Float[Tensor, "m b k"] | None = None

    @classmethod
    def of(cls, codes: Codes, stack: Stack, mechanisms: Mechanisms, signals: Signals) -> "Encoded":
        if all(type(mechanism).encode is Mechanism.encode for mechanism in mechanisms.values()):
            return cls(codes, codes, {})
        weights, values = stack.requires_grad_copy(), codes.values.detach()
        if codes.features is not None:  # what fires will be written in the place of what would
            values = values.clone(memory_format=torch.contiguous_format)
        values.requires_grad_()
        with torch.enable_grad():
            after = encode(Codes(codes.features, values, codes.width), weights, mechanisms, signals)
        if after.features is not codes.features or after.values.shape != values.shape:
            raise TypeError("a mechanism's encode must return codes in the slots it was given")
        before, fires = (Codes(codes.features, v.detach(), codes.width) for v in (values, after.values))
        return cls(fires, before, {"values": values, **weights.parameters()}, after.values)

    @torch.no_grad()
    def back(self, gradients: Float[Tensor, "m b k"], in_weights: Named) -> tuple[Float[Tensor, "m b k"], Named]:
        """Gradients in what would fire, and in weights, from those in what fires."""
        if self.fires is None:
            return gradients, in_weights
        through = _gradients(self.fires, self.inputs, gradients)
        in_values = through.pop("values").contiguous()
        both = {name: gradient + in_weights.get(name, 0) for name, gradient in through.items()}
        return in_values, {**in_weights, **both}


@dataclass(frozen=True)
class Costs:
    """Every cost by name, and the penalties' gradients in what they look at: values that fired, their sums, weights."""

    terms: Terms
    in_values: Float[Tensor, "m b k"] | None
    in_counted: Float[Tensor, "m b"]
    in_weights: dict[str, Tensor]

    def add_to(self, gradients: Float[Tensor, "m b k"], codes: Codes, codes_count: bool = True) -> Tensor:
        """The gradients in these codes, in place, with the penalties' among them; what counts may not be the codes."""
        if self.in_values is not None:
            gradients.add_(self.in_values)
        if not codes_count:
            return gradients
        operations.of(gradients).add_where_fired(codes.values, self.in_counted, gradients)
        return gradients


def find_costs(
    state: State,
    forward: Forward,
    terms: Terms,
    counted: Float[Tensor, "m b"] | None,
    mechanisms: Mechanisms,
    signals: Signals,
) -> Costs:
    """All costs, given those whose gradients are written out, and the gradients of the mechanisms'.

    `counted` is what a sparsity cost counts, where that is not Σ|code|.
    """
    weights, by_hand, terms = state.stack.requires_grad_copy(), set(terms), dict(terms)
    values = forward.codes.values.detach().requires_grad_()
    codes = replace(forward.codes, values=values)
    counted = (forward.codes.l1() if counted is None else counted.clone()).requires_grad_()
    seen = Forward(forward.x, codes, forward.reconstruction, Fired(codes, counted), known=forward.known)
    for name, mechanism in mechanisms.items():
        cost = mechanism.penalty(seen, weights, signals) if name not in by_hand else None
        if cost is not None:
            terms[name] = cost
    penalties = [cost for name, cost in terms.items() if name not in by_hand and cost.requires_grad]
    named = {"values": values, "counted": counted, **weights.parameters()}
    gradients = _gradients(torch.stack(penalties).sum(), named) if penalties else {}
    in_values, in_counted = gradients.pop("values", None), gradients.pop("counted", torch.zeros_like(counted))
    return Costs({name: cost.detach() for name, cost in terms.items()}, in_values, in_counted.contiguous(), gradients)


def _gradients(output: Tensor, inputs: Named, in_output: Tensor | None = None) -> Named:
    """Those of the inputs that the output depends on."""
    gradients = torch.autograd.grad(output, list(inputs.values()), in_output, allow_unused=True)
    return {name: gradient for name, gradient in zip(inputs, gradients, strict=True) if gradient is not None}


def loss_of(error: Float[Tensor, "m b d"], training: Training) -> tuple[Float[Tensor, "m"], Tensor | float]:
    """The reconstruction loss, and what times the error is its gradient in the error."""
    if training.reconstruction_loss == "norm":
        lengths = torch.linalg.vector_norm(error, dim=2)
        return lengths.mean(1), norm_slopes(lengths)[..., None]
    divisor = loss_divisor(training, *error.shape[1:])
    return error.square().sum((1, 2)) / divisor, 2 / divisor


def loss_divisor(training: Training, samples: int, dimensions: int) -> int:
    """What the sum of squares is divided by; the gradient of the reconstruction loss is 2 / this · error."""
    return samples * (dimensions if training.reconstruction_loss == "mean_square" else 1)


def norm_slopes(lengths: Float[Tensor, "m b"]) -> Float[Tensor, "m b"]:
    """The gradient of the mean length of errors in each error is this times it: 1 / (b · length), 0 where that is 0."""
    return torch.where(lengths > 0, 1 / (lengths.shape[1] * lengths), 0)
