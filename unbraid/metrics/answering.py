"""Whether questions are answered right, and after how many steps they mostly are.

accuracy    = share of questions whose largest logit is the answer's
steps to a  = the first of the steps looked at where the accuracy is at least a
"""

import torch

from unbraid.axes import Bool, Float, Int, Tensor


def right(logits: Float[Tensor, "m b q c"], answers: Int[Tensor, "b q"]) -> Bool[Tensor, "m b q"]:
    return logits.argmax(-1) == answers


def accuracy(answered: Bool[Tensor, "m b q"]) -> Float[Tensor, "m"]:
    return answered.double().mean((1, 2))


def steps_to(level: float, accuracies: Float[Tensor, "m c"], steps: Int[Tensor, "c"]) -> Float[Tensor, "m"]:
    """From the accuracy at each step that was looked at; NaN where it is never so high."""
    reached = accuracies >= level
    first = steps[reached.int().argmax(-1)].double()
    return torch.where(reached.any(-1), first, torch.nan)
