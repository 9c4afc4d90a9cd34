"""The face of a rule by which features fire: a record of settings, with weights and a memory of its own if need be.

| part         | what                                                                            | shape     |
|--------------|---------------------------------------------------------------------------------|-----------|
| `parameters` | weights of its own as they start: trained, saved, and started anew with a feature | `m f`     |
| `memory`     | what it remembers between steps, from each member's seed: saved, never trained  | `m`       |
| `codes`      | what fires when a dictionary is used                                            | codes     |
| `fire`       | what fires in a training step, and what that costs beside the squared error     | `Fired`   |

Both ways to fire are functions of the pre-activations and the stack's tensors alone; random draws come from a seed and
a count kept in memory. So company does not matter, and a resumed training draws the same.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from unbraid.axes import Float, Tensor
from unbraid.codes import Codes
from unbraid.config import Record

Named = dict[str, Tensor]
Weights = Mapping[str, Tensor]
"""Every tensor of a stack by name: encoder, encoder_bias, decoder, …, and those of the rule."""


@dataclass(frozen=True)
class Fired:
    """What a training step makes of pre-activations."""

    codes: Codes
    counted: Float[Tensor, "m b"] | None = None
    """What the sparsity cost counts in each sample; None: Σ|code| of the codes that are decoded in the end."""
    again: Codes | None = None
    """Codes from which the decoder, held still, must reconstruct as well."""
    costs: Named = field(default_factory=dict)
    """Costs of the rule itself, each `m`."""
    memory: Named = field(default_factory=dict)
    """What it will remember."""
    seen: Codes | None = None
    """What is said to have fired, where that is not what was decoded."""


class Activation(Record, ABC):
    codes_held: ClassVar[int] = 9
    """So many numbers for every sample and feature does a training step hold at its height, at most (docs/scale.md)."""

    def parameters(self, members: int, features: int) -> Named:
        return {}

    def memory(self, seeds: Sequence[int]) -> Named:
        return {}

    @abstractmethod
    def codes(self, pre: Float[Tensor, "m b f"], weights: Weights) -> Codes:
        """What fires, and how strongly."""

    def fire(self, pre: Float[Tensor, "m b f"], weights: Weights) -> Fired:
        return Fired(self.codes(pre, weights))

    def probabilities(self, pre: Float[Tensor, "m b f"], weights: Weights) -> Float[Tensor, "m b f"]:
        """How likely each feature is to fire: 0 or 1, but for rules that are not sure."""
        return (self.codes(pre, weights).to_dense() != 0).to(pre.dtype)
