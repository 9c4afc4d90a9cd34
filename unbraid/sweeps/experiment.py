"""One experiment: everything that decides one dictionary and how it is scored, as one record."""

from typing import Self

from pydantic import Field, model_validator

from unbraid.config import Record
from unbraid.dictionaries import Dictionary
from unbraid.mechanisms import Enabled, enabled
from unbraid.mechanisms.mechanism import Mechanism, refuse_loose_ends
from unbraid.training.schedule import Training
from unbraid.worlds import AnyWorld, Superposition


class Scoring(Record):
    """On how many fresh samples a dictionary is scored."""

    samples: int = Field(default=20_480, ge=1, le=10**12)


class Saving(Record):
    """How often, in steps, a line is logged and a checkpoint saved; neither changes the result."""

    log_every: int = Field(default=50, ge=1, le=10**12)
    checkpoint_every: int = Field(default=250, ge=1, le=10**12)


class Tracking(Record):
    """At how many steps, evenly spaced in their logarithm, true features are looked for while training (0: never).

    Each time `samples` fresh samples tell which entries are dead. It does not change the result.
    """

    checks: int = Field(default=0, ge=0, le=1000)
    samples: int = Field(default=40_960, ge=1, le=10**12)


class Experiment(Record):
    """`seed` starts the dictionary; `world.seed` plants the truth and draws the data; `scale` only says which it is."""

    title: str = ""
    scale: str = ""
    seed: int = Field(default=0, ge=0, lt=1 << 63)
    world: AnyWorld = Superposition()
    dictionary: Dictionary = Dictionary()
    training: Training = Training()
    mechanisms: Enabled = Enabled()
    scoring: Scoring = Scoring()
    saving: Saving = Saving()
    tracking: Tracking = Tracking()

    @model_validator(mode="after")
    def connect_the_mechanisms(self) -> Self:
        refuse_loose_ends(self.enabled())
        return self

    def enabled(self) -> dict[str, Mechanism]:
        return enabled(self.mechanisms)
