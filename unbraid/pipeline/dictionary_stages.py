"""Stages that learn dictionaries: train a stack, evaluate it, fit baselines.

Train    log.jsonl, weights, tracking; training.json has the scores that only training knows
Evaluate scores.json, tables.safetensors, normalization.safetensors; with planted directions also truth.safetensors,
         with planted factors also factors and features
Fit      baselines are fitted and scored member by member, in one stage: fitting is quick
"""

import json
from abc import ABC
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unbraid.activations.huggingface import load_model, token_names
from unbraid.activations.normalization import Normalization
from unbraid.activations.sites import find_site
from unbraid.axes import Int, Tensor
from unbraid.config import JsonDict
from unbraid.devices import Hardware
from unbraid.dictionaries import Dictionary, Stack
from unbraid.dictionaries.baselines import AnyBaseline, FittedBaseline
from unbraid.dictionaries.formats.begin import fingerprint
from unbraid.dictionaries.mechanisms import Mechanism, PairOrthogonality
from unbraid.dictionaries.stack import Target
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.fit import InputSource, first_inputs, inputs_of, need_model, target_of, train
from unbraid.dictionaries.training.step import State, StepOutput
from unbraid.errors import UserError
from unbraid.evaluation.causal import EditableModel
from unbraid.evaluation.dictionaries import Scores, score, score_further, shown_cosines
from unbraid.evaluation.feature_effects import AnswerEffects, OutputEffects, lens_of_huggingface, lens_of_model
from unbraid.evaluation.feature_index import ROWS, Rows, index_members, planted_rows, token_rows
from unbraid.evaluation.feature_pages import FactorResults, evaluate_factors
from unbraid.evaluation.further import DictionaryMetric
from unbraid.evaluation.pair_stability import PairScores, pair_stability
from unbraid.evaluation.stability import score_stability
from unbraid.members import stack_configs
from unbraid.metrics import recovery
from unbraid.pipeline.capture_model import captured_stories
from unbraid.pipeline.end_to_end import StorySequences
from unbraid.pipeline.experiment import Samples
from unbraid.pipeline.model_stages import CaptureActivations, ProbeFactors
from unbraid.pipeline.stage import Context, Stage
from unbraid.pipeline.tracker import Tracker, Tracking
from unbraid.pipeline.training import Checkpoints, TrainingLoop, arrays, restore_weights
from unbraid.progress import Task
from unbraid.schedule import rate_factor
from unbraid.storage.checkpoints import read_log
from unbraid.storage.feature_index import write_index
from unbraid.storage.files import Arrays, write_arrays, write_json
from unbraid.worlds import Activations, AnyWorld, World

SECONDS_PER_STEP, SECONDS_PER_MEMBER, SECONDS_PER_PRODUCT = 1e-3, 8e-4, 2.5e-10
"""Of a training step: at least, for each member, and for each multiplication of the encoder's product.

These and the following are guesses for the time left; `tests/pipeline/timings` has what stages really took.
"""
SECONDS_PER_CODE = 3e-8
"""Of scoring: for each member, sample and feature."""
SECONDS_PER_CODE_MATCHED = 6e-6
"""The same, where features are also matched with the factors behind every token."""
DENSE, NEAREST = 6.0, 0.1
"""So many times as long matching takes where all features of a baseline fire at every token, or one does."""


@dataclass(frozen=True)
class BaselineCost:
    """What a baseline costs: the seconds of a sample when it is fitted, and of its codes against sparse ones."""

    seconds_per_sample: float = 2e-4
    codes: float = 1.0


BASELINE_COSTS = {
    "kmeans": BaselineCost(1e-4, NEAREST),
    "kmedoids": BaselineCost(1e-4, NEAREST),
    "pca": BaselineCost(5e-5, DENSE),
    "ica": BaselineCost(1.6e-3, DENSE),
    "nmf": BaselineCost(5e-3, DENSE),
    "random": BaselineCost(1e-5, DENSE),
}


