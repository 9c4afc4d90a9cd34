"""Look at a stack while it trains, at logarithmic steps: who represents each true feature, and which entries are dead.

    tracking/STEP.safetensors             best, entry, change (m n) and dead (m) at this step, since the check before
    tracking/STEP.directions.safetensors  the directions of those entries (m n d)
    tracking.safetensors                  all checks together (m c n); how many have each fate, and how much their best
                                          cosine rose on average (threshold m c)

A check depends on nothing but the weights at its step and those files of the check before, so that a resumed run
writes the same bytes again.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from pydantic import Field

from unbraid.axes import Bool, Float, Tensor
from unbraid.config import Config
from unbraid.dictionaries.activations import Relu
from unbraid.dictionaries.stack import Stack
from unbraid.metrics import recovery
from unbraid.storage.files import Arrays, read_arrays, write_arrays
from unbraid.worlds import World


class Tracking(Config):
    """Look for true features while training, at steps evenly spaced in their logarithm; it changes no result."""

    checks: int = Field(default=0, ge=0, le=1000)
    """How many times; 0 for never. Raising it gives finer curves and takes longer."""
    samples: int = Field(default=40_960, ge=1, le=10**12)
    """Fresh samples that tell at each check which entries are dead. Raising it calls fewer entries dead by accident."""


THRESHOLDS = (0.7, 0.8, 0.9, 0.95)
BATCH, BLOCK = 4096, 512


def check_steps(steps: int, checks: int) -> list[int]:
    """The start and then steps evenly spaced in their logarithm, to the last; fewer where they would coincide.

    None where nothing is trained: there are no fates.
    """
    if checks == 0 or steps == 0:
        return []
    spaced = np.geomspace(1, steps, checks) if checks > 1 else [steps]
    return [0, *sorted({round(step) for step in spaced})]


class Tracker:
    """The checks of one stack, on disk; without checks it does nothing."""

    def __init__(self, folder: Path, world: World, settings: Tracking, steps: int) -> None:
        self.folder, self.world, self.settings = folder, world, settings
        self.steps = check_steps(steps, settings.checks)

    def check(self, stack: Stack, step: int) -> None:
        """Check the stack at one of the steps to do so."""
        learned = stack.directions.cpu()
        found = [recovery.best_entry(self.world.directions, rows) for rows in learned]
        best, entry = (torch.stack(part) for part in zip(*found, strict=True))
        directions = torch.stack([rows[chosen] for rows, chosen in zip(learned, entry, strict=True)])
        change = torch.full_like(best, torch.nan)
        if step != self.steps[0]:
            before = self._directions_file(self.steps[self.steps.index(step) - 1])
            change = recovery.change(torch.from_numpy(read_arrays(before)["directions"]), directions)
        dead = [
            int((~fires(stack.member(index), self.world, self.settings.samples)).sum())
            for index in range(stack.members)
        ]
        write_arrays(self._directions_file(step), {"directions": directions.numpy()})
        arrays = {"best": best, "entry": entry.int(), "change": change, "dead": torch.tensor(dead, dtype=torch.int32)}
        write_arrays(self._file(step), {name: tensor.numpy() for name, tensor in arrays.items()})

    def files(self, step: int) -> list[Path]:
        """Those of every check up to this step, and what the next one is compared with."""
        past = [check for check in self.steps if check <= step]
        needed = [self._file(check) for check in past]
        if past and past[-1] != self.steps[-1]:
            needed.append(self._directions_file(past[-1]))
        return needed

    def conclude(self) -> dict[str, Tensor]:
        """Put all checks in one file; gives the totals, as scores."""
        if not self.steps:
            return {}
        checks = [read_arrays(self._file(step)) for step in self.steps]
        best, entry, change, dead = (
            torch.from_numpy(np.stack([check[name] for check in checks], 1))
            for name in ("best", "entry", "change", "dead")
        )
        fates = {threshold: recovery.fates(best, entry, threshold) for threshold in THRESHOLDS}
        counts = torch.stack([recovery.count_fates(each) for each in fates.values()])
        gain = recovery.gain(best)
        arrays: Arrays = {
            "steps": np.array(self.steps),
            "thresholds": np.array(THRESHOLDS),
            "best": best.numpy(),
            "entry": entry.numpy(),
            "dead": dead.numpy(),
            "mean_change": _by_threshold(recovery.mean_of(recovery.STILL, change, each) for each in fates.values()),
            "mean_change_of_all": change.mean(-1).numpy(),
            "unlearned_same_entry": _by_threshold(
                recovery.unlearned_by_same_entry(each, entry) for each in fates.values()
            ),
            **{name: counts[..., code].numpy() for code, name in enumerate(recovery.FATES)},
            **{
                f"gain_{name}": _by_threshold(recovery.mean_of(code, gain, each) for each in fates.values())
                for code, name in enumerate(recovery.FATES)
            },
        }
        write_arrays(self.folder / "tracking.safetensors", arrays)
        middle = int(np.abs(np.array(self.steps) - self.steps[-1] / 2).argmin())
        return recovery.totals(best, entry, change, dead, middle)

    def _file(self, step: int) -> Path:
        return self.folder / "tracking" / f"{step:09d}.safetensors"

    def _directions_file(self, step: int) -> Path:
        return self.folder / "tracking" / f"{step:09d}.directions.safetensors"


def _by_threshold(parts: Iterable[Tensor]) -> np.ndarray:
    return torch.stack(list(parts)).numpy()


def fires(member: Stack, world: World, samples: int) -> Bool[Tensor, "f"]:
    """Which entries of a stack of one fire in any of these samples, always the same ones of a split of their own."""
    fired = torch.zeros(member.features, dtype=torch.bool)
    for position in range(-(-samples // BATCH)):
        x = world.batch(position, min(BATCH, samples - position * BATCH), split="tracking").x
        for start in range(0, len(x), BLOCK):
            _add_fired(fired, member, x[start : start + BLOCK])
        if fired.all():
            break
    return fired


def _add_fired(fired: Bool[Tensor, "f"], member: Stack, x: Float[Tensor, "b d"]) -> None:
    """Mark what fires here; where entries fire on their own account, only those silent so far are tried."""
    if type(member.activation) is Relu and not member.inhibition:
        silent = (~fired).nonzero()[:, 0]
        there = silent.to(member.device)
        largest = (x.to(member.device) @ member.encoder[0, there].T).amax(0) + member.shifted_bias()[0, there]
        fired[silent] = (largest > 0).cpu()
    else:
        fired |= member.encode(x).counts()[0] > 0
