"""The settings of a dictionary's training."""

from typing import ClassVar, Literal

from pydantic import Field

from unbraid.config import PerMemberFloat
from unbraid.schedule import MOST_STEPS, Schedule


class Training(Schedule):
    """How dictionaries are trained: steps, batch size, learning rate. The optimiser is Adam.

    Every step draws a new batch from the world. Warm-up and decay are shares of `steps`, so a shorter training has a
    shorter schedule. In a sweep, dictionaries of one stack may differ in settings marked "per member"; `fit` gives
    all the same.

    Examples
    --------
    >>> import unbraid as ub
    >>> training = ub.Training(steps=1000, warmup_share=0.05, decay_share=0.3)
    >>> training.batch, training.learning_rate
    (1024, 0.001)
    """

    steps: int = Field(default=2000, ge=0, le=MOST_STEPS)
    """Number of training steps, one batch each; more takes longer and fits better. 0: a dictionary is scored as it
    begins, in a run one of `dictionary.init.from`."""
    batch: int = Field(default=1024, ge=1, le=1 << 24)
    """Samples in a step; more are slower and less noisy."""
    learning_rate: PerMemberFloat = Field(default=1e-3, gt=0)
    """Adam's learning rate after the warm-up; higher is faster, until features die or the loss diverges."""
    clip: float | None = Field(default=None, gt=0)
    """Largest gradient norm of a member, over all weights; longer gradients are scaled down. None: no clipping."""
    reconstruction_loss: Literal["sum_square", "mean_square", "norm"] = "sum_square"
    """Squared error of a sample, summed over its d dimensions or their mean; norm: its length ‖x - x̂‖₂, not squared."""

    renamed: ClassVar[dict[str, str]] = {"fidelity": "reconstruction_loss"}
