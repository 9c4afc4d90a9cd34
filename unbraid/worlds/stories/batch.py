"""What a batch of stories is: tokens, what is asked and answered, what the answers follow from, and every factor."""

from dataclasses import dataclass

from unbraid.axes import Bool, Int, Tensor


@dataclass(frozen=True)
class StoryBatch:
    tokens: Int[Tensor, "b t"]
    """Padded with 0 at the right, to the longest of the batch."""
    asked: Int[Tensor, "b q"]
    """The position of the question mark, where the answer is read."""
    answers: Int[Tensor, "b q"]
    support: Bool[Tensor, "b q t"]
    """The tokens of the statements that the answer follows from; separators are not among them."""
    factors: dict[str, Int[Tensor, "b t"]]
    """What is so as far as one has read, at every token; -1 where there is nothing (padding, or not yet known)."""

    @property
    def mask(self) -> Bool[Tensor, "b t"]:
        """The tokens that are not padding."""
        return self.tokens != 0

    def first(self, amount: int) -> "StoryBatch":
        """The first so many sequences."""
        return StoryBatch(
            self.tokens[:amount],
            self.asked[:amount],
            self.answers[:amount],
            self.support[:amount],
            {name: values[:amount] for name, values in self.factors.items()},
        )