@dataclass(frozen=True)
class LearningStage(Stage, ABC):
    """A stage that reads a world's inputs, or what was captured from a trained model."""

    world: AnyWorld | None
    captured: CaptureActivations | None

    @property
    def inputs(self) -> tuple[Stage, ...]:
        return () if self.captured is None else (self.captured,)

    @property
    def side_by_side(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Dictionaries of a trained model's activations are small; those of a world keep all threads busy."""
        return self.captured is not None and self.captured.training.hardware.on_cpu

    def read_model(self) -> tuple[Stage, ...]:
        """The training of the model itself, for stages that look at what features do in it."""
        return () if self.captured is None else (self.captured.training,)

    def opened_world(self, context: Context) -> World:
        if self.captured is not None:
            return self.captured.opened(context)
        assert self.world is not None
        return self.world

    def world_config(self) -> JsonDict:
        """What decides the inputs, beside the stages; where shards lie does not."""
        if self.world is None:
            assert self.captured is not None
            return {"normalize": self.captured.capture.normalize}
        return {name: value for name, value in self.world.to_dict().items() if name not in ("path", "capture")}


@dataclass(frozen=True)
class DictionaryMember:
    """All that decides one dictionary of a stack, beside its inputs."""

    dictionary: Dictionary
    training: Training
    mechanisms: dict[str, Mechanism]
    seed: int

    def to_dict(self) -> JsonDict:
        mechanisms = {name: mechanism.to_dict() for name, mechanism in self.mechanisms.items()}
        parts = {"dictionary": self.dictionary.to_dict(), "training": self.training.to_dict()}
        return {**parts, "mechanisms": mechanisms, "seed": self.seed}


@dataclass(frozen=True)
class TrainStack(LearningStage):
    """Train one stack of dictionaries."""

    kind = "train-stack"
    version = 2

    members: tuple[DictionaryMember, ...]
    names: tuple[str, ...]
    tracking: Tracking
    checkpoints: Checkpoints
    dimensions: int
    workers: int = 1
    """Among so many processes its features are shared out; the result is the same up to rounding, and so is its key."""
    shards: int | None = None
    """The number of shards, where there are fewer than workers."""
    hardware: Hardware = field(default=Hardware(), kw_only=True)

    @property
    def side_by_side(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return super().side_by_side and self.workers == 1

    @property
    def config(self) -> JsonDict:
        members = [member.to_dict() for member in self.members]
        beside = {"tracking": self.tracking.to_dict(), "log_every": self.checkpoints.log_every}
        begins_at = fingerprint(self.members[0].dictionary)
        beside |= {} if begins_at is None else {"from": begins_at}
        beside |= {"hardware": facts} if (facts := self.hardware.facts()) else {}
        return {"world": self.world_config(), "members": members, **beside}

    @property
    def steps(self) -> int:
        return self.members[0].training.steps

    @property
    def seconds_per_step(self) -> float:
        first = self.members[0]
        products = first.dictionary.d_sae * self.dimensions * first.training.batch
        return SECONDS_PER_STEP + len(self.members) * (SECONDS_PER_MEMBER + SECONDS_PER_PRODUCT * products)

    def task(self) -> Task:
        return replace(super().task(), members=self.names)

    @property
    def disk(self) -> int:
        """Encoder and decoder; biases are small beside them."""
        return 8 * len(self.members) * self.members[0].dictionary.d_sae * self.dimensions

    @property
    def saved(self) -> int:
        """These and Adam's two moments of each."""
        return 3 * self.disk

    def mechanisms(self) -> dict[str, Mechanism]:
        """With the per-member hyper-parameters as tensors."""
        named, device = self.members[0].mechanisms, self.hardware.device
        return {name: stack_configs([m.mechanisms[name] for m in self.members], device) for name in named}

    @property
    def inputs(self) -> tuple[Stage, ...]:
        return (*(self.read_model() if need_model(self.members[0].mechanisms) else ()), *super().inputs)

    def source(self, world: World, context: Context) -> InputSource:
        """The inputs of every step; with the model behind them, where a mechanism needs it."""
        training, mechanisms = self.members[0].training, self.members[0].mechanisms
        if self.captured is None or not need_model(mechanisms):
            return inputs_of(world, training, mechanisms)
        assert isinstance(world, Activations)
        model = self.captured.training.loaded(context)
        return StorySequences(world, model, self.captured.world, self.captured.capture, training.batch).inputs

    def start(self, x: Tensor | None = None, target: Target | None = None, rows: slice | None = None) -> State:
        """The state before the first step, from these inputs where the dictionary begins at samples of them."""
        seeds = [member.seed for member in self.members]
        dictionary, hardware = self.members[0].dictionary, self.hardware
        return State.start(dictionary, self.dimensions, self.mechanisms(), seeds, x, target, rows, hardware)

    def trained(self, context: Context) -> Stack:
        """The stack as its training left it, laid out in memory as it was then."""
        world = self.opened_world(context)
        target = target_of(world, self.members[0].dictionary, None)
        stack = self.start(target=target).in_use(self.mechanisms())
        restore_weights(stack.tensors(), context.of(self))
        return stack

    def run(self, context: Context) -> None:
        if self.workers == 1:
            StackTraining(self, context).finish()
        else:
            from unbraid.pipeline.sharded_training import train_sharded  # which builds on this module

            train_sharded(self, context)
        write_json(context.folder / "dictionary.json", self.members[0].dictionary.to_dict())


class StackTraining(TrainingLoop[State, StepOutput]):
    """The training of one stack of dictionaries."""

    advice = "training.learning_rate and the scale of the inputs"

    def __init__(self, stage: TrainStack, context: Context, rows: slice | None = None) -> None:
        """`rows` are the features of this process, where others have the rest."""
        super().__init__(stage.key, stage.names, stage.checkpoints, context)
        self.world = stage.opened_world(context)
        self.training = stack_configs([member.training for member in stage.members], stage.hardware.device)
        self.steps = self.training.steps
        self.mechanisms = stage.mechanisms()
        source = self.source = stage.source(self.world, context)
        dictionary = stage.members[0].dictionary
        self.state = stage.start(first_inputs(dictionary, source), target_of(self.world, dictionary, source), rows)
        self.tracker = Tracker(self.folder, self.world, stage.tracking, self.steps)

    def train(self) -> Iterator[StepOutput]:
        return train(self.state, self.source, self.training, self.mechanisms)

    def log_line(self, output: StepOutput) -> JsonDict:
        line = {
            "step": self.state.step,
            "rate_factor": rate_factor(self.state.step - 1, self.training),
            "terms": {name: cost.tolist() for name, cost in output.terms.items()},
            "l0": output.l0.tolist(),
        }
        if logged := self._logged():
            line["mechanisms"] = logged
        if len(self.world.directions):
            cosines = recovery.cosines(self.world.directions, self.directions().cpu())
            line["mmcs"] = recovery.mmcs(cosines).tolist()
        return line

    def _logged(self) -> JsonDict:
        """What mechanisms show of their memory after this step, by their names."""
        named = {name: each.logged(self.state.memories[name]) for name, each in self.mechanisms.items()}
        return {name: {key: value.tolist() for key, value in own.items()} for name, own in named.items() if own}

    def after_step(self) -> None:
        if self.state.step in self.tracker.steps:
            self.tracker.check(self.in_use(), self.state.step)

    def directions(self) -> Tensor:
        """Those of the whole stack."""
        return self.state.stack.directions

    def in_use(self) -> Stack:
        """The whole stack, as it would be used if training ended here."""
        return self.state.in_use(self.mechanisms)

    def side_files(self) -> list[Path]:
        return self.tracker.files(self.state.step)

    def weights(self) -> dict[str, Tensor]:
        return self.state.in_use(self.mechanisms).tensors()

    def finish(self) -> None:
        super().finish()
        totals = {name: value.tolist() for name, value in self.tracker.conclude().items()}
        values = totals | end_of_training(read_log(self.folder / "log.jsonl"))
        write_json(self.folder / "training.json", {"values": values})


def end_of_training(lines: Sequence[JsonDict]) -> dict[str, list[float]]:
    """Each member's loss, all terms together, and the L0 of the codes it was trained with, at the last step: its line
    is there however often others are logged. A mechanism may act on those codes, and not on the dictionary in use.
    Without a step there is neither."""
    if not lines:
        return {}
    last = lines[-1]
    return {"loss": [sum(parts) for parts in zip(*last["terms"].values(), strict=True)], "training_l0": last["l0"]}


@dataclass(frozen=True)
class EvaluateStack(LearningStage):
    """Score one trained stack: against the planted truth, or against the factors behind a model's activations."""

    kind = "evaluate-stack"
    version = 4

    training: TrainStack
    probe: ProbeFactors | None
    samples: int
    shown: tuple[int, ...]
    settings: tuple[str, ...]
    """The setting of each member, as a string: members of one setting are compared with each other."""
    metrics: dict[str, DictionaryMetric] = field(default_factory=dict)
    """Those of plugins, that are measured too."""

    @property
    def config(self) -> JsonDict:
        asked = {"samples": self.samples, "shown": self.shown, "settings": _numbered(self.settings)}
        return asked | _asked(self.metrics)

    @property
    def inputs(self) -> tuple[Stage, ...]:
        return (*self.read_model(), *super().inputs, self.training, *(() if self.probe is None else (self.probe,)))

    @property
    def seconds_per_step(self) -> float:
        members = self.training.members
        per_code = SECONDS_PER_CODE if self.probe is None else SECONDS_PER_CODE_MATCHED
        return 0.3 + per_code * self.samples * len(members) * members[0].dictionary.d_sae

    def run(self, context: Context) -> None:
        context.progress.status(f"{self.name}")
        world, stack = self.opened_world(context), self.training.trained(context)
        if world.normalization is not None:
            write_arrays(context.folder / "normalization.safetensors", _normalizations(world.normalization, world))
        _write_truth(context, world)
        scores = score(stack, world, self.samples)
        members = [stack.member(index) for index in range(stack.members)]
        again = score_stability(members, self.settings, world, self.samples)
        tables = {**arrays(scores.tables), **self._cosine_tables(stack, world, scores), **_stacked(again.tables)}
        tables["probabilities"] = world.probabilities.numpy()
        write_arrays(context.folder / "tables.safetensors", tables)
        values = {name: value.tolist() for name, value in scores.values.items()}
        pairs, more = self._pair_stability(stack, world), score_further(self.metrics, stack, world, self.samples)
        values |= {name: value.tolist() for name, value in more.values.items()}
        factors = factor_results(stack, world, self, context)
        write_feature_index(stack, world, self, context)
        card = {
            "values": values | again.values | pairs.values | factors.values,
            "chance": scores.chance | again.chance | pairs.chance | factors.chance | more.chance,
            "ceiling": scores.ceiling | pairs.ceiling | factors.ceiling | more.ceiling,
        }
        write_json(context.folder / "scores.json", card)

    def _pair_stability(self, stack: Stack, world: World) -> PairScores:
        """Where pairs are selected, how alike they fire and whether they are the same again."""
        mechanism = self.training.mechanisms().get("pair_orthogonality")
        if not isinstance(mechanism, PairOrthogonality):
            return PairScores()
        training, settings = self.training.members[0].training, _numbered(self.settings)
        return pair_stability(stack, world, mechanism, settings, training.steps, training.batch)

    def _cosine_tables(self, stack: Stack, world: World, scores: Scores) -> Arrays:
        """The cosine matrix of the first member of each setting, where there is a truth."""
        if not len(world.directions):
            return {}
        matched = scores.tables["match"]
        return {f"cosines.{i}": shown_cosines(world, stack.directions[i].cpu(), matched[i]) for i in self.shown}


def factor_results(
    dictionaries: Stack | Sequence[FittedBaseline],
    world: World,
    stage: "EvaluateStack | FitBaselines",
    context: Context,
) -> FactorResults:
    """Scores against the factors behind a model's activations; nothing on a world."""
    if stage.captured is None or stage.probe is None:
        return FactorResults()
    probe = stage.probe.made(context)
    vocabulary = stage.captured.vocabulary
    return evaluate_factors(dictionaries, world, stage.samples, probe, vocabulary, stage.shown, context.folder)


def write_feature_index(
    dictionaries: Stack | Sequence[FittedBaseline],
    world: World,
    stage: "EvaluateStack | FitBaselines",
    context: Context,
) -> None:
    """What every feature of every member fires on."""
    amount = min(stage.samples, ROWS)
    if isinstance(world, Activations):
        vocabulary = token_names(world.model) if stage.captured is None else stage.captured.vocabulary
        rows = token_rows(world, amount, vocabulary)
    else:
        rows = planted_rows(world, amount)
    effects = _output_effects(world, stage, context, rows) if isinstance(world, Activations) else None
    write_index(context.folder, *index_members(dictionaries, rows, effects))


def _output_effects(
    world: Activations, stage: "EvaluateStack | FitBaselines", context: Context, rows: Rows
) -> OutputEffects | None:
    """Where there is a model: one that was trained here, or a folder with the one whose activations were captured.

    None of transcoders and crosscoders, which write at other sites than they read.
    """
    if world.target_dimensions is not None or world.sites:
        return None
    if stage.captured is None:
        return _language_model_effects(world, context, len(rows.vocabulary))
    captured, site = stage.captured, stage.captured.capture.site
    model = captured.training.loaded(context)
    assert rows.documents is not None, "of stories"
    numbers, story = np.unique(rows.documents, return_inverse=True)
    editable = EditableModel(model, site, world.normalization)
    answers = AnswerEffects(editable, captured_stories(captured.world, numbers), story)
    return OutputEffects(lens_of_model(model, site, world.normalization.scale), answers, captured.world.answers)


def _language_model_effects(world: Activations, context: Context, words: int) -> OutputEffects | None:
    """The lens of a model in a folder; none where it cannot be loaded, or is another one by now."""
    if not Path(world.model).is_dir():
        return None
    try:
        model = load_model(world.model)
        world.check_same_model(model)
        lens = lens_of_huggingface(model, find_site(model, world.site), world.normalization.scale, words)
    except UserError as problem:
        context.progress.say(f"no effect on the output is in the feature index: {problem}")
        return None
    return None if lens is None else OutputEffects(lens)


def _normalizations(normalization: Normalization, world: World) -> Arrays:
    """That of the inputs and, where targets are something else, theirs."""
    target = {} if world.target_normalization is None else world.target_normalization.arrays()
    return normalization.arrays() | {f"target.{name}": array for name, array in target.items()}


def _write_truth(context: Context, world: World) -> None:
    """The planted directions, for whoever looks at a dictionary beside them; half precision shows a cosine to .001."""
    if len(world.directions):
        write_arrays(context.folder / "truth.safetensors", {"directions": world.directions.numpy().astype(np.float16)})


def _numbered(settings: Sequence[str]) -> list[int]:
    """Which members share a setting, whatever the settings are called."""
    known = list(dict.fromkeys(settings))
    return [known.index(setting) for setting in settings]


def _asked(metrics: dict[str, DictionaryMetric]) -> JsonDict:
    """For a stage's key, which is that of before where there are none."""
    return {"metrics": {name: metric.to_dict() for name, metric in metrics.items()}} if metrics else {}


@dataclass(frozen=True)
class BaselineMember:
    """All that decides one baseline, beside its inputs."""

    baseline: AnyBaseline
    samples: Samples
    seed: int

    def to_dict(self) -> JsonDict:
        return {"baseline": self.baseline.to_dict(), "samples": self.samples.to_dict(), "seed": self.seed}


@dataclass(frozen=True)
class FitBaselines(LearningStage):
    """Fit and score the baselines of one group, member by member."""

    kind = "baseline"
    version = 4

    members: tuple[BaselineMember, ...]
    probe: ProbeFactors | None
    samples: int
    shown: tuple[int, ...]
    metrics: dict[str, DictionaryMetric] = field(default_factory=dict)

    @property
    def config(self) -> JsonDict:
        members = [member.to_dict() for member in self.members]
        asked = {"members": members, "samples": self.samples, "shown": self.shown}
        return {"world": self.world_config(), **asked, **_asked(self.metrics)}

    @property
    def inputs(self) -> tuple[Stage, ...]:
        return (*self.read_model(), *super().inputs, *(() if self.probe is None else (self.probe,)))

    @property
    def steps(self) -> int:
        return len(self.members)

    @property
    def seconds_per_step(self) -> float:
        """Of one member, about: to fit it and to score it."""
        per_code = SECONDS_PER_CODE if self.probe is None else SECONDS_PER_CODE_MATCHED * self._cost.codes
        return 0.2 + self.fitting_seconds + per_code * self.samples * self.members[0].baseline.n_components

    @property
    def fitting_seconds(self) -> float:
        """Of fitting one member, about."""
        return self._cost.seconds_per_sample * sum(member.samples.n for member in self.members) / len(self.members)

    @property
    def _cost(self) -> BaselineCost:
        return BASELINE_COSTS.get(self.members[0].baseline.to_dict()["kind"], BaselineCost())

    def fitted(self, context: Context) -> list[FittedBaseline]:
        """The baselines, fitted once more: the same, for they depend on their seeds and samples alone."""
        world = self.opened_world(context)
        return [self._fit(member, world)[0] for member in self.members]

    def run(self, context: Context) -> None:
        world = self.opened_world(context)
        fits: list[tuple[FittedBaseline, Scores, Tensor]] = []
        for position, member in enumerate(self.members):
            if self.probe is None:  # else matching, which is most of the work, comes after the last
                context.progress.advance(position)
            fitted, seen = self._fit(member, world)
            scores = score(fitted, world, self.samples)
            more = score_further(self.metrics, fitted, world, self.samples)
            scores = Scores(
                scores.values | more.values, scores.chance | more.chance, scores.ceiling | more.ceiling, scores.tables
            )
            fits.append((fitted, scores, seen))
            line: dict[str, Any] = {"step": position + 1, "terms": {}}
            line |= {name: scores.values[name].tolist() for name in ("mmcs", "l0") if name in scores.values}
            context.progress.log(line)
        self._write(context, world, *zip(*fits, strict=True))

    def _fit(self, member: BaselineMember, world: World) -> tuple[FittedBaseline, Int[Tensor, "n"]]:
        """The baseline on its samples, and in how many of them each true feature fired."""
        batches = list(member.samples.batches(world))
        seen = torch.stack([batch.truth.counts()[0] for batch in batches]).sum(0)
        baseline = member.baseline.model_copy(update={"seed": member.seed})
        return baseline.fit(torch.cat([batch.x for batch in batches])), seen

    def _write(
        self,
        context: Context,
        world: World,
        fitted: tuple[FittedBaseline, ...],
        scores: tuple[Scores, ...],
        seen: tuple[Tensor, ...],
    ) -> None:
        directions = {f"directions.{index}": fit.directions[0].numpy() for index, fit in enumerate(fitted)}
        write_arrays(context.folder / "weights.safetensors", directions)
        _write_truth(context, world)
        settings = [json.dumps([member.baseline.to_dict(), member.samples.to_dict()]) for member in self.members]
        again = score_stability(fitted, settings, world, self.samples)
        tables: Arrays = {name: _padded([s.tables[name][0].numpy() for s in scores]) for name in scores[0].tables}
        tables |= _stacked(again.tables)
        samples = [member.samples.n for member in self.members]
        tables["seen"] = np.stack([counts.numpy() / n for counts, n in zip(seen, samples, strict=True)])
        tables["probabilities"] = world.probabilities.numpy()
        if len(world.directions):
            tables["cosines.0"] = shown_cosines(world, fitted[0].directions[0], scores[0].tables["match"][0])
        write_arrays(context.folder / "tables.safetensors", tables)
        values = {name: [float(s.values[name][0]) for s in scores] for name in scores[0].values}
        values["directions"] = [float(fit.features) for fit in fitted]
        chance: JsonDict = {name: [s.chance[name] for s in scores] for name in scores[0].chance}
        factors = factor_results(fitted, world, self, context)
        write_feature_index(fitted, world, self, context)
        card = {
            "values": values | again.values | factors.values,
            "chance": chance | again.chance | factors.chance,
            "ceiling": {name: [s.ceiling[name] for s in scores] for name in scores[0].ceiling} | factors.ceiling,
        }
        write_json(context.folder / "scores.json", card)


def _stacked(tables: dict[str, list[Tensor]]) -> Arrays:
    return {name: _padded([row.numpy() for row in rows]) for name, rows in tables.items()}


def _padded(rows: list[np.ndarray]) -> np.ndarray:
    """One row a member; where one is shorter because its data allow fewer directions, NaN after its end."""
    longest = max(len(row) for row in rows)
    if all(len(row) == longest for row in rows):
        return np.stack(rows)
    return np.stack([np.pad(row.astype(float), (0, longest - len(row)), constant_values=np.nan) for row in rows])
