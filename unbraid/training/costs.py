"""The penalties of a step, differentiated by autograd but only in the values that fired (and in weights they look at).

total = fidelity + Σ penalties        what is left to the fast steps is the fidelity, whose gradients are written out

What a sparsity cost counts, Σ|code| of each sample, is one number to autograd: its gradient is that of every code
that fired.
"""

from dataclasses import dataclass, replace

import torch

from unbraid.axes import Float, Tensor
from unbraid.codes import Codes
from unbraid.dictionaries.activation import Fired
from unbraid.dictionaries.stack import Stack
from unbraid.mechanisms.mechanism import Forward, Mechanisms, Signals
from unbraid.training import kernels
from unbraid.training.schedule import Training
from unbraid.training.step import Terms


@dataclass(frozen=True)
class Costs:
    """Every cost by name, and the penalties' gradients in what they look at: values that fired, their sums, weights."""

    terms: Terms
    in_values: Float[Tensor, "m b k"] | None
    in_counted: Float[Tensor, "m b"]
    in_weights: dict[str, Tensor]

    def add_to(self, gradients: Float[Tensor, "m b k"], codes: Codes) -> Float[Tensor, "m b k"]:
        """The gradients in these codes, in place, with the penalties' among them."""
        if self.in_values is not None:
            gradients.add_(self.in_values)
        kernels.add_where_fired(codes.values.numpy(), self.in_counted.numpy(), gradients.numpy())
        return gradients


def find_costs(
    stack: Stack, forward: Forward, fidelity: Float[Tensor, "m"], mechanisms: Mechanisms, signals: Signals
) -> Costs:
    terms, leaves = {"fidelity": fidelity}, stack.leaves()
    values = forward.codes.values.detach().requires_grad_()
    codes, counted = replace(forward.codes, values=values), forward.codes.l1().requires_grad_()
    seen = Forward(forward.x, codes, forward.reconstruction, Fired(codes, counted), found=forward.found)
    for name, mechanism in mechanisms.items():
        cost = mechanism.penalty(seen, leaves, signals)
        if cost is not None:
            terms[name] = cost
    penalties = [cost for name, cost in terms.items() if name != "fidelity" and cost.requires_grad]
    named = {"values": values, "counted": counted, **leaves.parameters()}
    found: dict[str, Tensor] = {}
    if penalties:
        gradients = torch.autograd.grad(torch.stack(penalties).sum(), list(named.values()), allow_unused=True)
        found = {name: gradient for name, gradient in zip(named, gradients, strict=True) if gradient is not None}
    in_values, in_counted = found.pop("values", None), found.pop("counted", torch.zeros_like(counted))
    return Costs({name: cost.detach() for name, cost in terms.items()}, in_values, in_counted.contiguous(), found)


def shared_by(training: Training, samples: int, dimensions: int) -> int:
    """What the sum of squares is divided by; the gradient of the fidelity is 2 / this · error."""
    return samples * (dimensions if training.fidelity == "mean_square" else 1)
