"""How much of the planted truth a dictionary found, how much it repeats itself, and how both change while it trains.

MMCS = mean over true features t of  max over learned features f of  cos(t, f)        (signed)
MCC  = mean over true features of their cosine in the best one-to-one matching          (Hungarian; 0 without a match)
matched cosine = the same over the true features that have a match: as many as the smaller of the two sets
MMCS with a larger dictionary = mean over its own features of the largest cosine with any feature of the larger
redundancy = mean over features i that fire of  max over other features j that fire of  |cos(w_i, w_j)|

MCC is a mean cosine; it is not Matthews' correlation coefficient, which is φ in `matching.association`.

Tracking compares two checkpoints of a dictionary in training. A true feature is found where its best cosine is at least
a threshold; its entry is the learned feature that has it.

learned    not found before, found now       moved   found both times, by another entry
unlearned  found before, not found now       still   found both times, by the same entry
absent     found neither time
change     1 - cos(direction of its entry before, direction of its entry now)
gain       its best cosine now - its best cosine before: the change of its representativeness

What is unlearned by the same entry turned away from it; else another entry is nearer now, and not near enough.
"""

import numpy as np
import torch

from unbraid.axes import Float, Int, Tensor
from unbraid.metrics.catalog import CONCEPT_FATES, FOUND

PART = 0.5
"""The cosine from which a learned feature counts as partly a true one; that of the sum of two is .71."""
ABSORBED = 0.5
"""The share of a parent that its children carry from which it counts as absorbed."""


def cosines(truth: Float[Tensor, "n d"], directions: Float[Tensor, "m f d"]) -> Float[Tensor, "m n f"]:
    """The cosine of every true with every learned direction; a zero row has cosine 0 with everything."""
    unit = torch.nn.functional.normalize
    return unit(truth, dim=-1) @ unit(directions, dim=-1).mT


def best_cosine(cosine: Float[Tensor, "m n f"]) -> Float[Tensor, "m n"]:
    """The representativeness of each true feature: its cosine with the learned feature most like it."""
    return cosine.amax(-1)


def mmcs(cosine: Float[Tensor, "m n f"]) -> Float[Tensor, "m"]:
    """The mean over n true features of the largest cosine."""
    return best_cosine(cosine).mean(-1)


def mmcs_with(own: Float[Tensor, "m f d"], larger: Float[Tensor, "m g d"], block: int = 1024) -> Float[Tensor, "m"]:
    """How much of each member's own entries another dictionary has too; a block of entries at a time."""
    parts = [
        best_cosine(cosines(rows, other[None]))[0]
        for mine, other in zip(own, larger, strict=True)
        for rows in mine.split(block)
    ]
    return torch.cat(parts).reshape(len(own), -1).mean(-1)


def expected_best(entries: int, dimensions: int) -> float:
    """What a direction's best cosine is with so many random ones, on average: (1 + cosine) / 2 has a Beta law."""
    from scipy import integrate, stats  # takes half a second, and only grids ask

    law = stats.beta((dimensions - 1) / 2, (dimensions - 1) / 2, loc=-1, scale=2)
    cosine = np.linspace(-1, 1, 20_001)
    return float(1 - integrate.trapezoid(law.cdf(cosine) ** entries, cosine))


def match(cosine: Float[Tensor, "m n f"]) -> Int[Tensor, "m n"]:
    """The learned feature each true feature is matched with, one to one; -1 where a small dictionary has none left.

    Found on the CPU, wherever the cosines are.
    """
    from scipy.optimize import linear_sum_assignment  # takes a tenth of a second, and only scoring asks

    matched = torch.full(cosine.shape[:2], -1, dtype=torch.long)
    for member, table in enumerate(cosine.cpu().double().numpy()):
        true, learned = linear_sum_assignment(table, maximize=True)
        matched[member, torch.from_numpy(true)] = torch.from_numpy(learned.astype(np.int64))
    return matched.to(cosine.device)


def matched_cosine(cosine: Float[Tensor, "m n f"], matched: Int[Tensor, "m n"]) -> Float[Tensor, "m n"]:
    """The cosine of each true feature with its match; 0 where it has none."""
    return cosine.gather(-1, matched.clamp_min(0)[..., None])[..., 0] * (matched >= 0)


