"""What the kernels of Adam take: weights and moments as arrays to change, and rates by the age of features."""

import numpy as np

from unbraid.axes import Float, Tensor
from unbraid.training.adam import BETA1, BETA2
from unbraid.training.step import State


def weights_and_moments(state: State) -> list[np.ndarray]:
    """Encoder, its bias and decoder, each with its two moments."""
    groups = (state.stack.parameters(), state.adam.mean, state.adam.square)
    return [tensors[name].numpy() for name in ("encoder", "encoder_bias", "decoder") for tensors in groups]


def grown_older(state: State, rate: Float[Tensor, "m"]) -> tuple[np.ndarray, np.ndarray]:
    """Count the update; give the rates over Adam's first correction, and the roots of its second, per feature."""
    for age in state.adam.age.values():
        age.add_(1)
    age = state.adam.age["encoder"]
    return (rate[:, None] / (1 - BETA1**age)).float().numpy(), (1 - BETA2**age).sqrt().float().numpy()
