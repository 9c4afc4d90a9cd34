"""Dictionaries on a world: train sparse autoencoders or fit baselines, and score them against the planted truth.

Reads [world] [dictionary] [training] [mechanisms] or [baseline] [samples], and [evaluation] [checkpoints] [tracking].
On activations of a language model there is no truth; with [evaluation.language_model] dictionaries are spliced into it.
"""

import json
from collections.abc import Sequence
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from unbraid.config import Config, JsonDict, check
from unbraid.dictionaries import Dictionary
from unbraid.dictionaries.baselines import AnyBaseline, KMedoids
from unbraid.dictionaries.mechanisms import Enabled, Mechanism, enabled
from unbraid.dictionaries.mechanisms.mechanism import check_signals
from unbraid.dictionaries.stack import InitFrom
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.sharded_step import check_sharding
from unbraid.errors import UserError
from unbraid.evaluation.further import EnabledMetrics
from unbraid.evaluation.language_model.config import LanguageModelEvaluation, check_texts_exist
from unbraid.evaluation.larger import compare_with_larger
from unbraid.mesh import here
from unbraid.pipeline.dictionary_stages import (
    BaselineMember,
    DictionaryMember,
    EvaluateStack,
    FitBaselines,
    TrainStack,
)
from unbraid.pipeline.experiment import Experiment, Member, MemberStack, ModelToTry, Samples, without_per_member
from unbraid.pipeline.language_model_stage import EvaluateOnLanguageModel, check_can_evaluate
from unbraid.pipeline.model_stages import CaptureActivations, ProbeFactors
from unbraid.pipeline.stage import Stage
from unbraid.pipeline.tracker import Tracking
from unbraid.pipeline.training import Checkpoints
from unbraid.storage.runs import LANGUAGE_MODEL, Run
from unbraid.worlds import (
    Activations,
    AnyWorld,
    Stories,
    Superposition,
    Synth,
    Text,
    World,
)

STACK_BYTES = 2 << 30
"""Larger stacks are split; a constant, so that a run has the same stacks on every machine."""
DICTIONARY = ("dictionary", "training", "mechanisms")
BASELINE = ("baseline", "samples")


class Evaluation(Config):
    """How dictionaries are scored."""

    samples: int = Field(default=20_480, ge=1, le=10**12)
    """Fresh samples, or tokens that no training has seen. Raising it makes every score more exact."""
    metrics: EnabledMetrics = EnabledMetrics()
    """Metrics that plugins bring; the presence of a metric's table switches it on."""
    language_model: LanguageModelEvaluation | None = None
    """Whether and how they are also evaluated inside the language model whose activations they learned."""


