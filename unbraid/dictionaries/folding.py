"""Fold a normalization into the weights of a stack, so that it takes and gives activations as the model has them.

With y = (x - mean) / scale, and codes that grow with scale as rows of the decoder must keep length one,

    encoder, decoder   as they are          encoder_bias ← scale · encoder_bias
    pre_bias ← mean + scale · pre_bias      codes(x) = scale · codes(y)         x̂ = scale · ŷ + mean

A rule that compares pre-activations with numbers of its own has those scaled as well.
"""

import math
from collections.abc import Callable

import torch

from unbraid.activations.normalization import Normalization
from unbraid.dictionaries.activations import Activation, Named
from unbraid.dictionaries.stack import Stack
from unbraid.dictionaries.variational import Variational

SCALED: dict[str, Callable[[torch.Tensor, float], torch.Tensor]] = {
    "log_threshold": lambda tensor, scale: tensor + math.log(scale),
    "magnitude_bias": lambda tensor, scale: tensor * scale,
    "threshold": lambda tensor, scale: torch.where(tensor > 0, tensor * scale, tensor),
    "log_variance": lambda tensor, scale: tensor + 2 * math.log(scale),
}
"""What becomes of the rules' own weights and memories; others do not depend on the scale."""


def fold(stack: Stack, normalization: Normalization) -> Stack:
    """The stack that does for x what this one does for normalized x."""
    scale = normalization.scale
    pre_bias = torch.zeros_like(stack.decoder[:, 0]) if stack.pre_bias is None else stack.pre_bias
    tensors: Named = {
        **_scaled(stack.tensors(), scale),
        "encoder_bias": stack.encoder_bias * scale,
        "pre_bias": normalization.mean + scale * pre_bias,
    }
    return Stack.of(tensors, _activation(stack.activation, scale))


def _scaled(tensors: Named, scale: float) -> Named:
    return {name: SCALED[name](tensor, scale) if name in SCALED else tensor.clone() for name, tensor in tensors.items()}


def _activation(activation: Activation, scale: float) -> Activation:
    if isinstance(activation, Variational):
        changed = {"sharpness": activation.sharpness / scale, "scale": activation.scale * scale}
        return activation.model_copy(update=changed)
    return activation
