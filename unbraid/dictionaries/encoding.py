"""What fires in use, found the cheapest way there is."""

from unbraid.axes import Float, Tensor
from unbraid.codes import Codes
from unbraid.dictionaries import operations
from unbraid.dictionaries.activations import Relu, TopK
from unbraid.dictionaries.lists import Inputs, serve, too_dense
from unbraid.dictionaries.stack import Stack


def encode(stack: Stack, x: Float[Tensor, "b d"]) -> Codes:
    """What fires in use, on the device of x: by lists where they serve, by dense products where they do not.

    What is not a number is in no list: dense products show it.
    """
    inputs = Inputs(x.to(stack.device))
    lists = None
    listed = isinstance(stack.activation, Relu | TopK) and serve(stack) and _all_finite(stack, inputs.x)
    if listed and not too_dense(stack, inputs).any():
        lists = operations.of(inputs.x).select(stack, inputs)
    return stack.inhibited(lists.codes()).to(x.device) if lists is not None else stack.encode(x)


def _all_finite(stack: Stack, x: Float[Tensor, "b d"]) -> bool:
    """Whether sums say so; one that overflows says no, which costs time alone."""
    return all(bool(part.sum().isfinite()) for part in (x, stack.encoder, stack.shifted_bias()))
