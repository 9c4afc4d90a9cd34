"""Every so many steps, start features anew that say what another says already: |Pearson| of a pair above a bar.

corrected  bar = threshold + (1-threshold) · percentile of importance, never above 1; of a pair the less important goes
           (among equals, the less active), unless what it repeats has gone itself, or it fired in fewer than
           `least` samples, where a correlation says nothing: of two that fired once, together, it is 1; it goes to
           where inputs are reconstructed worst, made orthogonal to the survivors, with an encoder row `encoder_scale`
           times as long as the survivors' on average; nobody does once the learning rate decays, nor after `until` of
           the training
published  bar = threshold · (1 + percentile), above 1 and out of reach for all but the least important quarter;
           both of a pair go, to random directions at the survivors' full encoder length, to the last step. (The
           source's first look knows the importance of that step already; here signals are those of the step before,
           and the first look spares nobody.)

The optimiser forgets in both forms (as the source's notes say, and its code does not). Pairs that never fired together
are passed over: see `coactivation/pairs.py`.
"""

from typing import ClassVar, Literal

import torch
from pydantic import Field

from unbraid.axes import Bool, Float, Int, Tensor
from unbraid.config import PerMemberFloat
from unbraid.dictionaries.coactivation import Chosen
from unbraid.dictionaries.mechanisms.directions import StartsAnew, at_random, own_seeds, toward_errors
from unbraid.dictionaries.mechanisms.mechanism import Forward, Memory, Reset, Signals
from unbraid.dictionaries.stack import Stack


class CorrelationPruning(StartsAnew):
    """Every `every` steps, restart features whose codes correlate too strongly with those of another feature.

    With `MomentumImportance`, active features need a stronger correlation to be restarted. `random_orthogonal` is what
    the source's notes say of run 4: random directions, orthogonal to the survivors and to each other (once there are as
    many as dimensions: to the d/4 most related), and with `encoder_scale = 1` with encoder rows of the survivors' mean
    length.

    Examples
    --------
    >>> import unbraid as ub
    >>> ub.CorrelationPruning(threshold=0.9, every=200).least
    10
    """

    threshold: PerMemberFloat = Field(default=0.8, gt=0, le=1)
    """Absolute Pearson correlation, 0 to 1, above which one feature of a pair is restarted; higher restarts fewer."""
    every: int = Field(default=100, ge=1)
    """Steps between two checks; lower restarts more often and leaves new features less time to learn."""
    directions: Literal["errors", "random", "random_orthogonal"] | None = None
    """Where features restart: worst errors, at random, or random and orthogonal. None: errors (published: random)."""
    least: int = Field(default=10, ge=1)
    """Samples of the batch in which a feature must have fired to be restarted; higher spares rare features."""
    reads: ClassVar[frozenset[str]] = frozenset({"importance"})
    whole_because: ClassVar[str] = "compares pairs of all features and moves their rows"

    @property
    def ordered(self) -> bool:
        """Random directions are drawn in the order of features."""
        return self._directions == "random"

    @property
    def _directions(self) -> str:
        return self.directions or ("random" if self.form == "published" else "errors")

    def start(self, stack: Stack) -> Memory:
        return {"steps": torch.zeros(stack.members, dtype=torch.int64, device=stack.device), "seed": own_seeds(stack)}

    def observe(self, forward: Forward, memory: Memory, stack: Stack, signals: Signals) -> Memory:
        return {**memory, "steps": memory["steps"] + 1}

    def edit(self, forward: Forward, memory: Memory, stack: Stack, signals: Signals) -> Reset | None:
        if int(memory["steps"][0]) % self.every or self.too_late(forward.moment):
            return None
        together, threshold = (
            forward.together(),
            torch.as_tensor(self.threshold, device=stack.device).expand(stack.members),
        )
        pairs = together.exceeding("pearson", threshold.tolist())
        activity = together.sizes().to(stack.device)
        importance = torch.ones_like(activity) if signals.importance is None else signals.importance
        bars, rank = self._bars(threshold[:, None], importance), ranks(importance, activity)
        if self.form == "published":
            anew = both(pairs, bars)
        else:
            seen = forward.codes.counts() >= self.least
            anew = fewest(lesser(pairs, torch.where(seen, bars, torch.inf), rank), rank, len(forward.x))
        return self._reset(anew, forward, memory, stack, rank) if anew.any() else None

    def _bars(self, threshold: Float[Tensor, "m 1"], importance: Float[Tensor, "m f"]) -> Float[Tensor, "m f"]:
        """How high each feature's correlation must be for it to go."""
        raised = percentiles(importance)
        return threshold * (1 + raised) if self.form == "published" else threshold + (1 - threshold) * raised

    def _reset(
        self, anew: Bool[Tensor, "m f"], forward: Forward, memory: Memory, stack: Stack, rank: Int[Tensor, "m f"]
    ) -> Reset:
        rows = torch.zeros_like(stack.decoder)
        lengths = torch.ones_like(stack.encoder[..., :1])
        for m, lost in enumerate(anew):
            seed, step = memory["seed"][m], memory["steps"][m]
            drawn = at_random(int(lost.sum()), rows.shape[2], seed, "correlation_pruning", step).to(rows)
            if self._directions == "random":
                rows[m, lost] = drawn
            else:
                order = rank[m].argsort()
                features = order[lost[order]]
                errors = forward.x - forward.reconstruction[m]
                wanted = errors if self._directions == "errors" else errors[:0]
                directions = toward_errors(wanted, stack.decoder[m, ~lost], drawn)
                rows[m, features[: len(directions)]] = directions
                lost[features[len(directions) :]] = False  # in one dimension there is nowhere to go
            alive = stack.encoder[m] if lost.all() else stack.encoder[m, ~lost]
            lengths[m] = alive.norm(dim=-1).mean()
        return Reset(anew, self.scale * lengths * rows, rows)


