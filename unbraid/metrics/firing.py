"""Whether a learned feature fires when the true feature it is matched with does.

precision = fired together / learned fired      recall = fired together / true fired
F1 = 2 · fired together / (learned fired + true fired)
"""

from dataclasses import dataclass

import torch

from unbraid.axes import Bool, Float, Int, Tensor


@dataclass(frozen=True)
class FiringCounts:
    """In how many samples each true feature fired, its match fired, and both did; counts of parts add up."""

    together: Int[Tensor, "m n"]
    learned: Int[Tensor, "m n"]
    true: Int[Tensor, "m n"]

    def __add__(self, other: "FiringCounts") -> "FiringCounts":
        return FiringCounts(self.together + other.together, self.learned + other.learned, self.true + other.true)

    def precision(self) -> Float[Tensor, "m n"]:
        """NaN where the match never fired."""
        return self.together / self.learned

    def recall(self) -> Float[Tensor, "m n"]:
        """NaN where the true feature never fired."""
        return self.together / self.true

    def f1(self) -> Float[Tensor, "m n"]:
        """NaN where neither ever fired."""
        return 2 * self.together / (self.learned + self.true)


def count_firing(
    true: Int[Tensor, "b k"], together: Bool[Tensor, "m b k"], fired: Bool[Tensor, "b k"], learned: Int[Tensor, "m n"]
) -> FiringCounts:
    """Counts from lists of true features: which of these slots fired, and in which the feature's match did too.

    `learned` is how often each true feature's match fired; 0 for a feature without a match.
    """
    slots, members = true.long().flatten(), len(learned)
    both = torch.zeros_like(learned).scatter_add_(1, slots.expand(members, -1), (together & fired).flatten(1).long())
    planted = torch.zeros_like(learned[0]).scatter_add_(0, slots, fired.flatten().long())
    return FiringCounts(both, learned, planted.expand_as(learned))


def mean_over_fired(score: Float[Tensor, "m n"], counts: FiringCounts) -> Float[Tensor, "m"]:
    """The mean over true features that fired at all; a match that never fired scores 0."""
    fired = counts.true > 0
    return torch.where(fired, score.nan_to_num(0), 0).sum(-1) / fired.sum(-1)
