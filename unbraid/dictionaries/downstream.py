"""The rest of a model, behind the site of a dictionary: what it makes of a batch with other activations there.

The rows of such a batch are those of whole sequences, one after the other. What a model says is asked at n places: of a
language model every token that another follows, of a model that answers questions its questions.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from unbraid.axes import Float, Int, Tensor


@dataclass(frozen=True)
class Said:
    """What a model says, and the residual stream behind each of the layers after the site, at the rows of the batch."""

    logits: Float[Tensor, "m n v"]
    later: Sequence[Float[Tensor, "m b e"]] = ()


class Downstream(ABC):
    """A model that goes on from a site; give one with `Inputs` to train a dictionary through it.

    Subclasses say what the model makes of other activations, in the dictionary's units, with gradients; and what is
    right at each place.
    """

    @abstractmethod
    def run(self, rows: Float[Tensor, "m b o"] | None) -> Said:
        """With these rows in place of the activations at the site; None: as the model is, m = 1."""

    @property
    @abstractmethod
    def right(self) -> Int[Tensor, "n"]:
        """The word or answer that is right at each place."""

    @cached_property
    def as_it_is(self) -> Said:
        """What the model says on its own."""
        with torch.no_grad():
            return self.run(None)
