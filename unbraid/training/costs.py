"""The penalties of a step, differentiated by autograd but only in the values that fired (and in weights they look at).

total = fidelity + Σ penalties        what is left to the fast steps is the fidelity, whose gradients are written out
"""

from dataclasses import dataclass

import torch

from unbraid.axes import Float, Tensor
from unbraid.codes import Codes
from unbraid.dictionaries.stack import Stack
from unbraid.mechanisms.mechanism import Forward, Mechanisms, Signals
from unbraid.training.schedule import Training
from unbraid.training.step import Terms


@dataclass(frozen=True)
class Costs:
    """Every cost by name, and the penalties' gradients: in the values that fired, and in weights if there are any."""

    terms: Terms
    in_values: Float[Tensor, "m b k"]
    in_weights: dict[str, Tensor]


def find_costs(
    stack: Stack, forward: Forward, fidelity: Float[Tensor, "m"], mechanisms: Mechanisms, signals: Signals
) -> Costs:
    terms, leaves = {"fidelity": fidelity}, stack.leaves()
    values = forward.codes.values.detach().requires_grad_()
    codes = Codes(forward.codes.features, values, stack.features)
    seen = Forward(forward.x, codes, forward.reconstruction, found=forward.found)
    for name, mechanism in mechanisms.items():
        cost = mechanism.penalty(seen, leaves, signals)
        if cost is not None:
            terms[name] = cost
    penalties = [cost for name, cost in terms.items() if name != "fidelity" and cost.requires_grad]
    named = leaves.parameters()
    found: list[Tensor | None] = [None] * (1 + len(named))
    if penalties:
        inputs = [values, *named.values()]
        found = list(torch.autograd.grad(torch.stack(penalties).sum(), inputs, allow_unused=True))
    in_values = torch.zeros_like(values, memory_format=torch.contiguous_format) if found[0] is None else found[0]
    in_weights = {name: gradient for name, gradient in zip(named, found[1:], strict=True) if gradient is not None}
    return Costs({name: cost.detach() for name, cost in terms.items()}, in_values.contiguous(), in_weights)


def shared_by(training: Training, samples: int, dimensions: int) -> int:
    """What the sum of squares is divided by; the gradient of the fidelity is 2 / this · error."""
    return samples * (dimensions if training.fidelity == "mean_square" else 1)
