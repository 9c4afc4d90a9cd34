"""What fired: the currency between worlds, dictionaries and scores.

A sample is a short list of slots `(feature, value)`; a slot that is not used holds the value 0. While nearly everything
fires, early in training, a list of every feature is cheaper written without its indices: the dense layout, in which
slot j *is* feature j. Both layouts mean the same and agree; everything downstream asks through this one class.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn.functional import embedding_bag, pad

from unbraid.axes import Float, Int, Tensor
from unbraid.devices import Precision, product


@dataclass(frozen=True)
class Codes:
    """Feature activations of b samples in m dictionaries, as lists of what fired or as a dense array.

    Most features are 0 in most samples, so a sample is k slots of (feature, value). With `features=None` the layout is
    dense: slot j is feature j. All methods accept both. Samples may have several axes, as those of inputs (batch,
    sequence, dimension) do: b then stands for them all.

    Parameters
    ----------
    features : integer Tensor, shape (m, b, k), or None
        The feature of each slot; None means dense.
    values : Tensor, shape (m, b, k)
        The activation in each slot; 0 in an unused slot.
    width : int
        f, the number of features.

    Examples
    --------
    >>> import torch, unbraid as ub
    >>> codes = ub.Codes(torch.tensor([[[2, 0]]]), torch.tensor([[[1.5, 0.0]]]), width=4)
    >>> codes.to_dense().tolist()
    [[[0.0, 0.0, 1.5, 0.0]]]
    >>> codes.l0().tolist()  # features that fired, by member and sample
    [[1]]
    >>> codes.to_sparse(0).shape, codes.to_sparse(0).nnz  # one member's, as scipy has it
    ((1, 4), 1)
    """

    features: Int[Tensor, "m *b k"] | None
    values: Float[Tensor, "m *b k"]
    width: int

    @classmethod
    def dense(cls, values: Float[Tensor, "m *b f"]) -> "Codes":
        """Codes with a value for every feature."""
        return cls(None, values, values.shape[-1])

    @classmethod
    def of_sparse(cls, members: Sequence[Any]) -> "Codes":
        """From a `scipy.sparse` array (b, f) of each member."""
        arrays = [member.tocsr() for member in members]
        slots = max(1, *(int(np.diff(array.indptr).max(initial=0)) for array in arrays))
        shape = (len(arrays), arrays[0].shape[0], slots)
        features, values = np.zeros(shape, np.int64), np.zeros(shape, np.float32)
        for member, array in enumerate(arrays):
            samples = np.repeat(np.arange(array.shape[0]), np.diff(array.indptr))
            places = np.arange(array.nnz) - array.indptr[samples]
            features[member, samples, places], values[member, samples, places] = array.indices, array.data
        return cls(torch.from_numpy(features), torch.from_numpy(values), arrays[0].shape[1])

    @classmethod
    def of_cells(
        cls, samples: np.ndarray, features: np.ndarray, values: np.ndarray, starts: np.ndarray, width: int
    ) -> "Codes":
        """From one list of what fired, sorted by sample: each with its value, and where each sample's part begins."""
        slot = np.arange(samples.size) - starts[samples]
        shape = (1, starts.size, int(slot.max(initial=0)) + 1)
        listed, strengths = np.zeros(shape, np.int64), np.zeros(shape, np.float32)
        listed[0, samples, slot] = features
        strengths[0, samples, slot] = values
        return cls(torch.from_numpy(listed), torch.from_numpy(strengths), width)

    @classmethod
    def concatenate(cls, batches: "Sequence[Codes]") -> "Codes":
        """The samples of all batches; lists as long as the longest, or dense where one is."""
        if any(codes.features is None for codes in batches):
            return cls.dense(torch.cat([codes.to_dense() for codes in batches], 1))
        slots = max(codes.values.shape[-1] for codes in batches)
        features, values = (
            torch.cat([pad(tensor, (0, slots - tensor.shape[-1])) for tensor in tensors], 1)
            for tensors in ([c.features for c in batches if c.features is not None], [c.values for c in batches])
        )
        return cls(features, values, batches[0].width)

    def to_dense(self) -> Float[Tensor, "m *b f"]:
        """The activation of every feature, (m, b, f); 0 where it did not fire."""
        if self.features is None:
            return self.values
        empty = self.values.new_zeros(*self.values.shape[:-1], self.width)
        return empty.scatter_add(-1, self.features.long(), self.values)

    def to_sparse(self, member: int) -> Any:
        """One member's as a `scipy.sparse.csr_array` of shape (b, f), with samples of several axes one after another.

        Parameters
        ----------
        member : int
            Which one, from 0.
        """
        from scipy.sparse import csr_array  # slow to load

        values = self.values[member].detach().flatten(0, -2).cpu().numpy()
        samples, slots = values.nonzero()
        features = (
            slots if self.features is None else self.features[member].flatten(0, -2).cpu().numpy()[samples, slots]
        )
        return csr_array((values[samples, slots], (samples, features)), (len(values), self.width))

    def lists(self) -> "Codes":
        """The same as lists, as long as the sample in which most fires needs."""
        if self.features is not None:
            return self
        slots = max(1, int(self.l0().max())) if self.values.numel() else 1
        features = self.values.abs().topk(slots, dim=-1).indices.sort(-1).values
        return Codes(features, self.values.gather(-1, features), self.width)

    def shaped(self, *samples: int) -> "Codes":
        """The same codes, with samples in these axes."""
        members, slots = self.values.shape[0], self.values.shape[-1]
        features = None if self.features is None else self.features.view(members, *samples, slots)
        return Codes(features, self.values.view(members, *samples, slots), self.width)

    def to(self, device: torch.device | str) -> "Codes":
        """The same codes on this device."""
        features = None if self.features is None else self.features.to(device)
        return Codes(features, self.values.to(device), self.width)

    def decode(self, rows: Float[Tensor, "m f d"], precision: Precision = "float32") -> Float[Tensor, "m *b d"]:
        """Each sample as the sum of the rows that fired, each times its value; of lists, in float32."""
        if self.values.ndim != 3:
            flat = self.shaped(self.values[0, ..., 0].numel()).decode(rows, precision)
            return flat.view(*self.values.shape[:-1], rows.shape[-1])
        if self.features is None:
            return product(self.values, rows, precision)
        members, samples, slots = self.values.shape
        first_row = torch.arange(members, device=rows.device)[:, None, None] * self.width
        flat = embedding_bag(
            (self.features.long() + first_row).reshape(members * samples, slots),
            rows.reshape(members * self.width, -1),
            per_sample_weights=self.values.reshape(members * samples, slots),
            mode="sum",
        )
        return flat.view(members, samples, -1)

    def at(self, asked: Int[Tensor, "m *b j"]) -> Float[Tensor, "m *b j"]:
        """The values of the features asked for, in each sample; 0 where one did not fire."""
        if self.features is None:
            return self.values.gather(-1, asked)
        values = [(self.values * (self.features == index[..., None])).sum(-1) for index in asked.unbind(-1)]
        return torch.stack(values, -1)

    def column(self, feature: int) -> Float[Tensor, "m n"]:
        """One feature's values in every sample, those of several axes one after another."""
        values = self.values.flatten(1, -2)
        if self.features is None:
            return values[..., feature]
        return (values * (self.features.flatten(1, -2) == feature)).sum(-1)

    def counts(self) -> Int[Tensor, "m f"]:
        """In how many samples each feature fired."""
        fired = (self.values != 0).long()
        if self.features is None:
            return fired.flatten(1, -2).sum(1)
        members = fired.shape[0]
        return fired.new_zeros(members, self.width).scatter_add_(-1, self.features.long().flatten(1), fired.flatten(1))

    def l0(self) -> Int[Tensor, "m *b"]:
        """How many features fired in each sample, (m, b)."""
        if self.values.device.type != "cpu":
            return self.values.count_nonzero(-1)
        return torch.from_numpy(np.count_nonzero(self.values.detach().numpy(), axis=-1))

    def l1(self) -> Float[Tensor, "m *b"]:
        """The sum of absolute activations of each sample, (m, b)."""
        return torch.linalg.vector_norm(self.values, ord=1, dim=-1)
