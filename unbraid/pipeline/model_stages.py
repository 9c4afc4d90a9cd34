"""Stages about models: train them, evaluate them, capture their activations, probe these for the planted factors.

Train     log.jsonl, weights; training.json has the scores that only training knows, as the seconds it took
Evaluate  scores.json, tables of layers and heads; stories.json or texts.json: what those tables are of, in words
Capture   shards/: activations at one site, with the factors behind every token
Probe     probe.json: what a linear probe tells of every concept
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from math import isfinite

import torch

from unbraid.axes import Tensor
from unbraid.config import JsonDict
from unbraid.devices import Hardware
from unbraid.evaluation.factors import Concepts, probe_concepts
from unbraid.evaluation.heads import AttentionExamples, evaluate_heads, show_attention
from unbraid.evaluation.text_models import (
    attention_on,
    beliefs_by_pairs,
    continue_text,
    evaluate_text,
    first_windows,
    loss_units,
    ngram_baselines,
)
from unbraid.evaluation.uniformity import diagnose, lines, track
from unbraid.members import stack_configs
from unbraid.metrics.heads import capped_steps_to, steps_to
from unbraid.models import AnyModel, GaugeModels, HeadEvaluation, Models, ModelTraining, models_of
from unbraid.models.constraints import Constraint
from unbraid.models.training import ModelState, StepOutput, train_model
from unbraid.pipeline.capture_model import ActivationsConfig, capture_model, site_width
from unbraid.pipeline.stage import Context, Stage
from unbraid.pipeline.training import Checkpoints, TrainingLoop, arrays, restore_weights
from unbraid.progress import Task
from unbraid.schedule import rate_factor
from unbraid.storage.checkpoints import read_log
from unbraid.storage.files import read_arrays, read_json, write_arrays, write_json
from unbraid.worlds import Activations
from unbraid.worlds.stories import Stories
from unbraid.worlds.text import Text

NOT_OF_THE_MODEL = ("training", "evaluation", "seed")
"""What the table [model] holds beside the architecture."""
SECONDS_PER_PRODUCT = 5e-11
"""Of a multiplication in a model, on one thread; a guess, as all seconds here (`tests/pipeline/timings`)."""
SECONDS_PER_MODEL_STEP, SECONDS_PER_TEXT_STEP = 3e-3, 1.5e-2
"""Of a training step beside its multiplications, on stories and on a text."""
SECONDS_PER_STORY_WRITTEN = 2e-5
SECONDS_PER_TOKEN_PROBED = 1e-4
SECONDS_PER_TEXT_MODEL = 3.0
"""Of looking at the heads of a language model, and of having it write."""
MOSTLY_RIGHT = 0.95
WRITTEN = 120
"""So many tokens the first member of each setting goes on for."""
PROMPT = 32
"""From so many tokens of what is to be predicted, or fewer where the context is shorter."""
LOGGED = 10
"""Of so many lines of the log, heads are described once."""


@dataclass(frozen=True)
class ModelMember:
    """All that decides one model of a stack, beside its world."""

    model: AnyModel
    training: ModelTraining
    constraints: dict[str, Constraint]
    seed: int

    def to_dict(self) -> JsonDict:
        constraints = {name: constraint.to_dict() for name, constraint in self.constraints.items()}
        model = {name: value for name, value in self.model.to_dict().items() if name not in NOT_OF_THE_MODEL}
        return {"model": model, "training": self.training.to_dict(), "constraints": constraints, "seed": self.seed}


@dataclass(frozen=True)
class TrainModels(Stage):
    """Train one stack of models on stories."""

    kind = "train-models"
    version = 2

    world: Stories | Text
    members: tuple[ModelMember, ...]
    names: tuple[str, ...]
    checkpoints: Checkpoints
    hardware: Hardware = field(default=Hardware(), kw_only=True)

    @property
    def side_by_side(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """One GPU is kept busy by one stage at a time."""
        return self.hardware.on_cpu

    @property
    def config(self) -> JsonDict:
        members = [member.to_dict() for member in self.members]
        made_by = {"hardware": facts} if (facts := self.hardware.facts()) else {}
        return {"world": self.world.to_dict(), "members": members, "log_every": self.checkpoints.log_every, **made_by}

    @property
    def steps(self) -> int:
        return self.members[0].training.steps

    @property
    def seconds_per_step(self) -> float:
        """There and twice back."""
        return SECONDS_PER_MODEL_STEP + len(self.members) * 3 * self.forward_seconds(self.members[0].training.batch)

    def task(self) -> Task:
        return replace(super().task(), members=self.names)

    def forward_seconds(self, sequences: int) -> float:
        """About what one model takes to read so many sequences."""
        products = self.members[0].model.cost(self.world.length).products
        return SECONDS_PER_PRODUCT * sequences * self.world.length * products

    @property
    def disk(self) -> int:
        """Weights, those of the vocabulary among them."""
        model, words = self.members[0].model, len(self.world.vocabulary)
        return 4 * len(self.members) * (model.cost(self.world.length).weights + 2 * words * model.width)

    @property
    def saved(self) -> int:
        """These and Adam's two moments of each."""
        return 3 * self.disk

    def start(self) -> ModelState:
        seeds = [member.seed for member in self.members]
        hardware = self.hardware
        return ModelState.start(self.members[0].model, self.world, seeds, hardware.device, hardware.precision)

    def trained(self, context: Context) -> Models:
        """The models as their training left them, laid out in memory as they were then."""
        models = self.start().models
        restore_weights(models.parameters(), context.of(self))
        return models

    def loaded(self, context: Context) -> Models:
        """The models as anybody reads them from disk."""
        saved = read_arrays(context.of(self) / "weights.safetensors")
        weights = {name: torch.from_numpy(array) for name, array in saved.items()}
        seeds = [member.seed for member in self.members]
        models = models_of(self.members[0].model, self.world.length, seeds, weights)
        return models.to(self.hardware.device, self.hardware.precision)

    def run(self, context: Context) -> None:
        self.loop(context).finish()
        card = {"model": self.members[0].to_dict()["model"], "length": self.world.length}
        write_json(context.folder / "architecture.json", {**card, "seeds": [member.seed for member in self.members]})

    def loop(self, context: Context) -> "ModelTrainingLoop":
        return ModelTrainingLoop(self, context)


