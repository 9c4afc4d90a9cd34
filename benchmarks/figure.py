"""One measured figure beside the figure to reach."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from unbraid.models.profile import median_seconds


@dataclass(frozen=True)
class Figure:
    name: str
    measured: float
    goal: float
    better: Literal["higher", "lower"]
    unit: str

    @property
    def met(self) -> bool:
        return self.measured >= self.goal if self.better == "higher" else self.measured <= self.goal

    def __str__(self) -> str:
        sign = "≥" if self.better == "higher" else "≤"
        measured, goal = f"{self.measured:.3g} {self.unit}", f"{sign} {self.goal:g} {self.unit}"
        return f"{self.name:52} {measured:>14}  {goal:>14}  {'met' if self.met else 'short'}"


Benchmark = Callable[[], Iterator[Figure]]


def medians(ours: Callable[[], object], rival: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Median seconds of both, warm, taken in turns so that the machine's moods fall on both alike."""
    mine, theirs = median_seconds([ours, rival], repeats)
    return mine, theirs


def answer(module: str, *words: str) -> str:
    """What another process prints, running this module of ours."""
    return subprocess.run([sys.executable, "-m", module, *words], check=True, capture_output=True, text=True).stdout