def percentiles(importance: Float[Tensor, "m f"]) -> Float[Tensor, "m f"]:
    """The share of features that are less important than each."""
    less = torch.searchsorted(importance.sort(-1).values, importance.contiguous())
    return less.to(importance.dtype) / importance.shape[1]


def ranks(importance: Float[Tensor, "m f"], activity: Float[Tensor, "m f"]) -> Int[Tensor, "m f"]:
    """Each feature's place in the order of importance, 0 the most; among equals the more active comes first."""
    active = activity.argsort(dim=-1, descending=True, stable=True)
    order = active.gather(-1, importance.gather(-1, active).argsort(dim=-1, descending=True, stable=True))
    return order.argsort(-1)


def both(pairs: Chosen, bars: Float[Tensor, "m f"]) -> Bool[Tensor, "m f"]:
    """Every feature that correlates with another above its own bar."""
    gone = torch.zeros_like(bars, dtype=torch.bool)
    for feature in (pairs.first, pairs.second):
        over = pairs.score.abs().clamp_max(1) > bars[pairs.member, feature]
        gone[pairs.member[over], feature[over]] = True
    return gone


def lesser(pairs: Chosen, bars: Float[Tensor, "m f"], rank: Int[Tensor, "m f"]) -> Bool[Tensor, "m f"]:
    """The less important of each pair above its bar, from the most important feature down: what has gone takes none."""
    swap = rank[pairs.member, pairs.first] > rank[pairs.member, pairs.second]
    strong, weak = torch.where(swap, pairs.second, pairs.first), torch.where(swap, pairs.first, pairs.second)
    over = pairs.score.abs().clamp_max(1) > bars[pairs.member, weak]
    first_row = pairs.member[over] * bars.shape[1]
    strong, weak = first_row + strong[over], first_row + weak[over]
    gone = torch.zeros_like(bars, dtype=torch.bool).flatten()
    while len(strong):
        unsure = torch.zeros_like(gone)
        unsure[weak] = True
        gone[weak[~unsure[strong]]] = True
        left = ~(gone[strong] | gone[weak])
        strong, weak = strong[left], weak[left]
    return gone.view(bars.shape)


def fewest(gone: Bool[Tensor, "m f"], rank: Int[Tensor, "m f"], most: int) -> Bool[Tensor, "m f"]:
    """Of those that go, at most so many, the least important: each needs a sample of its own to go to."""
    last = torch.where(gone, rank, -1).topk(min(most, gone.shape[1])).indices
    return gone & torch.zeros_like(gone).scatter(-1, last, True)
