"""What every kind of experiment has: a name for each member, how members form stacks, and which stages a stack needs.

An experiment is a configuration with nothing left to sweep. Its kind is a class (`pipeline/kinds/`) that says which
tables it reads, which metric leads, which sections its report has, and which stages it is made of. Nothing outside a
kind asks what kind an experiment is.
"""

import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from unbraid.config import Config, JsonDict, check, per_member_fields
from unbraid.config.sweep import label
from unbraid.devices import DEVICE, Hardware, Precision
from unbraid.errors import UserError
from unbraid.models import AnyModel
from unbraid.pipeline.mirrors import MirrorName
from unbraid.pipeline.stage import Stage
from unbraid.storage.cache import Cache
from unbraid.storage.runs import Run
from unbraid.worlds import Activations, Batch, World
from unbraid.worlds.stories import Stories
from unbraid.worlds.text import Text


class Samples(Config):
    """The samples a baseline is fitted to or an embedding shows."""

    n: int = Field(default=2048, ge=2, le=10**9)
    """How many."""
    batch: int | Literal["all"] = Field(default=256)
    """How many are drawn in one batch. A world may fire by one draw a batch, as the published correlated one does: a
    small batch sees many draws, "all" sees one, as the superposition study did."""

    renamed: ClassVar[dict[str, str]] = {"samples": "n"}

    @model_validator(mode="after")
    def check_batch(self) -> Self:
        if isinstance(self.batch, int) and self.batch < 1:
            raise ValueError(f"batch is {self.batch}; accepted: 1 or more, or 'all'")
        return self

    def batches(self, world: World) -> Iterator[Batch]:
        size = self.n if self.batch == "all" else self.batch
        for position in range(-(-self.n // size)):
            yield world.batch(position, min(size, self.n - position * size))


class Experiment(Config, ABC):
    """One experiment: `seed` starts what is trained, `world.seed` plants the truth and draws the data."""

    swept: ClassVar[tuple[str, ...]]
    """The tables that may differ between the members of a sweep."""
    sections: ClassVar[tuple[str, ...]]
    """The sections of its report, in order."""
    renamed: ClassVar[dict[str, str]] = {
        "capture.seed": "model.seed",
        "teaching": "model.training",
        "examining": "model.evaluation",
        "capture": "activations",
        "scoring": "evaluation",
        "judging": "evaluation.language_model",
        "saving": "checkpoints",
        "data": "samples",
    }

    title: str = ""
    """What the report is called."""
    scale: str = ""
    """Which scale of its configuration this is; it changes nothing."""
    seed: int = Field(default=0, ge=0, lt=1 << 63)
    """Starts the dictionary, baseline, embedding or model that is trained last."""
    mirrors: tuple[MirrorName, ...] | None = Field(default=None, strict=False)
    """Other trackers that are told what is logged: tensorboard, wandb (offline), trackio. They change nothing."""
    device: str = "cpu"
    """Where models and dictionaries are trained, captured and evaluated: "auto" (the first of cuda and mps that is
    here, else the CPU), "cpu", "cuda", "cuda:1" or "mps". Baselines and embeddings are made on the CPU."""
    precision: Precision = "float32"
    """Of matrix products: bfloat16 and float16 are faster on a GPU and round more. Weights, thresholds, Adam and sums
    are float32."""

    @field_validator("device")
    @classmethod
    def check_device(cls, device: str) -> str:
        if not re.fullmatch(DEVICE, device):
            raise ValueError(f"device is '{device:.40}'; accepted: 'auto', 'cpu', 'cuda', 'cuda:1' or 'mps'")
        return device

    @property
    def hardware(self) -> Hardware:
        """What its stages run on; refuses a device that is not here."""
        return Hardware.of(self.device, self.precision)

    @property
    @abstractmethod
    def leading(self) -> str:
        """The metric that settings are ranked by."""

    @abstractmethod
    def replicate(self) -> str:
        """Which replicate of its setting this is: its seeds, joined by slashes."""

    @abstractmethod
    def shared(self) -> JsonDict:
        """What the members of one stack must have in common."""

    @abstractmethod
    def memory(self) -> int:
        """About the bytes that one member takes."""

    def smaller(self) -> str:
        """What would take less memory, in words."""
        return "n_features, world.dimensions or samples in a batch"

    def most_together(self) -> int:
        """How many members at most make one stack."""
        return 1 << 30

    def comparable(self, setting: JsonDict) -> JsonDict:
        """What of a setting those that it is compared with must have too."""
        return {}

    @abstractmethod
    def stages(self, stack: "MemberStack") -> tuple[Stage, ...]:
        """The stages whose files make up the folder of one stack, and through their inputs all that they need."""

    @classmethod
    def check_without_world(cls, tree: JsonDict, source: str) -> None:
        """Say what is wrong in all but the world, which is still to be captured."""
        check(cls, {key: value for key, value in tree.items() if key != "world"}, source)

    def check_before(self, stacks: Sequence["MemberStack"]) -> None:
        """Say before anything is trained what would be in the way of the rest."""

    def collect(self, run: Run, stack: "MemberStack", cache: Cache) -> None:
        """Whatever a stack of a run gets beside the files of its stages."""

    def after_stacks(self, run: Run, stacks: Sequence["MemberStack"]) -> None:
        """Whatever is made of several stacks together, when all are there."""

    def final_stages(
        self, stacks: Sequence["MemberStack"], members: Sequence["Member"]
    ) -> tuple[tuple[str, Stage], ...]:
        """Stages of the whole run, each with the name of the one file that it gives to the run."""
        return ()

    def copied(self, stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
        """Those of a stack's stages whose files the run gets."""
        return stages

    def dictionary_world(self) -> World | None:
        """What a trained dictionary learned from; None where none is trained, or from no world."""
        return None

    def metric_facts(self) -> dict[str, JsonDict]:
        """What is known of metrics that are in no catalog: `label`, `sentence`, `unit`, `format` and `better`."""
        return {}

    def model_to_try(self) -> "ModelToTry | None":
        """What the explorer's Try page reads texts with; None where the run has no model."""
        return None

    def source_key(self) -> str | None:
        """The stage that several replicates may have learned from, as one trained model; None where there is none."""
        return None


@dataclass(frozen=True)
class ModelToTry:
    """A model that reads what a person types, and the site that dictionaries look at."""

    world: Stories | Text | Activations
    """Whose texts it reads; of captured activations, the model they are of."""
    architecture: AnyModel | None = None
    """Of a model that the run trained."""
    site: str | None = None
    """Where the run's dictionaries look; None where the models themselves are its members. Of several: a + b."""
    target: str | None = None
    """What its transcoders predict."""


@dataclass(frozen=True)
class Member:
    """One combination of the sweep: its experiment, and what the sweep set other than seeds."""

    experiment: Experiment
    setting: dict[str, Any]

    def card(self) -> JsonDict:
        """As `members.json` holds it."""
        return {"setting": self.setting, "seed": self.experiment.seed, "replicate": self.experiment.replicate()}

    @property
    def name(self) -> str:
        """What a person calls it."""
        return f"{label(self.setting)} · seed {self.experiment.replicate()}"


@dataclass(frozen=True)
class MemberStack:
    """Members that are made together, and which stack of the run they are."""

    index: int
    members: tuple[Member, ...]

    @property
    def first(self) -> Experiment:
        return self.members[0].experiment

    @property
    def name(self) -> str:
        """By its settings and seeds, as far as they fit a line."""
        settings = list(dict.fromkeys(label(member.setting) for member in self.members))
        seeds = list(dict.fromkeys(member.experiment.replicate() for member in self.members))
        words = settings[0] if len(settings) == 1 else f"{len(settings)} settings from {settings[0]}"
        return f"{words} · seed {seeds[0]}" if len(seeds) == 1 else f"{words} · {len(seeds)} seeds"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(member.name for member in self.members)

    @property
    def shown(self) -> tuple[int, ...]:
        """The position of the first member of each setting: of these a run keeps more than of the rest."""
        first = {str(member.setting): index for index, member in reversed(list(enumerate(self.members)))}
        return tuple(sorted(first.values()))


def stacks_of(members: Sequence[Member]) -> list[MemberStack]:
    """Which members are made together, in the order their first members appear."""
    groups: dict[str, list[Member]] = {}
    for member in members:
        groups.setdefault(json.dumps(member.experiment.shared(), sort_keys=True), []).append(member)
    parts: list[tuple[Member, ...]] = []
    for group in groups.values():
        most = group[0].experiment.most_together()
        parts += [tuple(group[start : start + most]) for start in range(0, len(group), most)]
    return [MemberStack(index, part) for index, part in enumerate(parts)]


def total_memory() -> int:
    """Of this machine, in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def check_memory(members: Sequence[Member]) -> None:
    """Say before starting that a member cannot fit in this machine's memory."""
    memory = total_memory()
    largest = max((member.experiment for member in members), key=lambda experiment: experiment.memory())
    if (needed := largest.memory()) > memory:
        raise UserError(
            f"one member of this size takes about {needed / 2**30:.1f} GiB and this machine has "
            f"{memory / 2**30:.1f} GiB; accepted: fewer {largest.smaller()}"
        )


def without_per_member(config: Config, tree: JsonDict) -> JsonDict:
    """The tree of a configuration without the hyper-parameters that members of one stack may each have."""
    return {name: value for name, value in tree.items() if name not in per_member_fields(type(config))}
