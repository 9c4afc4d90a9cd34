"""The worker behind the explorer's Try page: reads what a person types with the models and dictionaries of a run.

`python -m unbraid.pipeline.serve RUN` takes one JSON request a line and gives one JSON answer a line, until its input
is closed. A request has an `op`, and an `id` that its answer repeats; what cannot be done is `{"id", "error"}`.

    {"op": "describe"}                                     what there is to try
    {"op": "example", "stack", "member", "index"}          a story that training has not seen, with its supporting facts
    {"op": "read", "stack", "member", "text", "edits"}     tokens, features, attention, predictions

An edit `{"feature": f, "scale": s}` scales a feature inside the model at the site of its dictionary, as
`evaluation.splice` does: the model goes on with x + Σ_f (s_f − 1) z_f d_f, so that the error of the reconstruction
stays. s = 0 ablates the feature. Features of a transcoder are read at one site and written at another.
"""

import json
import math
import os
import re
import sys
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from unbraid.activations.huggingface import HuggingFaceModel, eager_attention, load_model
from unbraid.activations.text import cut_windows, pad_windows, special_token_ids
from unbraid.axes import Float, Int, Tensor
from unbraid.config import JsonDict, suggest
from unbraid.config.plugins import read_file
from unbraid.config.sweep import label
from unbraid.dictionaries import Stack
from unbraid.errors import UserError, one_line
from unbraid.evaluation.splice import Spliced, splice
from unbraid.models import Model, Models
from unbraid.pipeline.expand import Plan, plan_of
from unbraid.pipeline.experiment import ModelToTry
from unbraid.pipeline.join import laid_out
from unbraid.pipeline.model_stages import TrainModels
from unbraid.pipeline.stage import Context, in_order
from unbraid.pipeline.trained import load_models, load_stack
from unbraid.progress import Silent, TaskProgress
from unbraid.signals import StopSignals
from unbraid.storage.cache import Cache
from unbraid.storage.files import read_arrays, read_json
from unbraid.storage.runs import Run
from unbraid.worlds import Activations
from unbraid.worlds.stories import Stories
from unbraid.worlds.text import Text

LONGEST = 512
"""Tokens of a text."""
TOP_FEATURES, TOP_ANSWERS = 10, 5
MOST_EDITS, LARGEST_SCALE = 64, 1000.0
MOST_WEIGHTS = 1_000_000
"""Attention weights in an answer; where there are more, only those of one layer are given."""
SPLIT = "try"
SENTENCE = "The quick brown fox jumps over the lazy dog."
Edits = Sequence[tuple[int, float]]
"""Features, each with its scale."""


@dataclass(frozen=True)
class Reading:
    """What a model makes of a text."""

    logits: Float[Tensor, "q c"]
    """At each question, or at every token."""
    codes: Float[Tensor, "t f"] | None
    """What fires at the dictionary's site; nothing at special tokens."""
    attention: list[Float[Tensor, "h t s"]]
    """By layer; empty where the model does not tell."""


