"""Let the features that fire together be each other's neighbours (study "mechanisms", run 8).

    together_ij ← momentum · together_ij + (1-momentum) · samples of the batch with both        fires_i alike

where it counts what would fire, before anything is inhibited.

corrected    i's neighbours are the features j with together_ij > share · fires_i: the most frequent, at most `radius`
published    those with together_ij > share, which depends on the size of the batch; i itself is counted among them, so
             one more is taken. (As written, the product was of samples, b × b, and would not have run; here it is of
             features. A partner without any history, whom ties could let in there, is left out.)

No f×f matrix: each feature keeps a list of the `places` partners it has most history with. With radius 0 it says
nothing, and whoever reads `neighbours` goes on as without it.

A list has few places. Whoever is on it is counted, most frequent first; someone new gets an empty place, or that of the
last if it was met more often in this batch than the last is remembered for. How often it was met before is not known
and taken as 0. So `together` is never too large, and exact for features that met no more partners than places.

A batch has Σ l0² pairs; at most `MOST_PAIRS` of a member are looked at, in the first samples, and stand for the whole.
"""

from typing import ClassVar, Literal

import numpy as np
import torch
from numba import prange
from pydantic import Field

from unbraid.axes import Int, Tensor
from unbraid.codes import Codes
from unbraid.config import PerMemberFloat
from unbraid.dictionaries.inhibition import EMPTY
from unbraid.dictionaries.kernels import compiled
from unbraid.dictionaries.mechanisms.lateral_inhibition import without
from unbraid.dictionaries.mechanisms.mechanism import Forward, Mechanism, Memory, Signals
from unbraid.dictionaries.stack import Stack

MOST_PAIRS = 1 << 20
FEATURES = 128
"""How many features one thread takes at a time."""


class AdaptiveNeighbourhoods(Mechanism):
    """Let features that fire together inhibit each other in `LateralInhibition`.

    Examples
    --------
    >>> import unbraid as ub
    >>> mechanisms = [ub.LateralInhibition(), ub.AdaptiveNeighbourhoods(radius=16)]
    >>> sorted(ub.AdaptiveNeighbourhoods.writes)
    ['neighbours']
    """

    radius: int = Field(default=32, ge=0)
    """Largest number of neighbours of a feature; more inhibit more. 0 turns the mechanism off."""
    share: PerMemberFloat = Field(default=0.1, ge=0)
    """Share of a feature's firings that a neighbour must have joined (published: a number of samples)."""
    momentum: float = Field(default=0.99, ge=0, lt=1)
    """How slowly the count follows new batches, from 0 (the last batch alone) to nearly 1 (very slowly)."""
    places: int = Field(default=64, ge=1)
    """Partners remembered for each feature; more is more exact and takes memory."""
    form: Literal["corrected", "published"] = "corrected"
    """corrected: as the source describes it. published: as the source's code does it."""
    writes: ClassVar[frozenset[str]] = frozenset({"neighbours"})
    whole_because: ClassVar[str] = "keeps lists of neighbours among all features"

    def start(self, stack: Stack) -> Memory:
        members, features = stack.members, stack.features
        together = torch.zeros(members, features, min(self.places, features), device=stack.device)
        partners = torch.full_like(together, EMPTY, dtype=torch.int32)
        return {"partners": partners, "together": together, "fires": torch.zeros_like(together[..., 0])}

    def signal(self, memory: Memory, stack: Stack) -> dict[str, Tensor]:
        partners, together = (memory[name][..., : self.radius] for name in ("partners", "together"))
        share, fires = torch.as_tensor(self.share, device=stack.device).reshape(-1, 1, 1), memory["fires"][..., None]
        if self.form == "corrected":
            near = together > share * fires
        else:
            above = (memory["together"] > share).sum(-1, keepdim=True) + (fires > share)
            near = (together > 0) & (torch.arange(partners.shape[-1], device=above.device) < above)
        listed = torch.where(near, partners, EMPTY)
        return {"neighbours": without(listed, memory["fires"] == 0)}  # whoever has never fired has just started anew

    def observe(self, forward: Forward, memory: Memory, stack: Stack, signals: Signals) -> Memory:
        if self.radius == 0:
            return memory
        return follow(forward.would_fire or forward.codes, memory, self.momentum)  # silencing must not part neighbours


