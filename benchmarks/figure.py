"""One measured figure beside the figure to reach."""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal


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
    for work in (ours, rival):
        work()
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for work, kept in zip((ours, rival), seconds, strict=True):
            began = time.perf_counter()
            work()
            kept.append(time.perf_counter() - began)
    return statistics.median(seconds[0]), statistics.median(seconds[1])


def answer(module: str, *words: str) -> str:
    """What another process prints, running this module of ours."""
    return subprocess.run([sys.executable, "-m", module, *words], check=True, capture_output=True, text=True).stdout