@dataclass(frozen=True)
class Reader(ABC):
    """One model, with the dictionary of one site where there is one."""

    dictionary: Stack | None
    unit: float
    """One of the dictionary's own units, in which the feature index is, in those of the model."""
    model: Model | HuggingFaceModel
    site: str | None
    target: str | None
    """Of a transcoder, what it predicts."""

    @abstractmethod
    def tokens(self, text: str) -> Int[Tensor, "t"]:
        """The tokens of a text; one that the model cannot read is refused."""

    @abstractmethod
    def words(self, tokens: Int[Tensor, "t"]) -> list[str]: ...

    @abstractmethod
    def run(self, tokens: Int[Tensor, "t"], edits: Edits) -> Reading:
        """Run the model, with features edited at tokens of the text."""

    @abstractmethod
    def positions(self, tokens: Int[Tensor, "t"]) -> list[int]:
        """The tokens at which something is predicted."""

    @abstractmethod
    def answer(self, index: int) -> str: ...

    def text_rows(self, tokens: Int[Tensor, "t"]) -> list[int]:
        """The tokens that features are shown for."""
        return list(range(len(tokens)))

    def read(self, text: str, edits: list[tuple[int, float]], layer: int) -> JsonDict:
        """The answer to a request."""
        tokens = self.tokens(text)
        before = self.run(tokens, [])
        probabilities, positions = before.logits.softmax(-1), self.positions(tokens)
        edited = self.run(tokens, edits).logits.softmax(-1) if edits else None
        return {
            "tokens": self.words(tokens),
            "features": [[] for _ in tokens] if before.codes is None else [*map(self._features, before.codes)],
            **_attention(before.attention, layer),
            "predictions": self._predictions(positions, probabilities),
            "edited": None if edited is None else self._predictions(positions, edited, probabilities),
        }

    @contextmanager
    def spliced(self, tokens: Int[Tensor, "t"], edits: Edits) -> Iterator[Spliced | None]:
        """The model with the dictionary in place at tokens of the text, where there is one."""
        if self.dictionary is None or self.site is None:
            if edits:
                raise UserError("features were to be edited and there is no dictionary here; accepted: no edits")
            yield None
            return
        with splice(self.model, self.dictionary, self.site, self.target, keep_error=True) as spliced:
            spliced.mask = torch.zeros(1, len(tokens), dtype=torch.bool)
            spliced.mask[0, self.text_rows(tokens)] = True
            spliced.scale(dict(edits))
            yield spliced

    def _features(self, codes: Float[Tensor, "f"]) -> list[JsonDict]:
        """What fires at a token, the largest first."""
        values, features = codes.topk(min(TOP_FEATURES, len(codes)))
        pairs = zip(features.tolist(), values.tolist(), strict=True)
        return [{"feature": feature, "value": round(value / self.unit, 4)} for feature, value in pairs if value]

    def _predictions(
        self, positions: list[int], probabilities: Float[Tensor, "q c"], before: Float[Tensor, "q c"] | None = None
    ) -> list[JsonDict]:
        predictions: list[JsonDict] = []
        for row, position in enumerate(positions):
            likely, ids = probabilities[row].topk(min(TOP_ANSWERS, probabilities.shape[-1]))
            top = [
                {"answer": self.answer(number), "probability": round(share, 5)}
                | ({} if before is None else {"before": round(float(before[row, number]), 5)})
                for share, number in zip(likely.tolist(), ids.tolist(), strict=True)
            ]
            predictions.append({"position": position, "top": top})
        return predictions


def _attention(layers: list[Float[Tensor, "h t s"]], layer: int) -> JsonDict:
    """Of all layers, or where that is too much of one."""
    shown = list(range(len(layers)))
    if sum(weights.numel() for weights in layers) > MOST_WEIGHTS:
        shown = [min(max(layer, 0), len(layers) - 1)]
    return {"layers": shown, "attention": [(layers[i].double() * 1e4).round().div(1e4).tolist() for i in shown]}


@dataclass(frozen=True)
class _OurReader(Reader):
    """A reader of one of our own models."""

    model: Model

    @torch.no_grad()
    def run(self, tokens: Int[Tensor, "t"], edits: Edits) -> Reading:
        patterns = [f"blocks.{layer}.attn.hook_pattern" for layer in range(self.model.settings.layers)]
        with self.spliced(tokens, edits) as spliced:
            logits, cache = self.model.run_with_cache(tokens[None], patterns)
        codes = None if spliced is None else spliced.codes[0]
        return Reading(logits[0, self.positions(tokens)].float(), codes, [cache[name][0] for name in patterns])

    def _checked(self, tokens: Sequence[int]) -> Int[Tensor, "t"]:
        longest = min(LONGEST, self.model.length)
        if not 0 < len(tokens) <= longest:
            raise UserError(f"the text has {len(tokens)} tokens; accepted: 1 to {longest}")
        return torch.tensor(tokens)


@dataclass(frozen=True)
class StoryReader(_OurReader):
    """Reads stories in the language of their world, and answers each question."""

    world: Stories

    def tokens(self, text: str) -> Int[Tensor, "t"]:
        words = re.sub(r"([.?,])", r" \1 ", text.lower()).split()
        known = {word: number for number, word in enumerate(self.world.vocabulary) if word not in ("<pad>", "<unk>")}
        if self.world.layout == "single" and not any(word.startswith("<") for word in words):
            words = _separated(words)
        for word in words:
            if word not in known:
                raise UserError(f"these stories have no word '{word:.40}'; {suggest(word, list(known))}")
        questions = words.count("?")
        if questions == 0 or (questions > 1 and self.world.layout == "single"):
            accepted = "one or more" if self.world.layout == "together" else "one"
            raise UserError(f"the text asks {questions} questions; accepted: {accepted}, each ended by a '?'")
        return self._checked([known[word] for word in words])

    def words(self, tokens: Int[Tensor, "t"]) -> list[str]:
        return self.world.words(tokens)

    def positions(self, tokens: Int[Tensor, "t"]) -> list[int]:
        return (tokens == self.world.vocabulary.index("?")).nonzero()[:, 0].tolist()

    def answer(self, index: int) -> str:
        return self.world.answers[index]


