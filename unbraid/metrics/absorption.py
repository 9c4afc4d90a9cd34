"""Whether children absorb their parents, where a hierarchy was planted: child c never fires without its parent p.

carried = the coefficient of p in the direction of c's match, fitted by c and p: what it writes of p beyond c's own
          = d·q / p·q,  q = p - (p·c) c
absorbed: c and p fire, p's match is silent, c's match fires: with value a, cos(d, q) ≥ .025, a · carried ≥ .4 strength
          of p
fraction: A / (A + M), M what p's match writes of p, A what the matches of its children do: at most three of them with
          cos(d, q) ≥ .1, no more than what M leaves of p's strength; 0 where A < .4 strength of p or M ≥ all of it

These are SAEBench's rules with its probe replaced by the truth: q, because a child may share a part of its parent's
direction by chance. The rate is the mean over children of how often each absorbs, given that it fires; the fraction the
mean over parents, given that a child fires. A dictionary of the true directions scores 0.
"""

from dataclasses import dataclass

import torch

from unbraid.axes import Bool, Float, Int, Tensor

SILENT = 1e-8
FULL_COSINE, FRACTION_COSINE, SHARE, ABSORBERS = 0.025, 0.1, 0.4, 3
"""SAEBench's thresholds."""
WARNING = (
    "SAEBench warns: absorption needs a language model of at least 1B parameters and a dictionary of at least 16k "
    "features; an undertrained dictionary, or a small one, scores deceptively low. Compare only at equal L0."
)


@dataclass(frozen=True)
class Families:
    """Each true feature's parent (-1: none), and what its match writes: of its parent, and of itself."""

    parents: Int[Tensor, "n"]
    carried: Float[Tensor, "m n"]
    aligned: Float[Tensor, "m n"]
    own: Float[Tensor, "m n"]

    @classmethod
    def of(
        cls,
        truth: Float[Tensor, "n d"],
        directions: Float[Tensor, "m f d"],
        matched: Int[Tensor, "m n"],
        parents: Int[Tensor, "n"],
    ) -> "Families":
        unit = torch.nn.functional.normalize
        truth = unit(truth.double(), dim=-1)
        above = truth[parents.clamp_min(0)] * (parents >= 0)[:, None]
        beyond = above - (above * truth).sum(-1, keepdim=True) * truth
        room = (above * beyond).sum(-1)  # 0 for the parentless, and where a child cannot be told from its parent
        beyond = torch.where(room[:, None] > SILENT, beyond, 0)
        members = torch.arange(len(directions))[:, None]
        found = unit(directions.double(), dim=-1)[members, matched.clamp_min(0)] * (matched >= 0)[..., None]
        carried = (found * beyond).sum(-1) / room.clamp_min(SILENT)
        return cls(parents, carried, (found * unit(beyond, dim=-1)).sum(-1), (found * truth).sum(-1))


@dataclass(frozen=True)
class AbsorptionCounts:
    """Per true feature: as a child, how often it fired and absorbed; as a parent, how often it fired with a child, and
    the sum of fractions. Counts of parts add up."""

    fired: Int[Tensor, "m n"]
    absorbed: Int[Tensor, "m n"]
    with_child: Int[Tensor, "m n"]
    fraction: Float[Tensor, "m n"]

    def __add__(self, other: "AbsorptionCounts") -> "AbsorptionCounts":
        return AbsorptionCounts(
            self.fired + other.fired,
            self.absorbed + other.absorbed,
            self.with_child + other.with_child,
            self.fraction + other.fraction,
        )

    def by_child(self) -> Float[Tensor, "m n"]:
        """How often each child absorbs its parent, of the samples it fires in; NaN where it never did."""
        return self.absorbed / self.fired

    def by_parent(self) -> Float[Tensor, "m n"]:
        """The mean fraction of each parent that is absorbed, of the samples a child fires in; NaN where none did."""
        return self.fraction / self.with_child

    def rate(self) -> Float[Tensor, "m"]:
        return self.by_child().nanmean(-1)

    def mean_fraction(self) -> Float[Tensor, "m"]:
        return self.by_parent().nanmean(-1)


def count_absorption(
    families: Families, true: Int[Tensor, "b k"], strengths: Float[Tensor, "b k"], values: Float[Tensor, "m b k"]
) -> AbsorptionCounts:
    """Counts from lists of true features, how strongly each fires (0: not at all) and what its match's value is."""
    strengths, values = strengths.double(), values.double()
    fired = strengths != 0
    below = (families.parents[true][:, :, None] == true[:, None, :]) & fired[:, :, None] & fired[:, None, :]
    carried, aligned = values * families.carried[:, true], families.aligned[:, true]
    absorbed = _absorbed(below, strengths, values, carried, aligned)
    helping = torch.where(aligned >= FRACTION_COSINE, carried.clamp_min(0), 0)
    taken = (below.mT * helping[:, :, None, :]).topk(min(ABSORBERS, true.shape[1]), -1).values.sum(-1)
    fraction = _fraction(taken, values * families.own[:, true], strengths) * below.any(1)
    tally = torch.zeros_like(families.own)

    def total(what: Tensor) -> Tensor:
        return tally.scatter_add(1, true.flatten().expand(len(tally), -1), what.double().flatten(1))

    one = torch.ones_like(values)
    child, parent = total(one * below.any(2)), total(one * below.any(1))
    return AbsorptionCounts(child.long(), total(absorbed).long(), parent.long(), total(fraction))


def _absorbed(
    below: Bool[Tensor, "b k k"],
    strengths: Float[Tensor, "b k"],
    values: Float[Tensor, "m b k"],
    carried: Float[Tensor, "m b k"],
    aligned: Float[Tensor, "m b k"],
) -> Bool[Tensor, "m b k"]:
    """Which slots hold a child that has absorbed its parent."""
    silent = ((values.abs() > SILENT)[:, :, None, :] & below).any(-1).logical_not()
    strength = (strengths[:, None, :] * below).sum(-1)
    enough = (carried >= SHARE * strength) & (aligned >= FULL_COSINE) & (values > SILENT)
    return below.any(-1) & silent & enough


def _fraction(
    taken: Float[Tensor, "m b k"], kept: Float[Tensor, "m b k"], whole: Float[Tensor, "b k"]
) -> Float[Tensor, "m b k"]:
    """The share that absorbers write of what they and the main feature write, by SAEBench's rules."""
    missing = torch.minimum(taken, whole - kept)
    share = torch.where(kept <= 0, 1, missing / (missing + kept))
    return torch.where((kept >= whole) | (taken < SHARE * whole), 0, share)
