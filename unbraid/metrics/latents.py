"""SynthSAEBench's scores, as SAELens defines them: each learned feature (latent) against the truth nearest to it.

nearest    = the true feature whose direction has the largest |cos| with the latent's
precision  = fired together / latent fired           recall = fired together / its nearest truth fired
F1         = 2 · precision · recall / (precision + recall)
accuracy   = share of samples in which both fired or neither did
uniqueness = number of different nearest truths / number of latents
MCC        = mean |cos| over the pairs of the best one-to-one matching by |cos|
shrinkage  = mean over samples of |x̂| / |x|, where |x| > 1e-6

Means are over all latents; what is not defined counts as 0. Our own `precision`, `recall` and `f1` go the other way:
over true features, each with its match one to one, by signed cosine. There a true feature that nobody found costs; here
a latent that is dead or tells nothing costs, and one truth may be told many times.

Silence, in worlds with parents: of the samples in which a parent fires, how often its match is silent, apart for those
in which one of its children fires too and those in which none does. A hierarchy that is absorbed shows in the
difference; `absorption` also asks whether the child's feature writes what is missing.
"""

from dataclasses import dataclass

import torch

from unbraid.axes import Bool, Float, Int, Tensor
from unbraid.metrics import recovery

SMALLEST_INPUT = 1e-6
"""Samples shorter than this have no shrinkage."""


def nearest_truth(cosine: Float[Tensor, "m n f"]) -> Int[Tensor, "m f"]:
    """The true feature most like each latent, whatever the sign."""
    return cosine.abs().argmax(1)


def uniqueness(nearest: Int[Tensor, "m f"]) -> Float[Tensor, "m"]:
    """The share of latents that would be left if each nearest truth were told once.

    >>> uniqueness(torch.tensor([[0, 3, 3, 3], [0, 1, 2, 3]])).tolist()
    [0.5, 1.0]
    """
    return torch.tensor([len(row.unique()) / max(len(row), 1) for row in nearest], dtype=torch.float64)


def absolute_mcc(cosine: Float[Tensor, "m n f"]) -> Float[Tensor, "m"]:
    """The mean |cos| of the pairs of the best one-to-one matching: as many as the smaller set has features."""
    size = cosine.abs()
    return recovery.mean_matched_cosine(size, recovery.match(size))


@dataclass(frozen=True)
class LatentCounts:
    """In how many samples each latent fired, its nearest truth fired, and both did; counts of parts add up."""

    together: Int[Tensor, "m f"]
    latent: Int[Tensor, "m f"]
    true: Int[Tensor, "m f"]
    samples: int

    def __add__(self, other: "LatentCounts") -> "LatentCounts":
        return LatentCounts(
            self.together + other.together,
            self.latent + other.latent,
            self.true + other.true,
            self.samples + other.samples,
        )

    def precision(self) -> Float[Tensor, "m f"]:
        """0 for a latent that never fired."""
        return self.together.double() / self.latent.clamp_min(1)

    def recall(self) -> Float[Tensor, "m f"]:
        """0 where the nearest truth never fired."""
        return self.together.double() / self.true.clamp_min(1)

    def f1(self) -> Float[Tensor, "m f"]:
        """0 where they never fired together."""
        return 2 * self.together.double() / (self.latent + self.true).clamp_min(1)

    def accuracy(self) -> Float[Tensor, "m f"]:
        """The share of samples in which both fired or neither did."""
        return 1 - (self.latent + self.true - 2 * self.together).double() / max(self.samples, 1)