def _separated(words: list[str]) -> list[str]:
    """With the separators that a text of one question has: behind every statement, before the question."""
    sentence, separated = [], []
    for word in words:
        sentence.append(word)
        if word in (".", "?"):
            separated += [*sentence, "<ssep>"] if word == "." else ["<sep>", *sentence]
            sentence = []
    return separated + sentence


@dataclass(frozen=True)
class TextReader(_OurReader):
    """Reads any text, and predicts the next token at every one."""

    world: Text

    def tokens(self, text: str) -> Int[Tensor, "t"]:
        return self._checked(self.world.tokenized.tokenizer.encode(text).tolist())

    def words(self, tokens: Int[Tensor, "t"]) -> list[str]:
        return self.world.words(tokens)

    def positions(self, tokens: Int[Tensor, "t"]) -> list[int]:
        return list(range(len(tokens)))

    def answer(self, index: int) -> str:
        return self.world.vocabulary[index]


@dataclass(frozen=True)
class HuggingFaceReader(Reader):
    """A Hugging Face model, whose activations at a site a dictionary was trained on."""

    model: HuggingFaceModel

    def tokens(self, text: str) -> Int[Tensor, "t"]:
        longest = min(LONGEST, self.model.context)
        windows = list(cut_windows(self.model, [text], longest, None))
        if len(windows) != 1:
            raise UserError(f"the text has {'more' if windows else 'no'} tokens; accepted: 1 to {longest}")
        return pad_windows(self.model, windows)[0][0]

    def text_rows(self, tokens: Int[Tensor, "t"]) -> list[int]:
        special = special_token_ids(self.model)
        return [place for place, token in enumerate(tokens.tolist()) if token not in special]

    def words(self, tokens: Int[Tensor, "t"]) -> list[str]:
        return [str(self.model.tokenizer.decode([token])) for token in tokens.tolist()]

    @torch.no_grad()
    def run(self, tokens: Int[Tensor, "t"], edits: Edits) -> Reading:
        model: Any = self.model.model
        with self.spliced(tokens, edits) as spliced, eager_attention(model):
            output = model(input_ids=tokens[None], output_attentions=True)
        logits = output.logits[0].float() if self.model.is_causal else torch.zeros(0, 1)
        attention = [weights[0] for weights in output.attentions or () if weights is not None]
        return Reading(logits, None if spliced is None else spliced.codes[0], attention)

    def positions(self, tokens: Int[Tensor, "t"]) -> list[int]:
        return list(range(len(tokens))) if self.model.is_causal else []

    def answer(self, index: int) -> str:
        return str(self.model.tokenizer.decode([index]))