class ModelTrainingLoop(TrainingLoop[ModelState, StepOutput]):
    """The training of one stack of models."""

    advice = "model.training.learning_rate, model.training.clip and the weights of constraints"

    def __init__(self, stage: TrainModels, context: Context) -> None:
        super().__init__(stage.key, stage.names, stage.checkpoints, context)
        self.stage, self.world = stage, stage.world
        self.training = stack_configs([member.training for member in stage.members])
        self.steps = self.training.steps
        first = stage.members[0].constraints
        device = stage.hardware.device
        self.constraints = {name: stack_configs([m.constraints[name] for m in stage.members], device) for name in first}
        self.state = stage.start()

    def train(self) -> Iterator[StepOutput]:
        return train_model(self.state, self.world, self.training, self.constraints)

    def log_line(self, output: StepOutput) -> JsonDict:
        return {
            "step": self.state.step,
            "rate_factor": rate_factor(self.state.step - 1, self.training),
            "terms": {name: cost.tolist() for name, cost in output.terms.items()},
            "accuracy": output.accuracy.tolist(),
        }

    def weights(self) -> dict[str, Tensor]:
        return self.state.models.parameters()

    def totals(self) -> dict[str, list[float]]:
        """Scores that only training knows."""
        members = len(self.stage.members)
        return {"seconds": [self.seconds / members] * members}

    def finish(self) -> None:
        super().finish()
        write_json(self.folder / "training.json", {"values": self.totals()})


@dataclass(frozen=True)
class TrainTextModels(TrainModels):
    """Train one stack of language models on a text."""

    kind = "train-text-models"
    version = 2

    setting: str
    """Of the first member, for the lines about its heads; empty where nobody wants them."""

    @property
    def config(self) -> JsonDict:
        assert isinstance(self.world, Text)
        return {**super().config, "text": self.world.tokenized.fingerprint}

    @property
    def seconds_per_step(self) -> float:
        return SECONDS_PER_TEXT_STEP + len(self.members) * 3 * self.forward_seconds(self.members[0].training.batch)

    def forward_seconds(self, sequences: int) -> float:
        """Every token is also compared with the whole vocabulary."""
        compared = self.members[0].model.width * len(self.world.vocabulary)
        return super().forward_seconds(sequences) + SECONDS_PER_PRODUCT * sequences * self.world.length * compared

    def loop(self, context: Context) -> ModelTrainingLoop:
        return TextModelTrainingLoop(self, context)


