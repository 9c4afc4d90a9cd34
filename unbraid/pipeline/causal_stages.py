"""Stages that edit a trained model: what its answers do when the features of a planted factor are changed inside it.

Bound     bounds.json: what needs no dictionary, and every dictionary of these activations is held against
Evaluate  causal.json: scores of every member, and the effect of every method on every factor
Replace   replacement.json: what the model answers with the predictions of transcoders or crosscoders in place
"""

from dataclasses import dataclass

from unbraid.config import JsonDict
from unbraid.dictionaries import Stack
from unbraid.dictionaries.baselines import FittedBaseline
from unbraid.dictionaries.folding import fold
from unbraid.evaluation.causal import (
    STRENGTHS,
    CausalBounds,
    EditableModel,
    FactorTest,
    effects_to_dict,
    factor_tests,
    score_causal,
)
from unbraid.evaluation.dictionaries import random_dictionaries
from unbraid.evaluation.factors import Concepts
from unbraid.evaluation.replacement import Replacement, score_replacement
from unbraid.pipeline.dictionary_stages import FitBaselines, TrainStack
from unbraid.pipeline.model_stages import CaptureActivations
from unbraid.pipeline.stage import Context, Stage
from unbraid.storage.files import read_json, write_json
from unbraid.worlds import Activations

SECONDS_PER_TOKEN_MATCHED = 4e-5
"""Of matching a dictionary's features again; a guess, as all seconds here (`tests/pipeline/timings`)."""


@dataclass(frozen=True)
class BoundCausalEffects(Stage):
    """Edit a trained model without a dictionary: by directions of class means, and by another story's activations."""

    kind = "causal-bounds"

    captured: CaptureActivations
    samples: int
    pairs: int
    """Pairs of stories a factor."""

    @property
    def side_by_side(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.captured.training.side_by_side

    @property
    def config(self) -> JsonDict:
        return {"normalize": self.captured.capture.normalize, "samples": self.samples, "pairs": self.pairs}

    @property
    def inputs(self) -> tuple[Stage, ...]:
        return (self.captured.training, self.captured)

    @property
    def seconds_per_step(self) -> float:
        return 0.3 + self.seconds(methods=len(STRENGTHS) + 4)

    def seconds(self, methods: int) -> float:
        """Of reading the stories of all factors so many times."""
        factors = len(self.captured.world.factors)
        return methods * factors * self.captured.training.forward_seconds(self.pairs + self.pairs // 4)

    def tests(self, context: Context, world: Activations) -> list[FactorTest]:
        model = self.captured.training.loaded(context)
        editable = EditableModel(model, self.captured.capture.site, world.normalization)
        return factor_tests(editable, self.captured.world, self.pairs)

    def run(self, context: Context) -> None:
        context.progress.status(self.name)
        world = self.captured.opened(context)
        bounds = CausalBounds.of(self.tests(context, world), Concepts.of(world, self.samples))
        write_json(context.folder / "bounds.json", bounds.to_dict())

    def made(self, context: Context) -> CausalBounds:
        return CausalBounds.from_dict(read_json(context.of(self) / "bounds.json"))


@dataclass(frozen=True)
class EvaluateCausalEffects(Stage):
    """Edit a trained model by the features of every dictionary of a stack, or of every baseline of a group."""

    kind = "causal"

    bounds: BoundCausalEffects
    learned: TrainStack | FitBaselines

    @property
    def side_by_side(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.bounds.captured.training.side_by_side

    @property
    def config(self) -> JsonDict:
        return {}

    @property
    def inputs(self) -> tuple[Stage, ...]:
        return (self.bounds.captured.training, self.bounds.captured, self.bounds, self.learned)

    @property
    def seconds_per_step(self) -> float:
        seconds = SECONDS_PER_TOKEN_MATCHED * self.bounds.samples + self.bounds.seconds(2 * len(STRENGTHS) + 2)
        fitting = self.learned.fitting_seconds if isinstance(self.learned, FitBaselines) else 0.0
        return 0.3 + len(self.learned.members) * (fitting + seconds)

    def run(self, context: Context) -> None:
        context.progress.status(self.name)
        world, bounds = self.bounds.captured.opened(context), self.bounds.made(context)
        tests = self.bounds.tests(context, world)
        concepts = Concepts.of(world, self.bounds.samples)
        scores = score_causal(self._dictionaries(context), tests, concepts, bounds)
        card = {"values": scores.values, "chance": scores.chance, "ceiling": scores.ceiling}
        effects = {"bounds": effects_to_dict(bounds.effects), "members": [effects_to_dict(e) for e in scores.effects]}
        write_json(context.folder / "causal.json", {**card, "effects": effects})

    def _dictionaries(self, context: Context) -> Stack | list[FittedBaseline]:
        """As training left them; baselines, of which only the directions are kept, are fitted once more."""
        learned = self.learned
        return learned.fitted(context) if isinstance(learned, FitBaselines) else learned.trained(context)


@dataclass(frozen=True)
class EvaluateReplacement(Stage):
    """Put what transcoders or crosscoders predict in the place of a trained model's activations."""

    kind = "replacement"

    captured: CaptureActivations
    learned: TrainStack
    pairs: int
    """Ten times as many stories are read."""

    @property
    def side_by_side(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.captured.training.side_by_side

    @property
    def config(self) -> JsonDict:
        return {"pairs": self.pairs, "normalize": self.captured.capture.normalize}

    @property
    def inputs(self) -> tuple[Stage, ...]:
        return (self.captured.training, self.captured, self.learned)

    @property
    def seconds_per_step(self) -> float:
        return 0.3 + 2 * (len(self.learned.members) + 6) * self.captured.training.forward_seconds(10 * self.pairs)

    def run(self, context: Context) -> None:
        context.progress.status(self.name)
        world, capture = self.captured.opened(context), self.captured.capture
        stack = self.learned.trained(context)
        drawn = random_dictionaries(stack, stack.d_in, "chance")
        folded, *random = (
            fold(each, world.normalization, world.target_normalization)
            for each in (stack, *drawn)
            if isinstance(each, Stack)
        )
        model, stories = self.captured.training.loaded(context), 10 * self.pairs
        sites = capture.inputs, capture.targets or capture.inputs
        replacement = Replacement(model, self.captured.world, *sites, stories)
        write_json(context.folder / "replacement.json", score_replacement(folded, random, replacement))