def count_latents(
    features: Int[Tensor, "m b k"] | None,
    fired: Bool[Tensor, "m b k"],
    truth: Bool[Tensor, "b n"],
    nearest: Int[Tensor, "m f"],
) -> LatentCounts:
    """Counts from lists of latents, `features` in which slots `fired`; or with None, from every latent in order."""
    members, width = nearest.shape
    true = truth.sum(0)[nearest]
    if features is None:
        both = torch.stack([(truth[:, near] & on).sum(0) for near, on in zip(nearest, fired, strict=True)])
        return LatentCounts(both, fired.sum(1), true, len(truth))
    listed = features.long().flatten(1)
    near = nearest.gather(1, listed).view(fired.shape)
    told = torch.stack([truth.gather(1, row) for row in near]) & fired
    empty = torch.zeros(members, width, dtype=torch.long, device=fired.device)
    both, latent = (empty.scatter_add(1, listed, on.flatten(1).long()) for on in (told, fired))
    return LatentCounts(both, latent, true, len(truth))


@dataclass(frozen=True)
class Shrinkage:
    """Sums over samples of |x̂| / |x|; sums of parts add up."""

    ratio: Float[Tensor, "m"]
    samples: int

    @classmethod
    def of(cls, x: Float[Tensor, "b d"], reconstruction: Float[Tensor, "m b d"]) -> "Shrinkage":
        """From inputs and each member's reconstruction of them."""
        length = x.double().norm(dim=-1)
        long = length > SMALLEST_INPUT
        ratio = reconstruction[:, long].double().norm(dim=-1) / length[long]
        return cls(ratio.sum(1), int(long.sum()))

    def __add__(self, other: "Shrinkage") -> "Shrinkage":
        return Shrinkage(self.ratio + other.ratio, self.samples + other.samples)

    def mean(self) -> Float[Tensor, "m"]:
        """1: reconstructions are as long as inputs."""
        return self.ratio / max(self.samples, 1)


@dataclass(frozen=True)
class SilenceCounts:
    """Per true feature that has children: samples in which it fires with a child and without one, and those of them in
    which its match is silent. Counts of parts add up."""

    with_child: Int[Tensor, "m n"]
    silent_with_child: Int[Tensor, "m n"]
    alone: Int[Tensor, "m n"]
    silent_alone: Int[Tensor, "m n"]

    def __add__(self, other: "SilenceCounts") -> "SilenceCounts":
        return SilenceCounts(
            self.with_child + other.with_child,
            self.silent_with_child + other.silent_with_child,
            self.alone + other.alone,
            self.silent_alone + other.silent_alone,
        )

    def by_parent(self) -> tuple[Float[Tensor, "m n"], Float[Tensor, "m n"]]:
        """How often each parent's match is silent, with a child and alone; NaN where that never happened."""
        return self.silent_with_child / self.with_child, self.silent_alone / self.alone

    def rates(self) -> tuple[Float[Tensor, "m"], Float[Tensor, "m"]]:
        """The means over parents that fired both with a child and alone, so that both are of the same parents."""
        both = (self.with_child > 0) & (self.alone > 0)
        with_child, alone = (torch.where(both, rate, torch.nan).nanmean(-1) for rate in self.by_parent())
        return with_child.double(), alone.double()


def count_silence(
    parents: Int[Tensor, "n"], true: Int[Tensor, "b k"], strengths: Float[Tensor, "b k"], values: Float[Tensor, "m b k"]
) -> SilenceCounts:
    """Counts from lists of true features, how strongly each fires (0: not at all) and what its match's value is."""
    has_children = torch.zeros(len(parents), dtype=torch.bool, device=parents.device)
    has_children[parents[parents >= 0]] = True
    on = strengths != 0
    with_child = ((parents[true][:, None, :] == true[:, :, None]) & on[:, None, :]).any(-1) & on
    alone = has_children[true] & on & ~with_child
    silent = values == 0
    empty = torch.zeros(len(values), len(parents), dtype=torch.long, device=values.device)

    def total(slots: Bool[Tensor, "m b k"]) -> Int[Tensor, "m n"]:
        return empty.scatter_add(1, true.flatten().expand(len(values), -1), slots.flatten(1).long())

    every = torch.ones_like(silent)
    return SilenceCounts(
        total(every & with_child), total(silent & with_child), total(every & alone), total(silent & alone)
    )
