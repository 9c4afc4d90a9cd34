"""How many stories a second a core makes: tokens, support and factors at every token, all that `batch` gives."""

import statistics
import time
from collections.abc import Iterator

from benchmarks.figure import Figure
from unbraid.worlds.stories import TASKS, Stories

SIZE, REPEATS = 1024, 15
GOAL = 100_000
"""For every task."""


def stories() -> Iterator[Figure]:
    """In processor time, so that company on the machine does not count."""
    for task in TASKS:
        world = Stories.model_validate({"task": task})
        yield Figure(f"{task}: stories a second, batch {SIZE}", SIZE / _seconds(world), GOAL, "higher", "")


def _seconds(world: Stories) -> float:
    world.batch(0, SIZE)
    kept: list[float] = []
    for position in range(REPEATS):
        began = time.process_time()
        world.batch(position, SIZE)
        kept.append(time.process_time() - began)
    return statistics.median(kept)
