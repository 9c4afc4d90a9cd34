"""The settings of a training, and the learning rate at each of its steps."""

from typing import Literal, Self

from pydantic import Field, model_validator

from unbraid.config import Knob, Record

MOST_STEPS = 10**12


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
        if self.warmup_steps + self.decay_steps > self.steps:
            raise ValueError(
                f"warmup_steps {self.warmup_steps} and decay_steps {self.decay_steps} do not fit in {self.steps} "
                f"steps; accepted: together at most {self.steps}"
            )
        return self


def rate_factor(step: int, training: Training) -> float:
    """Rises linearly over the warm-up, stays at 1, falls linearly over the last `decay_steps` towards 0."""
    warmup = (step + 1) / (training.warmup_steps + 1)
    decay = (training.steps - step) / (training.decay_steps + 1)
    return min(1.0, warmup, decay)
