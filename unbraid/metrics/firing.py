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
    learned: Bool[Tensor, "m b f"], true: Bool[Tensor, "b n"], matched: Int[Tensor, "m n"]
) -> FiringCounts:
    """Counts for every true feature and its match; a feature without a match is one whose match never fires."""
    index = matched.clamp_min(0)[:, None, :].expand(-1, learned.shape[1], -1)
    partner = learned.gather(-1, index) & (matched >= 0)[:, None, :]
    together = (partner & true).sum(1)
    return FiringCounts(together, partner.sum(1), true.sum(0).expand_as(together))


def mean_over_fired(score: Float[Tensor, "m n"], counts: FiringCounts) -> Float[Tensor, "m"]:
    """The mean over true features that fired at all; a match that never fired scores 0."""
    fired = counts.true > 0
    return torch.where(fired, score.nan_to_num(0), 0).sum(-1) / fired.sum(-1)
