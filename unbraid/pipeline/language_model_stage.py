"""Evaluate the dictionaries of a run on a language model: as its last stage, or afterwards by `unbraid evaluate`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unbraid.activations.capture import ARROW
from unbraid.activations.huggingface import load_model
from unbraid.activations.sites import find_site
from unbraid.config import JsonDict
from unbraid.config.sweep import label
from unbraid.devices import Hardware
from unbraid.dictionaries import Stack
from unbraid.dictionaries.formats.folder import read_stack
from unbraid.errors import UserError
from unbraid.evaluation.language_model.config import LanguageModelEvaluation, check_texts_exist, labels_fingerprint
from unbraid.evaluation.language_model.evaluate import SettingSAEs, evaluate_settings
from unbraid.evaluation.language_model.labelled import read_labelled
from unbraid.evaluation.language_model.sae import SAE
from unbraid.pipeline.dictionary_stages import EvaluateStack, TrainStack
from unbraid.pipeline.experiment import Member, MemberStack
from unbraid.pipeline.stage import Context, Stage
from unbraid.pipeline.trained import load_stack
from unbraid.progress import TaskProgress
from unbraid.storage.files import read_json, write_json
from unbraid.storage.runs import LANGUAGE_MODEL, Run
from unbraid.worlds import Activations, World

SECONDS_PER_TOKEN = 2e-3
"""Of splicing one token, for one dictionary; a guess."""


@dataclass(frozen=True)
class EvaluatedStack:
    """A stack of the run: its number, its members as `members.json` has them, and its stages."""

    index: int
    members: tuple[JsonDict, ...]
    training: TrainStack
    evaluation: EvaluateStack


@dataclass(frozen=True)
class EvaluateOnLanguageModel(Stage):
    """Splice, probe and spell with every dictionary of a run in the model whose activations they learned."""

    kind = "language-model"

    evaluation: LanguageModelEvaluation
    stacks: tuple[EvaluatedStack, ...]
    settings: tuple[JsonDict, ...]
    """In the order of the sweep."""

    @classmethod
    def of(
        cls,
        evaluation: LanguageModelEvaluation,
        stacks: Sequence[tuple[MemberStack, tuple[Stage, ...]]],
        members: Sequence[Member],
    ) -> "EvaluateOnLanguageModel":
        evaluated = []
        for stack, (training, scoring) in stacks:
            assert isinstance(training, TrainStack)
            assert isinstance(scoring, EvaluateStack)
            cards = tuple(member.card() for member in stack.members)
            evaluated.append(EvaluatedStack(stack.index, cards, training, scoring))
        settings = tuple(member.setting for member in members)
        return cls("evaluation on the language model", evaluation, tuple(evaluated), settings)

    @property
    def config(self) -> JsonDict:
        texts = {self.evaluation.text: self.evaluation.source.fingerprint()}
        texts |= {path: labels_fingerprint(Path(path), self.evaluation) for path in self.evaluation.labels}
        members = [[stack.index, list(stack.members)] for stack in self.stacks]
        return {"evaluation": self.evaluation.to_dict(), "texts": texts, "members": members}

    @property
    def inputs(self) -> tuple[Stage, ...]:
        return tuple(stage for stack in self.stacks for stage in (stack.training, stack.evaluation))

    @property
    def steps(self) -> int:
        return self.evaluation.steps

    @property
    def seconds_per_step(self) -> float:
        dictionaries = sum(len(stack.members) for stack in self.stacks)
        return SECONDS_PER_TOKEN * self.evaluation.tokens * dictionaries / self.steps

    def run(self, context: Context) -> None:
        worlds = [stack.training.world for stack in self.stacks]
        loaded = []
        for stack in self.stacks:
            read, there = read_stack(context.of(stack.training), context.of(stack.evaluation)), stack.training.hardware
            loaded.append((stack.index, stack.members, read.to(there.device, there.precision)))
        settings = _by_setting(loaded, self.settings)
        scores = _evaluate(settings, [world for world in worlds if world], self.evaluation, context.progress, "the run")
        write_json(context.folder / LANGUAGE_MODEL, scores)


def evaluate_run(
    run: Run, config: LanguageModelEvaluation, worlds: Sequence[World], hardware: Hardware, progress: TaskProgress
) -> JsonDict:
    """What `language_model.json` holds, for the trained dictionaries of a finished run on these worlds."""
    folders = [(i, folder) for i, folder in enumerate(run.stacks()) if (folder / "dictionary.json").is_file()]
    if not folders:
        raise UserError(f"{run.path} holds no trained dictionary; accepted: a run that trains some")
    loaded = [
        (index, read_json(folder / "members.json"), load_stack(run.path, index).to(hardware.device, hardware.precision))
        for index, folder in folders
    ]
    order = [card["setting"] for card in run.scores()["settings"]]
    return _evaluate(_by_setting(loaded, order), worlds, config, progress, str(run.path))


def evaluate_stack(stack: Stack, name: str, config: LanguageModelEvaluation, progress: TaskProgress) -> JsonDict:
    """What `language_model.json` holds, for dictionaries that no run trained: members are replicates of one setting.

    The site is that of their metadata, unless another is given.
    """
    known = stack.metadata
    site = config.site or ARROW.join(str(known[key]) for key in ("site", "target") if known.get(key)) or None
    if site is None:
        raise UserError(f"nobody says where in a model {name} applies; accepted: --site, as blocks.3.hook_resid_post")
    setting = SettingSAEs({}, name)
    for member in range(stack.members):
        setting.members.append({"stack": 0, "member": member, "replicate": str(member)})
        setting.saes[str(member)] = SAE(stack.member(member))
    return _evaluate([setting], [], config.model_copy(update={"site": site}), progress, name)


def check_can_evaluate(config: LanguageModelEvaluation, worlds: Sequence[World]) -> None:
    """Raise before training what would prevent the evaluation after it; `worlds` are those of trained dictionaries."""
    captured = [world for world in worlds if isinstance(world, Activations)]
    if not captured:
        raise UserError(
            "evaluation.language_model was given and no dictionary is trained; accepted: a dictionary, or without it"
        )
    check_texts_exist(config)
    next(config.source.documents())
    for path in config.labels:
        read_labelled(Path(path), config.texts, config.label_columns)
    if config.model not in (None, captured[0].model):
        captured[0].check_same_model(load_model(config.model))


def _by_setting(
    stacks: Sequence[tuple[int, Sequence[JsonDict], Stack]], order: Sequence[JsonDict]
) -> list[SettingSAEs]:
    """The dictionaries by setting, in this order of settings."""
    settings: dict[str, SettingSAEs] = {}
    for index, cards, stack in stacks:
        for position, card in enumerate(cards):
            key = json.dumps(card["setting"])
            setting = settings.setdefault(key, SettingSAEs(card["setting"], label(card["setting"])))
            rest = {name: value for name, value in card.items() if name != "setting"}
            setting.members.append({"stack": index, "member": position, **rest})
            setting.saes[card["replicate"]] = SAE(stack.member(position))
    keys = dict.fromkeys(json.dumps(setting) for setting in order)
    return [settings[key] for key in keys if key in settings]


def _evaluate(
    settings: Sequence[SettingSAEs],
    worlds: Sequence[World],
    config: LanguageModelEvaluation,
    progress: TaskProgress,
    source: str,
) -> JsonDict:
    """Model and site are those of the activations, unless others are given."""
    captured = [world for world in worlds if isinstance(world, Activations)]
    if not captured and (config.model is None or config.site is None):
        raise UserError(f"{source} was not trained on a model's activations; accepted: --site and a model of its width")
    for other in captured[1:]:
        if other.checksum != captured[0].checksum:  # an evaluation reads one site of one model
            raise UserError(
                f"{source} was trained on {captured[0].path} and on {other.path}; accepted: a run on one of them"
            )
    stack = next(sae.stack for setting in settings for sae in setting.saes.values())
    model = load_model(config.model or captured[0].model, Hardware(str(stack.device), stack.precision))
    if captured:
        captured[0].check_same_model(model)
    site, *target = (find_site(model, name) for name in (config.site or captured[0].site).split(ARROW))
    return evaluate_settings(model, site, settings, config, progress, *target)