class LearnsDictionaries(Experiment):
    """What every experiment has that ends with dictionaries or baselines."""

    dictionary: Dictionary = Dictionary()
    """The dictionary's size, activation rule and initialization."""
    training: Training = Training()
    """How long, on how much, and how fast."""
    mechanisms: Enabled = Enabled()
    """What is added to the training; the presence of a mechanism's table switches it on."""
    baseline: AnyBaseline | None = None
    """Something simpler that is fitted in place of a dictionary."""
    samples: Samples = Samples()
    """The samples a baseline is fitted to."""
    evaluation: Evaluation = Evaluation()
    """How they are scored."""
    checkpoints: Checkpoints = Checkpoints()
    """How often training logs and saves."""
    workers: int = Field(default=1, ge=1, le=4096)
    """Processes among which the features of each dictionary are shared out; more hold larger dictionaries."""
    shards: int | None = Field(default=None, ge=1, le=4096)
    """Parts that features are cut into; with fewer than workers, the batch is shared out too. None: one per worker."""

    @model_validator(mode="after")
    def check_workers(self) -> Self:
        if self.workers > 1 and self.baseline is not None:
            raise ValueError(f"workers is {self.workers}, and a baseline is fitted in one process; accepted: 1")
        if self.workers > 1 and (self.device != "cpu" or self.precision != "float32"):
            here = f"device is {self.device} in {self.precision}"
            raise ValueError(f"workers is {self.workers} and {here}; accepted: the CPU in float32, or workers = 1")
        if self.workers > 1 or self.shards is not None:
            shards = self.shards or self.workers
            try:
                check_sharding(self.dictionary, self.enabled(), self.training, self.workers, shards)
            except UserError as problem:
                raise ValueError(str(problem)) from None
        return self

    @model_validator(mode="after")
    def check_mechanisms(self) -> Self:
        check_signals(self.enabled())
        return self

    @model_validator(mode="after")
    def check_is_trained(self) -> Self:
        if self.training.steps == 0 and not isinstance(self.dictionary.init, InitFrom):
            raise ValueError(
                "training.steps is 0 and the dictionary is not there yet; accepted: 1 or more, or dictionary.init = "
                '{ from = "path" }'
            )
        return self

    @model_validator(mode="after")
    def check_seed_of_baseline(self) -> Self:
        if self.baseline is not None and self.baseline.seed:
            raise ValueError(f"baseline.seed is {self.baseline.seed}; accepted: seed = {self.baseline.seed} instead")
        return self

    def enabled(self) -> dict[str, Mechanism]:
        return enabled(self.mechanisms)

    def metric_facts(self) -> dict[str, JsonDict]:
        return {name: metric.facts() for name, metric in self.evaluation.metrics.switched_on().items()}

    @property
    def dimensions(self) -> int:
        """Of what a dictionary or baseline sees."""
        raise NotImplementedError

    @property
    def n_planted(self) -> int:
        """How many directions were planted."""
        return 0

    def most_together(self) -> int:
        return max(1, STACK_BYTES // self.member_memory()) if self.baseline is None else super().most_together()

    def memory(self) -> int:
        return self.member_memory() * here(self.workers) // self.workers

    def member_memory(self) -> int:
        """Weights, gradients, two moments; what the activation rule holds; cosines with the truth."""
        if self.baseline is not None:
            return self._baseline_memory(self.baseline)
        features, codes = self.dictionary.d_sae, self.dictionary.activation.codes_held
        batch, dimensions = self.training.batch, self.dimensions
        training = 8 * features * dimensions + codes * batch * features + 3 * batch * dimensions
        return 4 * (training + 3 * self.n_planted * features + self.n_planted * dimensions)

    def _baseline_memory(self, baseline: AnyBaseline) -> int:
        """The data, once as drawn and in double what is looked at; distances of all pairs of points; cosines."""
        looked_at = min(self.samples.n, baseline.points or self.samples.n)
        pairs = looked_at**2 if isinstance(baseline, KMedoids) else 0
        cosines = 3 * self.n_planted * baseline.n_components
        return 4 * ((self.samples.n + 4 * looked_at) * self.dimensions + pairs + cosines)

    def shared(self) -> JsonDict:
        tree = self.to_dict()
        del tree["seed"]
        if self.baseline is not None:
            return {name: value for name, value in tree.items() if name not in (*DICTIONARY, "samples")}
        tree["training"] = without_per_member(self.training, tree["training"])
        for name, mechanism in self.enabled().items():
            tree["mechanisms"][name] = without_per_member(mechanism, tree["mechanisms"][name])
        return {name: value for name, value in tree.items() if name not in BASELINE}

    def learning_stages(
        self,
        stack: MemberStack,
        world: AnyWorld | None,
        captured: CaptureActivations | None,
        probe: ProbeFactors | None,
        tracking: Tracking,
    ) -> tuple[Stage, ...]:
        """Train and evaluate a stack of dictionaries, or fit and score baselines."""
        experiments = [member.experiment for member in stack.members]
        learned = [experiment for experiment in experiments if isinstance(experiment, LearnsDictionaries)]
        source = {"world": world, "captured": captured}
        scored = {"probe": probe, "samples": self.evaluation.samples, "shown": stack.shown}
        scored["metrics"] = self.evaluation.metrics.switched_on()
        if self.baseline is not None:
            baselines = tuple(BaselineMember(e.baseline, e.samples, e.seed) for e in learned if e.baseline is not None)
            return (FitBaselines(name=f"{stack.name} · fitting", members=baselines, **source, **scored),)
        train = TrainStack(
            name=f"{stack.name} · training",
            members=tuple(DictionaryMember(e.dictionary, e.training, e.enabled(), e.seed) for e in learned),
            names=stack.names,
            tracking=tracking,
            checkpoints=self.checkpoints,
            dimensions=self.dimensions,
            workers=self.workers,
            shards=self.shards,
            hardware=self.hardware,
            **source,
        )
        settings = tuple(json.dumps(member.setting) for member in stack.members)
        evaluate = EvaluateStack(
            name=f"{stack.name} · evaluation", training=train, settings=settings, **source, **scored
        )
        return (train, evaluate)


class DictionaryExperiment(LearnsDictionaries):
    """Dictionaries or baselines on a world with planted truth, or on a language model's activations."""

    swept: ClassVar[tuple[str, ...]] = (
        *("seed", "precision", "world", "dictionary", "training", "mechanisms", "baseline", "samples"),
    )
    sections: ClassVar[tuple[str, ...]] = (
        *("grid", "score_figures", "differences", "all_scores", "concept_fates", "published_runs"),
        *("mechanism_effects", "pareto_fronts", "absorption", "feature_correlations", "sparse_probing"),
        *("dead_features", "tracking", "timelines", "training_curves"),
        *("recovery_by_samples", "recovery_by_rate", "feature_recovery", "cosines", "firing_rates", "stability"),
    )

    kind: Literal["dictionaries"] = "dictionaries"
    """What kind of experiment this is."""
    world: AnyWorld = Superposition()
    """Where inputs come from: planted directions, or captured activations."""
    tracking: Tracking = Tracking()
    """Whether true features are looked for while training."""

    @model_validator(mode="after")
    def check_world(self) -> Self:
        if isinstance(self.world, (Stories, Text)):
            found = self.world.to_dict()["kind"]
            raise ValueError(
                f"world.kind is '{found}', on which models are trained; accepted: world.kind = 'superposition', "
                "'synth' or 'activations', or at the top kind = 'models' (stories), 'language_models' (text) or "
                "'pipeline'"
            )
        return self

    @model_validator(mode="after")
    def check_one_thing(self) -> Self:
        given = self.model_fields_set
        others = [name for name in (*DICTIONARY, "checkpoints", "tracking") if name in given]
        if self.baseline is not None and others:
            raise ValueError(f"baseline and {others[0]} were both given; accepted: one of them")
        if self.baseline is not None and self.world.target_dimensions is not None:
            raise ValueError("a baseline cannot predict the world's targets; accepted: a dictionary, or another world")
        if self.baseline is None and "samples" in given:
            raise ValueError("samples is for a baseline, and a dictionary is trained; accepted: training")
        return self

    @model_validator(mode="after")
    def check_truth(self) -> Self:
        if self.tracking.checks and not self.n_planted:
            raise ValueError(
                "tracking.checks needs a planted truth, and world.kind 'activations' has none; accepted: without"
            )
        return self

    @model_validator(mode="after")
    def check_language_model(self) -> Self:
        asked = self.evaluation.language_model
        if asked is None:
            return self
        if not isinstance(self.world, Activations):
            raise ValueError(
                "evaluation.language_model needs a world of a model's activations, and this one is planted; accepted: "
                "world.kind 'activations', or `unbraid evaluate` with --site when the run is finished"
            )
        if asked.site not in (None, self.world.site):
            raise ValueError(
                f"evaluation.language_model.site is '{asked.site:.60}' and the activations are of {self.world.site}; "
                "accepted: the site left out"
            )
        return self

    @property
    def leading(self) -> str:
        return "mmcs" if self.n_planted else "explained_variance"

    @property
    def dimensions(self) -> int:
        return self.world.dimensions

    @property
    def n_planted(self) -> int:
        """Known without planting them: a sweep is expanded in a moment, however large its worlds."""
        if isinstance(self.world, Activations):
            return 0
        return self.world.n_features if isinstance(self.world, Superposition | Synth) else len(self.world.directions)

    def dictionary_world(self) -> World | None:
        return self.world if self.baseline is None else None

    def model_to_try(self) -> ModelToTry | None:
        if not isinstance(self.world, Activations):
            return None
        site, _, target = self.world.site.partition(" → ")
        return ModelToTry(self.world, site=site, target=target or None)

    def replicate(self) -> str:
        return f"{self.world.to_dict().get('seed', 0)}/{self.seed}"

    def to_dict(self) -> JsonDict:
        """Without what only the other sort of experiment reads."""
        unread = BASELINE if self.baseline is None else (*DICTIONARY, "checkpoints", "tracking")
        return {name: value for name, value in super().to_dict().items() if name not in unread}

    def stages(self, stack: MemberStack) -> tuple[Stage, ...]:
        return self.learning_stages(stack, self.world, None, None, self.tracking)

    @classmethod
    def check_without_world(cls, tree: JsonDict, source: str) -> None:
        evaluation = tree.get("evaluation", {})
        asked = evaluation.get("language_model") if isinstance(evaluation, dict) else None
        if asked is not None:
            evaluation = {key: value for key, value in evaluation.items() if key != "language_model"}
        super().check_without_world({**tree, "evaluation": evaluation}, source)
        if asked is not None:
            check_texts_exist(check(LanguageModelEvaluation, asked, f"{source}: evaluation.language_model"))

    def check_before(self, stacks: Sequence[MemberStack]) -> None:
        if self.evaluation.language_model is not None:
            worlds = [
                s.first.world for s in stacks if isinstance(s.first, DictionaryExperiment) and not s.first.baseline
            ]
            check_can_evaluate(self.evaluation.language_model, worlds)

    def after_stacks(self, run: Run, stacks: Sequence[MemberStack]) -> None:
        experiments = [stack.first for stack in stacks]
        learned = [experiment for experiment in experiments if isinstance(experiment, DictionaryExperiment)]
        configs = [
            [] if first.baseline else [member.experiment.to_dict() for member in stack.members]
            for first, stack in zip(learned, stacks, strict=True)
        ]
        folders = [run.stack(stack.index) for stack in stacks]
        compare_with_larger(folders, configs, [first.dimensions for first in learned])

    def final_stages(self, stacks: Sequence[MemberStack], members: Sequence[Member]) -> tuple[tuple[str, Stage], ...]:
        asked = self.evaluation.language_model
        if asked is None:
            return ()
        trained = [s for s in stacks if isinstance(s.first, DictionaryExperiment) and s.first.baseline is None]
        stage = EvaluateOnLanguageModel.of(asked, [(s, s.first.stages(s)) for s in trained], members)
        return ((LANGUAGE_MODEL, stage),)