def mcc(cosine: Float[Tensor, "m n f"], matched: Int[Tensor, "m n"]) -> Float[Tensor, "m"]:
    """The mean over all true features of the cosine with their match, 0 where they have none.

    Parameters
    ----------
    cosine : Tensor, m n f
        Of every true with every learned feature, a member.
    matched : Tensor, m n
        The learned feature of each true one, as `match` gives it; -1 for none.

    Returns
    -------
    Tensor, m
        At most the share of true features that have a match.

    Examples
    --------
    Two entries that are true, for four truths:

    >>> cosine = torch.eye(4)[None, :, :2]
    >>> mcc(cosine, match(cosine)).item(), mean_matched_cosine(cosine, match(cosine)).item()
    (0.5, 1.0)
    """
    return matched_cosine(cosine, matched).mean(-1)


def mean_matched_cosine(cosine: Float[Tensor, "m n f"], matched: Int[Tensor, "m n"]) -> Float[Tensor, "m"]:
    """The mean over the true features that have a match: a small dictionary is not held to what it has no room for.

    Parameters
    ----------
    cosine : Tensor, m n f
        Of every true with every learned feature, a member.
    matched : Tensor, m n
        The learned feature of each true one, as `match` gives it; -1 for none.

    Returns
    -------
    Tensor, m
        `mcc` where there are at least as many learned as true features; else larger than that.

    Examples
    --------
    >>> cosine = torch.eye(4)[None, :, :2]
    >>> mean_matched_cosine(cosine, match(cosine)).item()
    1.0
    """
    return matched_cosine(cosine, matched).sum(-1) / (matched >= 0).sum(-1)


def recovered(
    cosine: Float[Tensor, "m n f"], matched: Int[Tensor, "m n"], at_least: float = FOUND
) -> Float[Tensor, "m"]:
    """The share of true features whose one-to-one match has at least this cosine."""
    return (matched_cosine(cosine, matched) >= at_least).float().mean(-1)


def concept_fates(cosine: Float[Tensor, "m n f"]) -> Int[Tensor, "m n"]:
    """What became of each true feature, as a position in `CONCEPT_FATES`; the first that applies.

    recovered  one learned feature has a cosine of at least `FOUND` with it
    split      several have
    merged     the learned feature most like it, with a cosine of at least `PART`, has one of at least `PART` with
               another true feature too
    missed     none of these

    Examples
    --------
    The sum of two true features, and a third one twice:

    >>> import torch
    >>> truth, half = torch.eye(4), 0.5**0.5
    >>> learned = torch.tensor([[half, half, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0]])
    >>> [CONCEPT_FATES[number] for number in concept_fates(cosines(truth, learned[None]))[0]]
    ['merged', 'merged', 'split', 'missed']
    """
    best, nearest = cosine.max(-1)
    alike = (cosine >= FOUND).sum(-1)
    parts = (cosine >= PART).sum(-2).gather(-1, nearest)
    fates = torch.full_like(nearest, CONCEPT_FATES.index("missed"))
    fates[(best >= PART) & (parts > 1)] = CONCEPT_FATES.index("merged")
    fates[alike > 1] = CONCEPT_FATES.index("split")
    fates[alike == 1] = CONCEPT_FATES.index("recovered")
    return fates


def mark_absorbed(fates: Int[Tensor, "m n"], fraction: Float[Tensor, "m n"]) -> Int[Tensor, "m n"]:
    """The fates where a parent counts as absorbed: of the samples in which one of its children fires, children carry
    at least `ABSORBED` of it. Its direction may be there; it is silent where it should fire."""
    return fates.masked_fill(fraction >= ABSORBED, CONCEPT_FATES.index("absorbed"))


def redundancy(directions: Float[Tensor, "m f d"], counts: Int[Tensor, "m f"], block: int = 1024) -> Float[Tensor, "m"]:
    """From directions and how often each fired; 0 where fewer than two did. A block of features at a time."""
    return torch.stack([_redundancy(rows[fired > 0], block) for rows, fired in zip(directions, counts, strict=True)])


def _redundancy(rows: Float[Tensor, "f d"], block: int) -> Float[Tensor, ""]:
    if len(rows) < 2:
        return rows.new_zeros(())
    unit = torch.nn.functional.normalize(rows, dim=-1)
    nearest: list[Tensor] = []
    for first in range(0, len(unit), block):
        cosine = (unit[first : first + block] @ unit.T).abs()
        cosine.diagonal(first).zero_()
        nearest.append(cosine.amax(-1))
    return torch.cat(nearest).mean()


FATES = ("absent", "learned", "unlearned", "moved", "still")
ABSENT, LEARNED, UNLEARNED, MOVED, STILL = range(len(FATES))


