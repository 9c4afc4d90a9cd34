"""What fired: the currency between worlds, dictionaries and scores.

A sample is a short list of slots `(feature, value)`; a slot that is not used holds the value 0. While nearly everything
fires, early in training, a list of every feature is cheaper written without its indices: the dense layout, in which
slot j *is* feature j. Both layouts mean the same and agree; everything downstream asks through this one face.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import embedding_bag, pad

from unbraid.axes import Float, Int, Tensor


@dataclass(frozen=True)
class Codes:
    """Slots `(features, values)` per member and sample, out of `width` features; `features` None means dense."""

    features: Int[Tensor, "m b k"] | None
    values: Float[Tensor, "m b k"]
    width: int

    @classmethod
    def dense(cls, values: Float[Tensor, "m b f"]) -> "Codes":
        return cls(None, values, values.shape[-1])

    @classmethod
    def after_one_another(cls, parts: "Sequence[Codes]") -> "Codes":
        """The samples of all parts; lists as long as the longest, or dense where one is."""
        if any(part.features is None for part in parts):
            return cls.dense(torch.cat([part.to_dense() for part in parts], 1))
        slots = max(part.values.shape[-1] for part in parts)
        features, values = (
            torch.cat([pad(one, (0, slots - one.shape[-1])) for one in of_all], 1)
            for of_all in ([part.features for part in parts if part.features is not None], [p.values for p in parts])
        )
        return cls(features, values, parts[0].width)

    def to_dense(self) -> Float[Tensor, "m b f"]:
        if self.features is None:
            return self.values
        empty = self.values.new_zeros(*self.values.shape[:2], self.width)
        return empty.scatter_add(-1, self.features.long(), self.values)

    def decode(self, rows: Float[Tensor, "m f d"]) -> Float[Tensor, "m b d"]:
        """Each sample as the sum of the rows that fired, each times its value."""
        if self.features is None:
            return self.values @ rows
        members, samples, slots = self.values.shape
        first_row = torch.arange(members)[:, None, None] * self.width
        flat = embedding_bag(
            (self.features.long() + first_row).reshape(members * samples, slots),
            rows.reshape(members * self.width, -1),
            per_sample_weights=self.values.reshape(members * samples, slots),
            mode="sum",
        )
        return flat.view(members, samples, -1)

    def at(self, asked: Int[Tensor, "m b j"]) -> Float[Tensor, "m b j"]:
        """The values of the features asked for, in each sample; 0 where one did not fire."""
        if self.features is None:
            return self.values.gather(-1, asked)
        found = [(self.values * (self.features == one[..., None])).sum(-1) for one in asked.unbind(-1)]
        return torch.stack(found, -1)

    def counts(self) -> Int[Tensor, "m f"]:
        """In how many samples each feature fired."""
        fired = (self.values != 0).long()
        if self.features is None:
            return fired.sum(1)
        members = fired.shape[0]
        return fired.new_zeros(members, self.width).scatter_add_(-1, self.features.long().flatten(1), fired.flatten(1))

    def l0(self) -> Int[Tensor, "m b"]:
        """How many features fired in each sample."""
        return torch.from_numpy(np.count_nonzero(self.values.detach().numpy(), axis=-1))

    def l1(self) -> Float[Tensor, "m b"]:
        return torch.linalg.vector_norm(self.values, ord=1, dim=-1)