def follow(codes: Codes, memory: dict[str, Tensor], momentum: float) -> dict[str, Tensor]:
    """The memory `partners`, `together` and `fires` after this batch; counted on the CPU, wherever the codes are."""
    device, codes = codes.values.device, codes.to("cpu")
    after = {name: tensor.cpu().clone() for name, tensor in memory.items()}
    for member, l0 in enumerate(codes.l0()):
        samples = max(1, int((l0.square().cumsum(0) <= MOST_PAIRS).sum()))
        features = _fired(codes, member, samples)
        starts = torch.cat([l0.new_zeros(1), l0[:samples].cumsum(0)])
        gain = np.float32((1 - momentum) * len(l0) / samples)
        arrays = [after[name][member].numpy() for name in ("partners", "together", "fires")]
        meet(starts.numpy(), features.numpy(), np.float32(momentum), gain, *arrays)
    return {name: tensor.to(device) for name, tensor in after.items()}


def _fired(codes: Codes, member: int, samples: int) -> Int[Tensor, "n"]:
    """The features that fired, sample after sample."""
    fired = codes.values[member, :samples] != 0
    if codes.features is None:
        return fired.nonzero()[:, 1].int()
    return codes.features[member, :samples][fired].int()


@compiled(parallel=True)
def meet(starts, features, momentum, gain, partners, together, fires):
    """Count whom each feature fired with, and bring its list up to date; sample b is `starts[b]` to `[b + 1]`."""
    width = len(fires)
    firsts, samples = _by_feature(starts, features, width)
    before = fires.copy()
    parts = (width + FEATURES - 1) // FEATURES
    for part in prange(parts):
        counts, met = np.zeros(width, np.int32), np.empty(width, np.int32)
        for i in range(part, width, parts):  # far apart: those that fire most may stand together
            number = 0
            for event in range(firsts[i], firsts[i + 1]):
                b = samples[event]
                for other in range(starts[b], starts[b + 1]):
                    j = features[other]
                    if counts[j] == 0:
                        met[number] = j
                        number += 1
                    counts[j] += 1
            counts[i] = 0
            met[:number].sort()  # so that the order of slots does not decide between equals
            if number > 0:
                _update(partners[i], together[i], before, counts, met[:number], momentum, gain)
            else:
                _age(partners[i], together[i], before, momentum)
            fires[i] = momentum * fires[i] + gain * np.float32(firsts[i + 1] - firsts[i])


@compiled(inline="always")
def _by_feature(starts, features, width):
    """Where each feature's events begin, and the sample of each event, feature after feature."""
    firsts, samples = np.zeros(width + 1, np.int64), np.empty(len(features), np.int32)
    for feature in features:
        firsts[feature + 1] += 1
    for f in range(width):
        firsts[f + 1] += firsts[f]
    place = firsts.copy()
    for b in range(len(starts) - 1):
        for event in range(starts[b], starts[b + 1]):
            samples[place[features[event]]] = b
            place[features[event]] += 1
    return firsts, samples


@compiled(inline="always")
def _age(partners, together, fires, momentum):
    """What `_update` does to the list of a feature that met nobody: its order stays."""
    used = 0
    for r in range(len(partners)):
        j, value = partners[r], momentum * together[r]
        if j >= 0 and fires[j] > 0:
            partners[used], together[used] = j, value
            used += 1
    for r in range(used, len(partners)):
        partners[r], together[r] = -1, 0


@compiled(inline="always")
def _update(partners, together, fires, counts, met, momentum, gain):
    """Age the list and add to it; leaves `counts` empty. Who has not fired since it started anew is dropped."""
    used = 0
    for r in range(len(partners)):
        j, value = partners[r], momentum * together[r]
        partners[r], together[r] = -1, 0
        if j >= 0 and fires[j] > 0:
            value += gain * np.float32(counts[j])
            counts[j] = 0
            _insert(partners, together, used, j, value)
            used += 1
    for j in met:
        value = gain * np.float32(counts[j])
        counts[j] = 0
        if value > 0 and used < len(partners):
            _insert(partners, together, used, j, value)
            used += 1
        elif value > together[-1]:
            _insert(partners, together, used - 1, j, value)


@compiled(inline="always")
def _insert(partners, together, hole, j, value):
    """Put j in this place, or further to the front if it has been met more often than those there."""
    while hole > 0 and together[hole - 1] < value:
        partners[hole], together[hole] = partners[hole - 1], together[hole - 1]
        hole -= 1
    partners[hole], together[hole] = j, value
