"""An axis of training steps in their logarithm that also has a place for the start, step 0."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

START = 0.4
"""Where step 0 is drawn, left of step 1."""


def log_steps(axes: Axes, steps: np.ndarray) -> np.ndarray:
    """Where on the axis these steps are; makes the axis one of steps."""
    last = int(steps.max())
    decades = [10**power for power in range(len(str(last)))]
    axes.set_xscale("log")
    axes.set_xlim(START / 1.15, last * 1.15)
    axes.set_xticks([START, *decades], ["start", *[f"{step:,}" for step in decades]])
    axes.xaxis.set_minor_locator(NullLocator())
    return np.where(steps == 0, START, steps)