class Worker:
    """Answers requests about one run; loads what a request needs, and keeps the reader that was used last."""

    def __init__(self, path: Path, plugins: Sequence[str] = ()) -> None:
        """`plugins` are files to run first, as somebody named them to the explorer."""
        self.path, self.plugins = path, plugins
        self._last: tuple[tuple[int, int], Reader] | None = None
        self._models: dict[str, HuggingFaceModel] = {}

    @cached_property
    def run(self) -> Run:
        run = Run.open(self.path)
        run.check_finished()
        return run

    @cached_property
    def plan(self) -> Plan:
        for plugin in self.plugins:
            read_file(plugin)
        return laid_out(plan_of(self.run, "`unbraid explore --plugin FILE`"), self.run)

    def answer(self, request: object) -> JsonDict:
        """What is answered to a request, without its id."""
        if not isinstance(request, dict):
            raise UserError("the request is no JSON object; accepted: one with op")
        match request.get("op"):
            case "describe":
                return self.describe()
            case "example":
                return self.example(*self._place(request), _whole(request, "index"))
            case "read":
                text, layer = request.get("text"), _whole(request, "layer")
                if not isinstance(text, str):
                    raise UserError(f"the text is {text!r:.40}; accepted: a text")
                return self.reader(*self._place(request)).read(text, _edits(request.get("edits", [])), layer)
            case other:
                raise UserError(f"op is {other!r:.40}; {suggest(str(other), ['describe', 'example', 'read'])}")

    def describe(self) -> JsonDict:
        """What can be tried, without loading any weights."""
        stacks = [self._describe(index) for index in range(len(self.plan.stacks))]
        return {"kind": self.run.facts()["kind"], "stacks": [stack for stack in stacks if stack]}

    def _describe(self, index: int) -> JsonDict | None:
        stack, folder = self.plan.stacks[index], self.run.stack(index)
        model = stack.first.model_to_try()
        members = [
            {"member": position, "label": label(card["setting"]), "replicate": card["replicate"]}
            for position, card in enumerate(read_json(folder / "members.json"))
        ]
        has_dictionary = (folder / "dictionary.json").is_file()
        features = read_json(folder / "dictionary.json")["d_sae"] if has_dictionary else None
        card: JsonDict = {"stack": index, "members": members, "features": features}
        if model is None:
            return None
        if not isinstance(model.world, Activations):
            return {**card, **_describe_model(model, model.world)}
        return {**card, **_describe_captured(model.world)} if features else None

    def example(self, stack: int, member: int, index: int) -> JsonDict:
        """A story with its questions, their answers and the tokens they follow from; of a text, a window of it."""
        model = self.plan.stacks[stack].members[member].experiment.model_to_try()
        world = None if model is None else model.world
        if isinstance(world, Stories):
            return _example_story(world, index)
        if isinstance(world, Text):
            return {"text": _window(world, index), "questions": []}
        return {"text": SENTENCE, "questions": []}

    def reader(self, stack: int, member: int) -> Reader:
        if self._last is None or self._last[0] != (stack, member):
            self._last = (stack, member), self._load(stack, member)
        return self._last[1]

    def _load(self, stack: int, member: int) -> Reader:
        tried = self.plan.stacks[stack].members[member].experiment.model_to_try()
        if tried is None:
            raise UserError(f"{self.path.name} has no model; accepted: a run of models, or on a model's activations")
        world, site, target = tried.world, tried.site, tried.target
        if " + " in f"{site}{target}":
            raise UserError(f"{self.path.name} has crosscoders; accepted to try: dictionaries that read one site")
        if isinstance(world, Activations):
            return HuggingFaceReader(*self._dictionary(stack, member), self._hugging_face(world.model), site, target)
        if site is None:
            dictionary, model = (None, 1.0), load_models(self.path, stack).module(member)
        else:
            dictionary, model = self._dictionary(stack, member), self._pipeline_model(stack).module()
        if isinstance(world, Stories):
            return StoryReader(*dictionary, model, site, target, world)
        return TextReader(*dictionary, model, site, target, world)

    def _dictionary(self, stack: int, member: int) -> tuple[Stack | None, float]:
        """The dictionary in the units of its model, and how large its own unit is there: that of what it writes."""
        folder = self.run.stack(stack)
        if not (folder / "dictionary.json").is_file():
            return None, 1.0
        trained, path = load_stack(self.path, stack).member(member), folder / "normalization.safetensors"
        if not path.is_file():
            return trained, 1.0
        return trained, float(read_arrays(path)["target.scale" if trained.is_transcoder else "scale"][0])

    def _pipeline_model(self, stack: int) -> Models:
        """The model that a stack of dictionaries learned from, which only the cache beside the run has."""
        stages = in_order(self.plan.stacks[stack].first.stages(self.plan.stacks[stack]))
        training = next(stage for stage in stages if isinstance(stage, TrainModels))
        cache = Cache(self.run.cache)
        if not (cache.folder(training.key) / "weights.safetensors").is_file():
            raise UserError(
                f"the model of {self.path.name} is not in the cache beside it ({training.key}); accepted: a run with "
                "its cache, made by this version"
            )
        silent = TaskProgress(Silent(), 0)
        context = Context(cache.folder(training.key), cache, silent, StopSignals(""), frozenset({training.key}))
        return training.loaded(context)

    def _hugging_face(self, name: str) -> HuggingFaceModel:
        """From local files only."""
        if name not in self._models:
            os.environ["HF_HUB_OFFLINE"] = "1"
            self._models[name] = load_model(name)
        return self._models[name]

    def _place(self, request: JsonDict) -> tuple[int, int]:
        """Which stack and member a request is about."""
        stack, member = _whole(request, "stack"), _whole(request, "member")
        if not (stack < len(self.plan.stacks) and member < len(self.plan.stacks[stack].members)):
            raise UserError(f"there is no member {member} of stack {stack}; accepted: those that describe lists")
        return stack, member


