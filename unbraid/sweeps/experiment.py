"""One experiment: what decides one dictionary, baseline, picture or model and how it is scored, as one record.

With `capture` it is a whole line: a model is taught on the stories, and a dictionary or baseline learns what is at a
site of it, to be scored against the factors behind the stories.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Literal, Self

from pydantic import Field, model_validator

from unbraid.config import Record, Tree
from unbraid.constraints import Constraint, recorded_for
from unbraid.constraints import Enabled as EnabledConstraints
from unbraid.constraints import enabled as enabled_constraints
from unbraid.dictionaries import Dictionary
from unbraid.dictionaries.baselines import AnyBaseline
from unbraid.errors import Refusal
from unbraid.examining import Examining
from unbraid.judging.settings import Judging
from unbraid.line import Capture
from unbraid.line.recording import width_of
from unbraid.line.settings import refuse_no_site
from unbraid.mechanisms import Enabled, enabled
from unbraid.mechanisms.mechanism import Mechanism, refuse_loose_ends
from unbraid.models import AnyModel, Transformer
from unbraid.sweeps.embedding import Tsne
from unbraid.training.schedule import Training
from unbraid.training.teaching import Teaching
from unbraid.worlds import Activations, AnyWorld, Batch, Superposition
from unbraid.worlds.stories import Stories
from unbraid.worlds.text import Text

TRAINED = ("dictionary", "training", "mechanisms", "saving", "tracking")
"""What only a dictionary that is trained has; but models are saved too."""
TAUGHT = ("model", "constraints", "teaching", "examining")
"""What only a model that is taught has, on a world of stories or text."""
FEWEST_SAMPLES = 200
NOT_OF_A_LINE = ("embedding", "tracking", "judging")
"""What needs planted directions, or a language model."""


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


class Data(Record):
    """The samples a baseline is fitted to or a picture shows: how many, and how many of them in one batch.

    A world may fire by one draw per batch, as the published correlated one does: a small batch sees many draws, `all`
    sees one, as seed 002 did.
    """

    samples: int = Field(default=2048, ge=2, le=10**9)
    batch: int | Literal["all"] = Field(default=256)

    @model_validator(mode="after")
    def have_some_in_a_batch(self) -> Self:
        if isinstance(self.batch, int) and self.batch < 1:
            raise ValueError(f"batch is {self.batch}; accepted: 1 or more, or 'all'")
        return self

    def batches(self, world: AnyWorld) -> Iterator[Batch]:
        size = self.samples if self.batch == "all" else self.batch
        for position in range(-(-self.samples // size)):
            yield world.batch(position, min(size, self.samples - position * size))


class Experiment(Record):
    """`seed` starts the dictionary; `world.seed` plants the truth and draws the data; `scale` only says which it is.

    With `baseline` something simpler is fitted to `data` in place of a dictionary; with `embedding` it is pictured. On
    a world of stories or text a `model` is taught instead; with `capture`, first.
    """

    title: str = ""
    scale: str = ""
    seed: int = Field(default=0, ge=0, lt=1 << 63)
    world: AnyWorld = Superposition()
    dictionary: Dictionary = Dictionary()
    training: Training = Training()
    mechanisms: Enabled = Enabled()
    baseline: AnyBaseline | None = None
    embedding: Tsne | None = None
    model: AnyModel = Transformer()
    constraints: EnabledConstraints = EnabledConstraints()
    teaching: Teaching = Teaching()
    examining: Examining = Examining()
    capture: Capture | None = None
    data: Data = Data()
    scoring: Scoring = Scoring()
    saving: Saving = Saving()
    tracking: Tracking = Tracking()
    judging: Judging | None = None

    @model_validator(mode="after")
    def connect_the_mechanisms(self) -> Self:
        refuse_loose_ends(self.enabled())
        return self

    @model_validator(mode="after")
    def be_taught_or_not(self) -> Self:
        others = [*TRAINED, "baseline", "embedding", "data", "scoring"] if self.is_taught else TAUGHT
        if self.capture is not None:
            self._walk_the_line(self.capture)
            others = NOT_OF_A_LINE
        wrong = [name for name in others if name in self.model_fields_set and name != "saving"]
        if wrong and self.is_taught:
            kind = self.asking.kind
            raise ValueError(f"{wrong[0]} was given, and on {kind} a model is taught; accepted: {', '.join(TAUGHT)}")
        if wrong and self.is_line:
            raise ValueError(f"{wrong[0]} was given, and with capture it cannot be; accepted: a dictionary or baseline")
        if wrong:
            kinds = "world.kind = 'stories' or 'text'"
            raise ValueError(f"{wrong[0]} is for a model, which is taught on stories or text; accepted: {kinds}")
        try:
            recorded_for(self.constraining(), self.model.layers)
        except Refusal as problem:
            raise ValueError(str(problem)) from None
        return self

    def _walk_the_line(self, capture: Capture) -> None:
        if not isinstance(self.world, Stories):
            raise ValueError(
                f"capture was given, and world.kind is '{self.world.tree()['kind']}'; accepted: 'stories', whose "
                "factors are known (activations of other models: world.kind = 'activations')"
            )
        if self.scoring.samples < FEWEST_SAMPLES:
            raise ValueError(
                f"scoring.samples is {self.scoring.samples}, too few tokens to tell concepts by; accepted: "
                f"{FEWEST_SAMPLES} or more with capture"
            )
        try:
            refuse_no_site(capture, self.model)
        except Refusal as problem:
            raise ValueError(str(problem)) from None

    @model_validator(mode="after")
    def not_see_what_comes(self) -> Self:
        if isinstance(self.world, Text) and not (self.model.causal and self.model.readout == "question"):
            seen = "model.readout is 'mean'" if self.model.causal else "model.causal is false"
            raise ValueError(
                f"{seen}, so that a token would see the next one, which it is asked for; accepted on a text: causal = "
                "true and readout = 'question'"
            )
        return self

    @model_validator(mode="after")
    def be_one_thing(self) -> Self:
        given = self.model_fields_set
        if self.is_trained and "data" in given and not self.is_line:
            raise ValueError("data is for a baseline or an embedding, and a dictionary is trained; accepted: training")
        things = [name for name in ("baseline", "embedding") if getattr(self, name) is not None]
        beside = () if self.is_line else TRAINED  # the cases of a line may replace its dictionary by a baseline
        others = [name for name in (*things[1:], *beside) if name in given] if things else []
        if others:
            raise ValueError(f"{things[0]} and {others[0]} were both given; accepted: one of them")
        if self.baseline is not None and self.baseline.seed:
            raise ValueError(f"baseline.seed is {self.baseline.seed}; accepted: seed = {self.baseline.seed} instead")
        return self

    @model_validator(mode="after")
    def have_a_truth_to_look_for(self) -> Self:
        asked = "embedding" if self.embedding is not None else "tracking.checks" if self.tracking.checks else None
        if asked and not self.is_taught and not self.world.is_planted:
            raise ValueError(f"{asked} needs a planted truth, and world.kind 'activations' has none; accepted: without")
        return self

    @model_validator(mode="after")
    def have_a_model_to_be_judged_on(self) -> Self:
        if self.judging is None:
            return self
        if not isinstance(self.world, Activations):
            raise ValueError(
                "judging needs a world of a model's activations, and this one is planted; accepted: world.kind "
                "'activations', or `unbraid judge` with --site when the run is finished"
            )
        if self.judging.site not in (None, self.world.site):
            raise ValueError(
                f"judging.site is '{self.judging.site:.60}' and the activations are of {self.world.site}; accepted: "
                "judging.site left out"
            )
        return self

    @property
    def is_line(self) -> bool:
        """Whether a model is taught first, and a dictionary or baseline learns its activations."""
        return self.capture is not None

    @property
    def is_taught(self) -> bool:
        """Whether a model is, and nothing after it."""
        return isinstance(self.world, Stories | Text) and not self.is_line

    @property
    def is_trained(self) -> bool:
        """Whether a dictionary is."""
        return self.baseline is None and self.embedding is None and not self.is_taught

    @property
    def asking(self) -> Stories | Text:
        """The world that asks the questions a model is taught on."""
        assert isinstance(self.world, Stories | Text), self.world
        return self.world

    @cached_property
    def dimensions(self) -> int:
        """Of what a dictionary or baseline sees."""
        if self.capture is None:
            return self.world.dimensions
        assert isinstance(self.world, Stories), self.world
        return width_of(self.model, self.world, self.capture.site)  # pyright: ignore[reportArgumentType] (frozen records hash)

    @property
    def planted(self) -> int:
        """How many directions were; of a line factors were, and where the model puts them nobody knows."""
        return 0 if self.is_line else len(self.world.directions)

    def constraining(self) -> dict[str, Constraint]:
        return enabled_constraints(self.constraints)

    def enabled(self) -> dict[str, Mechanism]:
        return enabled(self.mechanisms)

    def tree(self) -> Tree:
        """Without what this kind of experiment does not read."""
        if self.is_line:
            unread = {"tracking"}  # one configuration may have dictionaries and baselines as cases
        elif self.is_taught:
            unread = {*TRAINED, "data", "scoring"} - {"saving"}
        elif self.is_trained:
            unread = {"data", *TAUGHT}
        else:
            unread = {*TRAINED, *TAUGHT, *(("scoring",) if self.embedding is not None else ())}
        return {name: value for name, value in super().tree().items() if name not in unread}