class TextModelTrainingLoop(ModelTrainingLoop):
    """The training of one stack of language models.

    The log has loss and perplexity of the batch too, the length of the gradient before it was clipped, and how many
    steps so far had one longer than 10; of gauge models also how far apart beliefs are and how sharp heads (`track`).
    """

    def log_line(self, output: StepOutput) -> JsonDict:
        assert isinstance(self.world, Text)
        loss = output.terms["answers"].tolist()
        return {
            **super().log_line(output),
            "loss": loss,
            "perplexity": [loss_units(value, self.world)["perplexity"] for value in loss],
            "gradient_norm": output.gradient_norm.tolist(),
            "gradient_spikes": self.state.gradient_spikes.tolist(),
            **self._tracked(self.world),
        }

    def _tracked(self, world: Text) -> dict[str, list[float | None]]:
        """Of every member, on the first window of the part to be predicted; None where a score is not defined."""
        tokens, members = first_windows(world, 1), range(self.state.models.members)
        found = [track(self.state.models.member(index), tokens) for index in members]
        return {name: [one[name] if isfinite(one[name]) else None for one in found] for name in found[0]}

    def after_step(self) -> None:
        """Every so often, say what the heads of the run's first model do, as the gauge study did."""
        assert isinstance(self.stage, TrainTextModels)
        assert isinstance(self.world, Text)
        due = self.state.step % (LOGGED * self.checkpoints.log_every) == 0 or self.state.step == self.steps
        if not self.stage.setting or self.state.step == 0 or not due:
            return
        self.progress.say(f"step {self.state.step}, {self.stage.setting}")
        for line in lines(self.state.models.member(0), first_windows(self.world, 1)):
            self.progress.say(line)

    def totals(self) -> dict[str, list[float]]:
        gradients = {"gradient_spikes": self.state.gradient_spikes, "gradient_peak": self.state.gradient_peak}
        return {**super().totals(), **{name: of.double().tolist() for name, of in gradients.items()}}