def _describe_model(tried: ModelToTry, world: Stories | Text) -> JsonDict:
    model, stories = tried.architecture, isinstance(world, Stories)
    assert model is not None, "a model of ours"
    return {
        "model": model.to_dict()["kind"],
        "site": " → ".join(name for name in (tried.site, tried.target) if name) or None,
        "layers": model.layers,
        "heads": model.heads_per_layer,
        "vocabulary": len(world.vocabulary),
        "words": list(world.vocabulary) if stories else [],
        "reads": "story" if stories else "text",
        "example": _example_story(world, 0)["text"] if isinstance(world, Stories) else _window(world, 0),
    }


def _describe_captured(world: Activations) -> JsonDict:
    os.environ["HF_HUB_OFFLINE"] = "1"
    from transformers.models.auto.configuration_auto import AutoConfig

    try:
        config: Any = AutoConfig.from_pretrained(world.model, trust_remote_code=False)
    except Exception:  # of every type, in four libraries; reading says what is the matter
        config = None
    sizes = {"layers": "num_hidden_layers", "heads": "num_attention_heads", "vocabulary": "vocab_size"}
    found = {name: getattr(config, attribute, None) for name, attribute in sizes.items()}
    return {"model": world.model, "site": world.site, **found, "words": [], "reads": "text", "example": SENTENCE}


def _example_story(world: Stories, index: int) -> JsonDict:
    batch = world.batch(index, 1, SPLIT)
    tokens = batch.tokens[0][batch.mask[0]]
    questions = [
        {
            "position": int(position),
            "answer": world.answers[int(answer)],
            "support": support.nonzero()[:, 0].tolist(),
        }
        for position, answer, support in zip(batch.asked[0], batch.answers[0], batch.support[0], strict=True)
    ]
    return {"text": " ".join(world.words(tokens)), "questions": questions}


def _window(world: Text, index: int) -> str:
    tokens, length = world.tokenized.validation, min(LONGEST, world.context)
    start = index * length % max(1, len(tokens) - length)
    return world.tokenized.tokenizer.decode(tokens[start : start + length].tolist())


def _whole(request: JsonDict, name: str) -> int:
    value = request.get(name, 0)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 31:
        raise UserError(f"{name} is {value!r:.40}; accepted: a whole number from 0")
    return value


def _edits(value: object) -> list[tuple[int, float]]:
    if not isinstance(value, list) or len(value) > MOST_EDITS or not all(isinstance(edit, dict) for edit in value):
        raise UserError(
            f"edits is {value!r:.40}; accepted: a list of up to {MOST_EDITS} objects with feature and scale"
        )
    edits = {_whole(edit, "feature"): edit.get("scale", 0.0) for edit in value}
    for scale in edits.values():
        is_number = isinstance(scale, int | float) and not isinstance(scale, bool)
        if not is_number or not math.isfinite(scale) or abs(scale) > LARGEST_SCALE:
            raise UserError(f"a scale is {scale!r:.40}; accepted: a number up to {LARGEST_SCALE:g}; 0 ablates")
    return [(feature, float(scale)) for feature, scale in edits.items()]


def serve(worker: Worker, requests: Iterable[str], write: Callable[[str], object]) -> None:
    """One answer a line for one request a line; whatever goes wrong is an answer, too."""
    for line in requests:
        request = _parsed(line)
        number = request.get("id") if isinstance(request, dict) else None
        try:
            answer = worker.answer(request)
        except UserError as problem:
            answer = {"error": one_line(str(problem))}
        except Exception as problem:
            traceback.print_exc()
            answer = {"error": f"an error of ours: {problem!r:.200}"}
        write(json.dumps({"id": number, **answer}, separators=(",", ":")) + "\n")


def _parsed(line: str) -> object:
    """The request; None where it is no JSON."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def main() -> None:
    """Standard output is for answers alone: whatever a library prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)
    sys.stdin.reconfigure(encoding="utf-8", errors="replace")  # pyright: ignore[reportAttributeAccessIssue]
    serve(Worker(Path(sys.argv[1]), sys.argv[2:]), sys.stdin, answers.write)


if __name__ == "__main__":
    main()
