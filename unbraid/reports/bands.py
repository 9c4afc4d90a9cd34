"""A line over seeds: its mean, and its 95 % interval as a band."""

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.typing import LineStyleType

from unbraid.metrics.intervals import estimate

MOST_POINTS = 40
"""An interval is resampled at each point: more could not be distinguished on so small a plot."""


@dataclass(frozen=True)
class Band:
    x: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def over_seeds(cls, x: np.ndarray, values: np.ndarray) -> "Band":
        """From values of seeds × points; of very many points, some evenly spread ones with both ends."""
        kept = np.unique(np.linspace(0, len(x) - 1, min(MOST_POINTS, len(x))).round().astype(int))
        found = [estimate(values[:, place].tolist()) for place in kept]
        bounds = np.array([one.interval or (one.value, one.value) for one in found])
        return cls(x[kept], np.array([one.value for one in found]), bounds[:, 0], bounds[:, 1])

    def draw(self, axes: Axes, colour: str, style: LineStyleType = "-", width: float = 1.8) -> None:
        axes.fill_between(self.x, self.low, self.high, color=colour, alpha=0.25, linewidth=0, zorder=2)
        few = {"marker": "o", "markersize": 3} if len(self.x) <= 3 else {}
        axes.plot(self.x, self.mean, color=colour, linestyle=style, linewidth=width, zorder=3, **few)
