"""What became of each true feature between one check of a dictionary in training and the next.

A true feature is found where its best cosine is at least a threshold; its entry is the learned feature that has it.

learned    not found before, found now       moved   found both times, by another entry
unlearned  found before, not found now       still   found both times, by the same entry
absent     found neither time
change     1 - cos(direction of its entry before, direction of its entry now)
"""

import torch

from unbraid.axes import Float, Int, Tensor
from unbraid.metrics.recovery import FOUND, cosines

FATES = ("absent", "learned", "unlearned", "moved", "still")
ABSENT, LEARNED, UNLEARNED, MOVED, STILL = range(len(FATES))
THRESHOLD = FOUND


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
    threshold: float = THRESHOLD,
) -> Int[Tensor, "*m n"]:
    """The fate of each true feature from one check to the next, as its place in FATES."""
    before, now = best_before >= threshold, best >= threshold
    both = torch.where(entry_before == entry, STILL, MOVED)
    return torch.where(before, torch.where(now, both, UNLEARNED), torch.where(now, LEARNED, ABSENT))


def fates(
    best: Float[Tensor, "m c n"], entry: Int[Tensor, "m c n"], threshold: float = THRESHOLD
) -> Int[Tensor, "m c n"]:
    """The fate at every check, since the check before it; before the first nothing is found."""
    nothing = torch.full_like(best[:, :1], -torch.inf)
    earlier = torch.cat([nothing, best[:, :-1]], 1), torch.cat([entry[:, :1], entry[:, :-1]], 1)
    return fate(*earlier, best, entry, threshold)


def count(fates: Int[Tensor, "m c n"]) -> Int[Tensor, "m c fates"]:
    """How many true features have each fate: together all of them."""
    return torch.stack([(fates == code).sum(-1) for code in range(len(FATES))], -1)


def change(before: Float[Tensor, "*m d"], now: Float[Tensor, "*m d"]) -> Float[Tensor, "*m"]:
    """How far directions have turned: 0 not at all, 1 at right angles, 2 about."""
    return 1 - torch.cosine_similarity(before, now, dim=-1)


def mean_change(change: Float[Tensor, "m c n"], fates: Int[Tensor, "m c n"]) -> Float[Tensor, "m c"]:
    """The mean change of what is still found by the same entry; NaN where nothing is."""
    still = fates == STILL
    return torch.where(still, change, 0).sum(-1) / still.sum(-1)


def totals(
    fates: Int[Tensor, "m c n"], change: Float[Tensor, "m c n"], dead: Int[Tensor, "m c"], middle: int
) -> dict[str, Tensor]:
    """What is left at the last check, how it got there, and what it gained since the check `middle`."""
    counts = count(fates)
    still = counts[..., STILL]
    return {
        "found": counts[:, -1, [LEARNED, MOVED, STILL]].sum(-1).double(),
        "still_learned": still[:, -1].double(),
        "still_growth": (still[:, -1] - still[:, middle]).double(),
        "learned_total": counts[..., LEARNED].sum(1).double(),
        "unlearned_total": counts[..., UNLEARNED].sum(1).double(),
        "moved_total": counts[..., MOVED].sum(1).double(),
        "mean_change": mean_change(change, fates)[:, -1].double(),
        "dead_growth": (dead[:, -1] - dead[:, middle]).double(),
    }
