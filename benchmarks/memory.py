"""The peak memory of one training step, against what must be there: weights, moments, inputs and codes."""

import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figure import Figure, answer
from unbraid.models.profile import kibibytes

FEATURES = 16384


def memory() -> Iterator[Figure]:
    """Measured in a process of its own; weights and batches are there before the step begins."""
    needed, extra = (float(word) for word in answer("benchmarks.memory").split())
    yield Figure(f"peak memory of a step / what it needs, f={FEATURES}", (needed + extra) / needed, 1.25, "lower", "×")


def main() -> None:
    """Print the bytes a step needs, and by how much the process grows beyond them."""
    from benchmarks.training import BATCH, WORLD, Late

    Late(512).step()  # compiles
    late = Late(FEATURES)
    tensors = list(late.state.tensors().values())
    codes = 8 * BATCH * late.fires()
    needed = sum(tensor.nbytes for tensor in tensors) + 4 * BATCH * WORLD.dimensions + codes
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = kibibytes("VmRSS")
    late.step()
    print(needed, 1024 * (kibibytes("VmHWM") - before))


if __name__ == "__main__":
    sys.exit(main())
