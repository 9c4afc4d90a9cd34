"""The settings of a training, and the learning rate at each of its steps."""

from typing import Literal, Protocol, Self, runtime_checkable

from pydantic import Field, model_validator

from unbraid.config import Knob, Record

MOST_STEPS = 10**12


@runtime_checkable
class Schedule(Protocol):
    """Any settings that say for how long, with warm-up and decay."""

    @property
    def steps(self) -> int: ...
    @property
    def warmup_steps(self) -> int: ...
    @property
    def decay_steps(self) -> int: ...


class Training(Record):
    """How long, on how much, and how fast."""

    steps: int = Field(default=2000, ge=1, le=MOST_STEPS)
    batch: int = Field(default=1024, ge=1, le=1 << 24)
    learning_rate: Knob = Field(default=1e-3, gt=0)
    warmup_steps: int = Field(default=0, ge=0, le=MOST_STEPS)
    decay_steps: int = Field(default=0, ge=0, le=MOST_STEPS)
    clip: float | None = Field(default=None, gt=0)
    fidelity: Literal["sum_square", "mean_square"] = "sum_square"

    @model_validator(mode="after")
    def fit_the_schedule(self) -> Self:
        refuse_overfull(self)
        return self


def refuse_overfull(schedule: Schedule) -> None:
    """A ValueError if warm-up and decay take longer than there are steps."""
    if schedule.warmup_steps + schedule.decay_steps > schedule.steps:
        raise ValueError(
            f"warmup_steps {schedule.warmup_steps} and decay_steps {schedule.decay_steps} do not fit in "
            f"{schedule.steps} steps; accepted: together at most {schedule.steps}"
        )


def rate_factor(step: int, schedule: Schedule) -> float:
    """Rises linearly over the warm-up, stays at 1, falls linearly over the last `decay_steps` towards 0."""
    warmup = (step + 1) / (schedule.warmup_steps + 1)
    decay = (schedule.steps - step) / (schedule.decay_steps + 1)
    return min(1.0, warmup, decay)