@dataclass(frozen=True)
class EvaluateModels(Stage):
    """Evaluate one stack of models on stories: their answers and their heads.

    tables.safetensors   tables of layers and heads, and of the first member of each setting `pattern.POSITION`
    stories.json         the stories those patterns are of, in words; heads drawn at random (layer, head) to be shown;
                         the shortcuts of the world; the names of factors
    """

    kind = "evaluate-models"
    version = 2

    training: TrainModels
    evaluation: HeadEvaluation
    shown: tuple[int, ...]

    @property
    def side_by_side(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.training.side_by_side

    @property
    def config(self) -> JsonDict:
        return {"evaluation": self.evaluation.to_dict(), "shown": self.shown}

    @property
    def inputs(self) -> tuple[Stage, ...]:
        return (self.training,)

    @property
    def seconds_per_step(self) -> float:
        """All stories once; those on which heads are looked at once more for every head, without it."""
        model = self.training.members[0].model
        ablated = model.layers * len(model.head_labels) + 2
        answers = self.training.forward_seconds(self.evaluation.stories)
        return 0.1 + len(self.training.members) * (
            answers + ablated * self.training.forward_seconds(self.evaluation.heads)
        )

    def run(self, context: Context) -> None:
        context.progress.status(self.name)
        models, world = self.training.trained(context), self.training.world
        assert isinstance(world, Stories)
        scores = evaluate_heads(models, world, self.evaluation)
        shown = {index: self._show(models, index) for index in self.shown if self.evaluation.shown}
        patterns = {f"pattern.{index}": example.patterns for index, example in shown.items()}
        write_arrays(context.folder / "tables.safetensors", {**arrays(scores.tables), **patterns})
        card = {
            "members": {str(index): example.stories for index, example in shown.items()},
            "drawn": {str(index): example.drawn for index, example in shown.items()},
            "shortcuts": scores.shortcuts,
            "factors": list(world.factors),
        }
        write_json(context.folder / "stories.json", card)
        values = {**self._learning(context), **scores.values}
        write_scores(context, values, scores.chance, {"accuracy": torch.ones(len(self.training.members))})

    def _show(self, models: Models, index: int) -> AttentionExamples:
        assert isinstance(self.training.world, Stories)
        return show_attention(models.member(index), self.training.world, self.evaluation.shown)

    def _learning(self, context: Context) -> dict[str, Tensor]:
        """When the log first has a batch that was mostly answered right, and whether it ever has."""
        logged = read_log(context.of(self.training) / "log.jsonl")
        accuracies, steps = (torch.tensor([line[name] for line in logged]) for name in ("accuracy", "step"))
        first = steps_to(MOSTLY_RIGHT, accuracies.T, steps)
        capped = capped_steps_to(MOSTLY_RIGHT, accuracies.T, steps)
        return {"steps_to_95": first, "capped_steps_to_95": capped, "reached_95": 1 - first.isnan().double()}


@dataclass(frozen=True)
class EvaluateTextModels(EvaluateModels):
    """Evaluate one stack of language models: what they predict, how uniform their heads are.

    tables.safetensors   tables of layers and heads, and of the first member of each setting `pattern.POSITION`
    texts.json           the windows those patterns are of, in tokens; what counting pairs gives; how the models write
    """

    kind = "evaluate-text-models"
    version = 2

    @property
    def seconds_per_step(self) -> float:
        return len(self.training.members) * SECONDS_PER_TEXT_MODEL + super().seconds_per_step

    def run(self, context: Context) -> None:
        context.progress.status(self.name)
        models, world = self.training.trained(context), self.training.world
        assert isinstance(world, Text)
        by_pairs = partial(diagnose, believed=beliefs_by_pairs(world) if isinstance(models, GaugeModels) else None)
        scores = evaluate_text(models, world, self.evaluation.heads, by_pairs)
        shown = self.shown if self.evaluation.shown else ()
        tokens = first_windows(world, self.evaluation.shown)
        patterns = {f"pattern.{index}": attention_on(models.member(index), tokens) for index in shown}
        write_arrays(context.folder / "tables.safetensors", {**arrays(scores.tables), **patterns})
        words = [{"words": world.words(row)} for row in tokens]
        members = {str(index): words for index in shown}
        write_json(context.folder / "texts.json", {"members": members, **self._card(models, world)})
        write_scores(context, scores.values, scores.chance, {})

    def _card(self, models: Models, world: Text) -> JsonDict:
        """What a report tells of the text, and how the models write."""
        return {
            "heads": list(models.settings.head_labels),
            "irreps": models.settings.to_dict().get("irreps", ""),
            "characters_per_token": world.characters_per_token,
            "context": world.context,
            "unknown": world.unknown,
            "vocabulary": len(world.vocabulary),
            "bigram": ngram_baselines(world)["bigram"],
            "samples": {str(index): self._sample(models, world, index) for index in self.shown},
        }

    def _sample(self, models: Models, world: Text, index: int) -> JsonDict:
        start = world.tokenized.validation[: min(PROMPT, world.context)].tolist()
        prompt = world.tokenized.tokenizer.decode(start)
        (written,) = continue_text(models.member(index), world, prompt, WRITTEN)
        return {"prompt": prompt, "text": written}


def write_scores(
    context: Context, values: dict[str, Tensor], chance: dict[str, Tensor], ceiling: dict[str, Tensor]
) -> None:
    named = {"values": values, "chance": chance, "ceiling": ceiling}
    card = {part: {name: v.tolist() for name, v in scores.items()} for part, scores in named.items()}
    write_json(context.folder / "scores.json", card)


@dataclass(frozen=True)
class CaptureActivations(Stage):
    """Run a trained model over stories and keep what is at a site, with the factors behind every token."""

    kind = "capture"

    training: TrainModels
    capture: ActivationsConfig

    @property
    def config(self) -> JsonDict:
        sites = {name: value for name, value in self.capture.to_dict().items() if name in ("site", "input", "target")}
        return {**sites, "stories": self.capture.stories}

    @property
    def inputs(self) -> tuple[Stage, ...]:
        return (self.training,)

    @property
    def seconds_per_step(self) -> float:
        stories = self.capture.stories
        return 0.1 + self.training.forward_seconds(stories) + SECONDS_PER_STORY_WRITTEN * stories

    @property
    def disk(self) -> int:
        """For every token a row at each site in float32, and where it is."""
        sites = (*self.capture.inputs, *self.capture.targets)
        model = self.training.members[0].model
        width = sum(site_width(model, self.world, site) for site in sites)  # pyright: ignore[reportArgumentType] (frozen)
        return self.capture.stories * self.world.length * (4 * width + 12)

    @property
    def world(self) -> Stories:
        assert isinstance(self.training.world, Stories)
        return self.training.world

    @property
    def vocabulary(self) -> tuple[str, ...]:
        return tuple(self.world.vocabulary)

    def opened(self, context: Context) -> Activations:
        """What dictionaries learn from, normalised."""
        shards = context.of(self) / "shards"
        return Activations.model_validate({"path": str(shards), "normalize": self.capture.normalize})

    def run(self, context: Context) -> None:
        context.progress.status(self.name)
        shards = context.folder / "shards"
        capture_model(self.training.loaded(context), self.world, self.capture, shards, context.progress.say)


@dataclass(frozen=True)
class ProbeFactors(Stage):
    """Fit a linear probe for every concept: what any dictionary of these activations is held against."""

    kind = "probe"
    side_by_side = True

    captured: CaptureActivations
    samples: int

    @property
    def config(self) -> JsonDict:
        return {"normalize": self.captured.capture.normalize, "samples": self.samples}

    @property
    def inputs(self) -> tuple[Stage, ...]:
        return (self.captured,)

    @property
    def seconds_per_step(self) -> float:
        return 0.1 + SECONDS_PER_TOKEN_PROBED * self.samples

    def run(self, context: Context) -> None:
        concepts = Concepts.of(self.captured.opened(context), self.samples)
        write_json(context.folder / "probe.json", probe_concepts(concepts))

    def made(self, context: Context) -> list[float]:
        """φ of the probe for each concept; NaN where it is not judged."""
        return [float("nan") if value is None else value for value in read_json(context.of(self) / "probe.json")]