def best_entry(
    truth: Float[Tensor, "n d"], directions: Float[Tensor, "f d"]
) -> tuple[Float[Tensor, "n"], Int[Tensor, "n"]]:
    """Each true feature's largest cosine, and the entry that has it (the first, of equals)."""
    cosine = cosines(truth, directions[None])[0]
    best, entry = cosine.max(-1)
    return best, entry


def fate(
    best_before: Float[Tensor, "*m n"],
    entry_before: Int[Tensor, "*m n"],
    best: Float[Tensor, "*m n"],
    entry: Int[Tensor, "*m n"],
    threshold: float = FOUND,
) -> Int[Tensor, "*m n"]:
    """The fate of each true feature from one check to the next, as its place in FATES."""
    before, now = best_before >= threshold, best >= threshold
    both = torch.where(entry_before == entry, STILL, MOVED)
    return torch.where(before, torch.where(now, both, UNLEARNED), torch.where(now, LEARNED, ABSENT))


def fates(best: Float[Tensor, "m c n"], entry: Int[Tensor, "m c n"], threshold: float = FOUND) -> Int[Tensor, "m c n"]:
    """The fate at every check, since the check before it; before the first nothing is found."""
    nothing = torch.full_like(best[:, :1], -torch.inf)
    earlier = torch.cat([nothing, best[:, :-1]], 1), torch.cat([entry[:, :1], entry[:, :-1]], 1)
    return fate(*earlier, best, entry, threshold)


def count_fates(fates: Int[Tensor, "m c n"]) -> Int[Tensor, "m c fates"]:
    """How many true features have each fate: together all of them."""
    return torch.stack([(fates == code).sum(-1) for code in range(len(FATES))], -1)


def change(before: Float[Tensor, "*m d"], now: Float[Tensor, "*m d"]) -> Float[Tensor, "*m"]:
    """How far directions have turned: 0 not at all, 1 at right angles, 2 about."""
    return 1 - torch.cosine_similarity(before, now, dim=-1)


def unlearned_by_same_entry(fates: Int[Tensor, "m c n"], entry: Int[Tensor, "m c n"]) -> Int[Tensor, "m c"]:
    """How many are unlearned at each check while their best entry is that of the check before."""
    same = torch.cat([torch.zeros_like(entry[:, :1], dtype=torch.bool), entry[:, 1:] == entry[:, :-1]], 1)
    return ((fates == UNLEARNED) & same).sum(-1)


def gain(best: Float[Tensor, "m c n"]) -> Float[Tensor, "m c n"]:
    """How much each best cosine rose since the check before; NaN at the first."""
    return torch.cat([torch.full_like(best[:, :1], torch.nan), best.diff(dim=1)], 1)


def mean_of(fate: int, values: Float[Tensor, "m *c n"], fates: Int[Tensor, "m *c n"]) -> Float[Tensor, "m *c"]:
    """The mean of the values that true features of one fate have; NaN where none has any, as at the first check."""
    counted = (fates == fate) & values.isfinite()
    return torch.where(counted, values, 0).sum(-1) / counted.sum(-1)


def totals(
    best: Float[Tensor, "m c n"],
    entry: Int[Tensor, "m c n"],
    change: Float[Tensor, "m c n"],
    dead: Int[Tensor, "m c"],
    middle: int,
) -> dict[str, Tensor]:
    """What is left at the last check, how it got there, and what it gained since the check `middle`."""
    fate = fates(best, entry)
    counts, risen = count_fates(fate), gain(best)
    still, unlearned = counts[..., STILL], counts[..., UNLEARNED]
    return {
        "found": counts[:, -1, [LEARNED, MOVED, STILL]].sum(-1).double(),
        "still_learned": still[:, -1].double(),
        "still_growth": (still[:, -1] - still[:, middle]).double(),
        "learned_total": counts[..., LEARNED].sum(1).double(),
        "unlearned_total": unlearned.sum(1).double(),
        "unlearned_average": unlearned[:, 1:].double().mean(1),
        "unlearned_same_entry": unlearned_by_same_entry(fate, entry).sum(1).double(),
        "moved_total": counts[..., MOVED].sum(1).double(),
        "mean_change": mean_of(STILL, change, fate)[:, -1].double(),
        "learned_gain": mean_of(LEARNED, risen.flatten(1), fate.flatten(1)).double(),
        "unlearned_gain": mean_of(UNLEARNED, risen.flatten(1), fate.flatten(1)).double(),
        "dead_growth": (dead[:, -1] - dead[:, middle]).double(),
    }
