"""The settings of a dictionary's training."""

from typing import ClassVar, Literal

from pydantic import Field

from unbraid.config import PerMemberFloat
from unbraid.schedule import MOST_STEPS, Schedule


class Training(Schedule):
    """How a dictionary is trained: for how long, on how many samples at a time, how fast. The optimiser is Adam.

    Every step sees a new batch. Each member of a stack may have a `learning_rate` of its own; the rest they share.

    Examples
    --------
    >>> import unbraid as ub
    >>> training = ub.Training(steps=1000, warmup_share=0.05, decay_share=0.3)
    >>> ub.Training(steps=60, batch=128).learning_rate
    0.001
    """

    renamed: ClassVar[dict[str, str]] = {"fidelity": "reconstruction_loss"}

    steps: int = Field(default=2000, ge=1, le=MOST_STEPS)
    """Number of training steps, one batch each; more takes longer and fits better."""
    batch: int = Field(default=1024, ge=1, le=1 << 24)
    """Samples in a step; more is slower and less noisy."""
    learning_rate: PerMemberFloat = Field(default=1e-3, gt=0)
    """Adam's learning rate after the warm-up; higher is faster, until features die or the loss diverges."""
    clip: float | None = Field(default=None, gt=0)
    """Longest gradient of a member (its norm over all weights); a longer one is shortened to it. None: never."""
    reconstruction_loss: Literal["sum_square", "mean_square"] = "sum_square"
    """The squared error of a sample: summed over dimensions, or their mean, which weakens it d times."""
