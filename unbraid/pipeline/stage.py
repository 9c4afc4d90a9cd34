"""A stage: a unit of work with a key, inputs, and a folder of its own in the cache.

    key = kind - hash of (kind, version, configuration, keys of the inputs, versions of unbraid and torch, checksums of
          the plugins that it uses)

Whoever asks for a stage that is in the cache gets it, verified; else it is made, from its newest whole checkpoint, and
sealed. A change of what a stage means raises its `version`, so that older results are made again and not taken.
"""

import hashlib
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path
from typing import ClassVar

from unbraid.config import JsonDict
from unbraid.config.plugins import blamed, used_by
from unbraid.progress import Task, TaskProgress
from unbraid.signals import StopSignals
from unbraid.storage.cache import Cache


@dataclass(frozen=True)
class Context:
    """What a stage works with: its folder, those of its inputs, whom to tell, and whether to stop."""

    folder: Path
    cache: Cache
    progress: TaskProgress
    signals: StopSignals
    inputs: frozenset[str]
    """The keys of the stages it may read."""

    def of(self, stage: "Stage") -> Path:
        """The folder of an input; whatever else is read might not be there, or be made at the same time."""
        if stage.key not in self.inputs:
            raise TypeError(f"a stage reads '{stage.kind}', which is not among its inputs")
        return self.cache.folder(stage.key)


@dataclass(frozen=True)
class Stage(ABC):
    """One unit of work; frozen, and small enough to be sent to another process."""

    kind: ClassVar[str]
    version: ClassVar[int] = 1
    side_by_side: ClassVar[bool] = False
    """Whether several of them run faster side by side, each with one thread, than one by one with all."""

    name: str
    """What a person calls it: "top-k · seed 3 · training"."""

    @property
    @abstractmethod
    def config(self) -> JsonDict:
        """All it depends on, beside its inputs."""

    @property
    def inputs(self) -> tuple["Stage", ...]:
        """The stages whose results it reads."""
        return ()

    @property
    def steps(self) -> int:
        return 1

    @property
    def seconds_per_step(self) -> float:
        """A guess, for the time left."""
        return 1.0

    @property
    def disk(self) -> int:
        """About the bytes of weights or shards it leaves; 0 where all it leaves is small."""
        return 0

    @property
    def saved(self) -> int:
        """About the bytes of one of its checkpoints."""
        return 0

    @abstractmethod
    def run(self, context: Context) -> None:
        """Do the work, or what is left of it; whatever it leaves is in its folder."""

    @cached_property
    def key(self) -> str:
        plugins = [plugin.sha256 for plugin in used_by(self)]
        inputs = [stage.key for stage in self.inputs]
        settings = [self.kind, self.version, self.config, inputs, *versions(), *plugins]
        return f"{self.kind}-{hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]}"

    @property
    def can_be_sent(self) -> bool:
        """Whether another process knows its classes; those of a notebook only this one does."""
        return all(plugin.origin != "session" for plugin in used_by(self))

    def task(self) -> Task:
        return Task(self.name, self.kind, self.steps, self.seconds_per_step)


@cache
def versions() -> tuple[str, ...]:
    """Of unbraid and torch, on which a stage depends beside its configuration; looking them up takes milliseconds."""
    return tuple(metadata.version(name) for name in ("unbraid", "torch"))


def make(stage: Stage, stages: Cache, progress: TaskProgress, signals: StopSignals) -> None:
    """Have the stage in the cache: verified, or made now."""
    if not stages.has(stage.key, progress.say):
        with stages.making(stage.key, lambda: signals.received is not None) as folder:
            if not stages.has(stage.key, progress.say):  # whoever was before us may have made it
                folder.mkdir(exist_ok=True)
                if stages.lacks_checksums(stage.key):
                    progress.say(f"{folder} has no checksums and no checkpoint; it is made again")
                progress.begin(0)
                inputs, begins = frozenset(other.key for other in stage.inputs), not (folder / "checkpoints").is_dir()
                began = time.monotonic()
                with blamed():
                    stage.run(Context(folder, stages, progress, signals, inputs))
                facts = {"kind": stage.kind, "version": stage.version, "config": stage.config}
                if begins:  # for whoever wants to know how long the next will take
                    facts |= {"seconds": round(time.monotonic() - began, 3), "guess": stage.task().seconds}
                stages.finish(stage.key, {**facts, "inputs": [other.key for other in stage.inputs]})
    progress.advance(stage.steps)


def to_make(wanted: Iterable[Stage], stages: Cache, say: Callable[[str], None]) -> list[Stage]:
    """The stages that are not in the cache: of these, and of all that those need; each once, inputs first."""
    return in_order(wanted, lambda stage: stages.has(stage.key, say))


def in_order(wanted: Iterable[Stage], is_made: Callable[[Stage], bool] = lambda _: False) -> list[Stage]:
    """These stages and all that they need, each once, inputs first; without those that are made."""
    ordered: dict[str, Stage] = {}

    def visit(stage: Stage) -> None:
        if stage.key not in ordered and not is_made(stage):
            for other in stage.inputs:
                visit(other)
            ordered[stage.key] = stage

    for stage in wanted:
        visit(stage)
    return list(ordered.values())
