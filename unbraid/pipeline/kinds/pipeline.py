"""The pipeline: train a model on stories, capture its activations, learn dictionaries of them, score these.

Reads [world] (stories), [model] with its training and evaluation, [constraints], [activations] (what is captured),
[dictionary] [training] [mechanisms] or [baseline] [samples], and [evaluation] [checkpoints]. Cases may replace the
dictionary by a baseline. Dictionaries are scored against the factors behind every token.
"""

from functools import cached_property
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from unbraid.config import JsonDict, task_of
from unbraid.errors import UserError
from unbraid.metrics.catalog import METRICS
from unbraid.pipeline.capture_model import ActivationsConfig, check_site, site_width
from unbraid.pipeline.causal_stages import BoundCausalEffects, EvaluateCausalEffects, EvaluateReplacement
from unbraid.pipeline.dictionary_stages import FitBaselines, TrainStack
from unbraid.pipeline.experiment import MemberStack, ModelToTry, total_memory
from unbraid.pipeline.kinds.dictionaries import Evaluation, LearnsDictionaries
from unbraid.pipeline.kinds.models import TrainsModels
from unbraid.pipeline.model_stages import CaptureActivations, EvaluateModels, ProbeFactors, TrainModels
from unbraid.pipeline.stage import Stage
from unbraid.pipeline.tracker import Tracking
from unbraid.storage.cache import Cache
from unbraid.storage.files import read_arrays, read_json, write_arrays, write_json
from unbraid.storage.runs import Run
from unbraid.worlds.stories import Stories

FEWEST_SAMPLES = 200
OF_THE_MODEL = tuple(name for name, metric in METRICS.items() if metric.scope == "model")
"""Scores of a model that stand beside those of what was learned from it."""


class PipelineEvaluation(Evaluation):
    """How dictionaries of a model's activations are scored."""

    pairs: int = Field(default=24, ge=0, le=10**6)
    """Pairs of stories a factor on which features are edited inside the model; time grows with it. 0: not edited."""


class PipelineExperiment(LearnsDictionaries, TrainsModels):
    """A model on stories, and dictionaries of its activations."""

    swept: ClassVar[tuple[str, ...]] = (
        *("seed", "precision", "world", "model", "constraints", "activations"),
        *("dictionary", "training", "mechanisms", "baseline", "samples"),
    )
    sections: ClassVar[tuple[str, ...]] = (
        *("factor_recovery", "equal_accuracy", "concept_matching", "disentanglement"),
        *("causal", "stability", "training_curves", "differences", "all_scores"),
    )

    kind: Literal["pipeline"]
    """What kind of experiment this is."""
    world: Stories = Stories()  # pyright: ignore[reportIncompatibleVariableOverride]
    """The stories, and the questions about them."""
    activations: ActivationsConfig = ActivationsConfig()
    """Where in the model to look, and on how many stories."""
    evaluation: PipelineEvaluation = PipelineEvaluation()  # pyright: ignore[reportIncompatibleVariableOverride]
    """How dictionaries are scored: on tokens that no training has seen, and inside the model."""

    @model_validator(mode="after")
    def check_pipeline(self) -> Self:
        if self.evaluation.language_model is not None:
            raise ValueError(
                "evaluation.language_model was given; accepted in a pipeline: evaluation.samples and evaluation.pairs"
            )
        if self.evaluation.samples < FEWEST_SAMPLES:
            raise ValueError(
                f"evaluation.samples is {self.evaluation.samples}, too few tokens to tell concepts by; accepted: "
                f"{FEWEST_SAMPLES} or more in a pipeline"
            )
        if self.baseline is not None and self.activations.targets:
            raise ValueError("a baseline cannot predict activations.target; accepted: a dictionary, or no target")
        try:
            check_site(self.activations, self.model)
        except UserError as problem:
            raise ValueError(str(problem)) from None
        return self

    @property
    def leading(self) -> str:
        return "phi"

    @cached_property
    def dimensions(self) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        return sum(
            site_width(self.model, self.world, site)  # pyright: ignore[reportArgumentType] (frozen)
            for site in self.activations.inputs
        )

    def replicate(self) -> str:
        return f"{self.world.seed}/{self.model.seed}/{self.seed}"

    def comparable(self, setting: JsonDict) -> JsonDict:
        """With cases, all else must be alike, as the dictionary's size; without, the task."""
        if "case" in setting:
            return {path: value for path, value in setting.items() if path != "case"}
        return task_of(setting)

    def memory(self) -> int:
        """The dimensions of activations are known from the model, which must fit first."""
        model = self.model_memory()
        return model if model > total_memory() else max(model, self.member_memory())

    def smaller(self) -> str:
        return TrainsModels.smaller(self) if self.model_memory() > total_memory() else LearnsDictionaries.smaller(self)

    def model_to_try(self) -> ModelToTry | None:
        sites, targets = self.activations.inputs, self.activations.targets
        return ModelToTry(self.world, self.model, " + ".join(sites), " + ".join(targets) or None)

    def source_key(self) -> str:
        return self._model().key

    def stages(self, stack: MemberStack) -> tuple[Stage, ...]:
        captured = CaptureActivations(f"{self._model_name} · capturing", self._model(), self.activations)
        probe = ProbeFactors(f"{self._model_name} · probing", captured, self.evaluation.samples)
        learning = self.learning_stages(stack, None, captured, probe, Tracking())
        return (*learning, *self._causal(stack, captured, learning[0]), self._evaluated())

    def copied(self, stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
        return stages[:-1]

    def collect(self, run: Run, stack: MemberStack, cache: Cache) -> None:
        """Beside the scores of a stack those of the model it learned from, the same for every member, and its heads."""
        evaluated = cache.folder(self._evaluated().key)
        scores = read_json(evaluated / "scores.json")
        kept = {
            part: {name: values[name] * len(stack.members) for name in OF_THE_MODEL if name in values}
            for part, values in scores.items()
        }
        write_json(run.stack(stack.index) / "model.json", kept)
        write_arrays(run.stack(stack.index) / "heads.safetensors", read_arrays(evaluated / "tables.safetensors"))
        write_json(run.stack(stack.index) / "stories.json", read_json(evaluated / "stories.json"))

    @property
    def _model_name(self) -> str:
        return f"model {self.world.task} · seed {self.world.seed}/{self.model.seed}"

    def _causal(self, stack: MemberStack, captured: CaptureActivations, learned: Stage) -> tuple[Stage, ...]:
        """Edit the model by what was learned, or replace a part of it, if that is asked for."""
        if not self.evaluation.pairs or (not self.activations.is_plain and not isinstance(learned, TrainStack)):
            return ()
        if isinstance(learned, TrainStack) and not self.activations.is_plain:
            return (EvaluateReplacement(f"{stack.name} · replacing", captured, learned, self.evaluation.pairs),)
        assert isinstance(learned, TrainStack | FitBaselines)
        name, evaluation = f"{self._model_name} · editing", self.evaluation
        bounds = BoundCausalEffects(name, captured, evaluation.samples, evaluation.pairs)
        return (EvaluateCausalEffects(f"{stack.name} · editing", bounds, learned),)

    def _model(self) -> TrainModels:
        return TrainModels(
            name=f"{self._model_name} · training",
            world=self.world,
            members=(self.model_member(self.model.seed),),
            names=(self._model_name,),
            checkpoints=self.checkpoints,
            hardware=self.hardware,
        )

    def _evaluated(self) -> EvaluateModels:
        return EvaluateModels(f"{self._model_name} · evaluation", self._model(), self.model.evaluation, (0,))
