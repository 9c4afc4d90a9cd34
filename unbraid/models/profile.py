"""What a training step takes, in time and memory: of any model, and of gauge transformers beside plain ones as wide.

Seconds are medians over steps taken in turns, so that the machine's moods fall on all alike. Memory is measured in a
process of its own, on Linux: the most that was resident during a first step, and what was before it. As a program this
module is that process:

    python -m unbraid.models.profile '{"model": {"kind": "gauge"}, "tokens": 256, "batch": 8}'
"""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import TypeAdapter

from unbraid.axes import Int, Tensor
from unbraid.models import AnyModel, FreeEnergy, Gauge, ModelConfig, Transformer, start_models
from unbraid.models.training import ModelState, ModelTraining, train_step

WORDS = 100
"""Tokens there are."""
GAUGE_WIDTHS = {20: "4x0e + 2x1e + 2x2e", 64: "12x0e + 4x1e + 8x2e", 128: "24x0e + 8x1e + 16x2e"}
"""Irreps of so many dimensions, in the gauge study's mixture about; a plain transformer of equal width beside each."""
PLAIN_HEADS = {20: 4, 64: 8, 128: 8}
STATUS = Path("/proc/self/status")
KIB = 1024


@dataclass(frozen=True)
class Windows:
    """Tokens drawn at random, in which every one is asked for the next."""

    tokens: Int[Tensor, "b t"]
    asked: Int[Tensor, "b t"]
    answers: Int[Tensor, "b t"]

    @classmethod
    def drawn(cls, length: int, batch: int) -> "Windows":
        words = torch.randint(1, WORDS, (batch, length + 1), generator=torch.Generator().manual_seed(0))
        return cls(words[:, :-1], torch.arange(length).expand(batch, length), words[:, 1:])


@dataclass(frozen=True)
class Memory:
    """Of a process around one training step, in KiB."""

    before: int
    peak: int


@dataclass(frozen=True)
class StepProfile:
    """What one training step of one model takes.

    Parameters
    ----------
    model : str
        gauge, gauge with free energy, or plain.
    width : int
        Of the residual stream: all heads together.
    heads : str
        Irreps, or the number of heads.
    parameters : int
        Numbers that are learned.
    milliseconds : float
        The median of a step.
    mebibytes : float
        The most during a step beyond what was resident before it: activations and gradients.

    Examples
    --------
    >>> import unbraid as ub
    >>> ub.StepProfile("plain", width=20, heads="4", parameters=14_240, milliseconds=9.5, mebibytes=6.7).width
    20
    """

    model: str
    width: int
    heads: str
    parameters: int
    milliseconds: float
    mebibytes: float


def training_step(settings: ModelConfig, tokens: int, batch: int) -> Callable[[], object]:
    """A training step on windows of so many tokens, forward and backward and the optimiser, to be called any number of
    times."""
    state, windows = ModelState.of(start_models(settings, WORDS, tokens, WORDS, [0])), Windows.drawn(tokens, batch)
    return lambda: train_step(state, windows, ModelTraining(batch=batch), {})


def median_seconds(works: Sequence[Callable[[], object]], repeats: int) -> list[float]:
    """Median seconds of each, warm, taken in turns."""
    for work in works:
        work()
    seconds: list[list[float]] = [[] for _ in works]
    for _ in range(repeats):
        for work, kept in zip(works, seconds, strict=True):
            began = time.perf_counter()
            work()
            kept.append(time.perf_counter() - began)
    return [statistics.median(kept) for kept in seconds]


def kibibytes(name: str) -> int:
    """What the system says of this process's memory: VmRSS is resident now, VmHWM the most so far."""
    return next(int(line.split()[1]) for line in STATUS.read_text().splitlines() if line.startswith(f"{name}:"))


def step_memory(settings: ModelConfig, tokens: int, batch: int) -> Memory:
    """Of one training step, in a process of its own."""
    asked = json.dumps({"model": settings.to_dict(), "tokens": tokens, "batch": batch})
    words = [sys.executable, "-m", "unbraid.models.profile", asked]
    before, peak = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()
    return Memory(int(before), int(peak))


def profile_gauge(
    tokens: int = 256, batch: int = 8, repeats: int = 5, widths: Sequence[int] = tuple(GAUGE_WIDTHS)
) -> list[StepProfile]:
    """Time and memory of a training step of gauge transformers, each width beside a plain transformer as wide.

    Parameters
    ----------
    tokens : int, default 256
        Tokens in a window.
    batch : int, default 8
        Windows in a step.
    repeats : int, default 5
        Steps whose median is told.
    widths : sequence of int, default (20, 64, 128)
        Dimensions of all heads together; of those three.

    Returns
    -------
    list of StepProfile
        For each width a plain transformer (one layer, a feed-forward of four times the width), KL attention alone, and
        KL attention with free energy, which stands in the place of a feed-forward.

    Examples
    --------
    >>> import unbraid as ub
    >>> profiles = ub.profile_gauge(tokens=8, batch=1, repeats=1, widths=[20])
    >>> [(profile.model, profile.width, profile.heads) for profile in profiles]
    [('plain', 20, '4'), ('gauge', 20, '4x0e + 2x1e + 2x2e'), ('gauge with free energy', 20, '4x0e + 2x1e + 2x2e')]
    """
    return [profile for width in widths for profile in _of_width(width, tokens, batch, repeats)]


def _of_width(width: int, tokens: int, batch: int, repeats: int) -> list[StepProfile]:
    irreps, heads = GAUGE_WIDTHS[width], PLAIN_HEADS[width]
    models: dict[str, tuple[str, ModelConfig]] = {
        "plain": (str(heads), Transformer(d_model=width, heads=heads, layers=1, d_ff=4 * width, positions="learned")),
        "gauge": (irreps, Gauge(irreps=irreps)),
        "gauge with free energy": (irreps, Gauge(irreps=irreps, free_energy=FreeEnergy())),
    }
    seconds = median_seconds([training_step(model, tokens, batch) for _, model in models.values()], repeats)
    return [
        StepProfile(name, width, words, _parameters(model, tokens), 1000 * taken, _growth(model, tokens, batch))
        for (name, (words, model)), taken in zip(models.items(), seconds, strict=True)
    ]


def _parameters(settings: ModelConfig, tokens: int) -> int:
    return sum(p.numel() for p in start_models(settings, WORDS, tokens, WORDS, [0]).parameters().values())


def _growth(settings: ModelConfig, tokens: int, batch: int) -> float:
    memory = step_memory(settings, tokens, batch)
    return (memory.peak - memory.before) / KIB


def main() -> None:
    """Print what was resident before a training step and the most during it, in KiB."""
    asked = json.loads(sys.argv[1])
    settings: ModelConfig = TypeAdapter(AnyModel).validate_python(asked["model"])
    training_step(settings, 2, 1)()  # loads code, which is none of the step's memory
    work = training_step(settings, asked["tokens"], asked["batch"])
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = kibibytes("VmRSS")
    work()
    print(before, kibibytes("VmHWM"))


if __name__ == "__main__":
    main()
