"""What every training shares, of dictionaries and of models: its schedule, Adam's constants, finite losses.

rate at step t = learning_rate · min(1, (t+1) / (warmup+1), (steps-t) / (decay+1))
"""

from dataclasses import dataclass
from typing import Self

from pydantic import Field, model_validator

from unbraid.axes import Tensor
from unbraid.config import Config
from unbraid.errors import NotFinite

MOST_STEPS = 10**12

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8
"""Adam's."""

Terms = dict[str, Tensor]
"""The costs of a step by name, each `m`."""


class Schedule(Config):
    """How long a training is, and how its learning rate rises and falls.

    Warm-up and decay are shares of `steps`, so a shorter training has a shorter schedule; `warmup_steps` and
    `decay_steps` state them in steps instead.

    Examples
    --------
    >>> from unbraid.schedule import Schedule, rate_factor
    >>> [rate_factor(step, Schedule(steps=6, warmup_steps=1, decay_share=0.5)) for step in range(6)]
    [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
    """

    steps: int = Field(default=1000, ge=1, le=MOST_STEPS)
    """Number of training steps, one batch each; more takes longer and fits better."""
    warmup_share: float = Field(default=0.0, ge=0, le=1)
    """Share of `steps` over which the learning rate rises linearly to its full value; a longer rise is gentler."""
    decay_share: float = Field(default=0.0, ge=0, le=1)
    """Share of `steps`, the last ones, over which the learning rate falls linearly towards 0; more ends more gently."""
    warmup_steps: int | None = Field(default=None, ge=0, le=MOST_STEPS)
    """The warm-up in steps; if given, it replaces `warmup_share`."""
    decay_steps: int | None = Field(default=None, ge=0, le=MOST_STEPS)
    """The decay in steps; if given, it replaces `decay_share`."""

    @model_validator(mode="after")
    def check_schedule(self) -> Self:
        warmup, decay = resolve_schedule(self)
        if warmup + decay > self.steps:
            raise ValueError(
                f"warmup_steps {warmup} and decay_steps {decay} do not fit in {self.steps} steps; "
                f"accepted: together at most {self.steps}"
            )
        return self


def resolve_schedule(schedule: Schedule) -> tuple[int, int]:
    """How many steps the warm-up and the decay take."""
    steps, warmup, decay = schedule.steps, schedule.warmup_steps, schedule.decay_steps
    rising = round(schedule.warmup_share * steps) if warmup is None else warmup
    if decay is not None:
        return rising, decay
    falling = round(schedule.decay_share * steps)
    fits = schedule.warmup_share + schedule.decay_share <= 1 and warmup is None
    return rising, min(falling, steps - rising) if fits else falling  # two shares of ½ of an odd number round up


def rate_factor(step: int, schedule: Schedule) -> float:
    """What the learning rate is multiplied by at this step: rises linearly to 1, stays, falls linearly towards 0."""
    warmup_steps, decay_steps = resolve_schedule(schedule)
    warmup = (step + 1) / (warmup_steps + 1)
    decay = (schedule.steps - step) / (decay_steps + 1)
    return min(1.0, warmup, decay)


@dataclass(frozen=True)
class Moment:
    """Where a step is in its training: what share is done after it, and whether the rate falls from then on."""

    done: float = 0.0
    decaying: bool = False


def moment_after(step: int, schedule: Schedule) -> Moment:
    """The moment after this step, counted from 0.

    Examples
    --------
    >>> from unbraid.schedule import Schedule, moment_after
    >>> moment_after(4, Schedule(steps=10, decay_share=0.5))
    Moment(done=0.5, decaying=True)
    """
    _, decay_steps = resolve_schedule(schedule)
    return Moment((step + 1) / schedule.steps, decay_steps > 0 and step + 1 >= schedule.steps - decay_steps)


def check_finite(terms: Terms, step: int) -> None:
    """NotFinite, naming the first term and member that is infinite or not a number."""
    for name, cost in terms.items():
        bad = (~cost.isfinite()).nonzero()
        if len(bad):
            raise NotFinite(step, name, int(bad[0]))
