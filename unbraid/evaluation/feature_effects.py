"""What every feature does to the output of the model its dictionary reads: two numbers beside what it fires on.

**Logit lens.** A feature with the decoder row d raises the logits by, for each unit of its value,

    W_U (γ ⊙ (M d − mean of M d)) · s

s turns the dictionary's unit into the model's, M takes the site to the residual stream (the identity where the site is
the stream, or what attention or MLP adds to it; the output matrix where it is what heads read), γ is the gain of the
final norm and W_U the unembedding; RMSNorm subtracts no mean. The norm's division by the size of the stream is left
out: it is one positive number a token, so that order and sign are right and values are comparable within a model. At
what the last block writes, this over that number is exactly the feature's share of the logits. Elsewhere it is the
direct path alone: what later layers make of the feature is not in it, nor the gate of routed attention.

**Effect on the answer.** In the stories of its strongest contexts the feature is ablated at every token inside the
model, x − z d s, and the log-probability of the correct answer read again. The mean change over the questions that come
after it first fires, by all paths: below 0 the feature helps.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy import sparse

from unbraid.activations.huggingface import HuggingFaceModel
from unbraid.activations.sites import Site
from unbraid.axes import Float, Int, Tensor
from unbraid.dictionaries.baselines import FittedBaseline
from unbraid.dictionaries.stack import Stack
from unbraid.evaluation.causal import EditableModel
from unbraid.evaluation.factors import codes_to_rows, encode_rows
from unbraid.models import Models
from unbraid.storage.feature_index import ANSWERS, pack_names
from unbraid.storage.files import Arrays
from unbraid.worlds.stories import StoryBatch

STORIES = 4
"""A feature is ablated in at most so many stories, those of its strongest contexts."""
TOGETHER = 128
"""Stories that run together."""
BLOCK = 256
"""Features whose logits are made together: a vocabulary is large."""
STREAM = re.compile(r"blocks\.(\d+)\.(hook_resid_pre|hook_resid_mid|hook_resid_post|hook_attn_out|hook_mlp_out)")
HEADS = re.compile(r"blocks\.(\d+)\.attn\.hook_z")
FINAL_NORMS = ("ln_f", "norm", "final_layer_norm", "final_layernorm", "norm_f")
"""What families of models call the norm before the unembedding; it lies beside the list of blocks."""


@dataclass(frozen=True)
class LogitLens:
    """A linear map from a site to the logits."""

    weight: Float[Tensor, "c d"]
    """Everything between a direction in the dictionary's unit and the logits."""
    exact: bool
    """Whether no layer comes after the site: it is the share of the logits then, up to the norm's division."""

    def of(self, directions: Float[Tensor, "f d"]) -> Arrays:
        """The answers it raises most, then those it lowers most, strongest first, with the change of their logits."""
        classes = len(self.weight)
        raised, lowered = min(ANSWERS, (classes + 1) // 2), min(ANSWERS, classes // 2)
        answer = np.full((len(directions), 2 * ANSWERS), -1, dtype=np.int32)
        logit = np.zeros((len(directions), 2 * ANSWERS), dtype=np.float32)
        for begin in range(0, len(directions), BLOCK):
            logits = directions[begin : begin + BLOCK].float() @ self.weight.T
            for first, amount, largest in ((0, raised, True), (ANSWERS, lowered, False)):
                best = logits.topk(amount, -1, largest=largest)
                answer[begin : begin + BLOCK, first : first + amount] = best.indices.numpy()
                logit[begin : begin + BLOCK, first : first + amount] = best.values.numpy()
        return {"answer": answer, "answer_logit": logit}


def lens_of_model(model: Models, site: str, scale: float) -> LogitLens | None:
    """Of one of our transformers; None where no linear path leads from the site to the answers."""
    weights = {name: tensor[0].cpu() for name, tensor in model.weights.items()}
    if "final_norm.weight" not in weights:
        return None
    through = _folded(weights["answer.weight"], weights["final_norm.weight"], centered=True)
    last = model.settings.layers - 1
    if STREAM.fullmatch(site):
        exact = site in (f"blocks.{last}.hook_resid_post", f"blocks.{last}.hook_mlp_out")
        return LogitLens(through * scale, exact)
    if match := HEADS.fullmatch(site):
        return LogitLens(through @ weights[f"blocks.{match[1]}.attn.out"] * scale, False)
    return None


@torch.no_grad()
def lens_of_huggingface(model: HuggingFaceModel, site: Site, scale: float, words: int) -> LogitLens | None:
    """Of a causal language model, for the first tokens of its vocabulary; None where no linear path is known."""
    unembedding: Any = model.model.get_output_embeddings() if model.is_causal else None
    norm = _final_norm(model)
    is_block = re.fullmatch(r".*\.\d+", site.path) is not None and site.side == "output"
    if (
        unembedding is None
        or norm is None
        or not (is_block or STREAM.fullmatch(site.name) or HEADS.fullmatch(site.name))
    ):
        return None
    gain, centered = _gain(norm, unembedding.weight.shape[1])
    through = _folded(unembedding.weight[:words], gain, centered)
    if HEADS.fullmatch(site.name):
        width = unembedding.weight.shape[1]
        output: Any = site.module  # the output matrix, as torch's Linear or as Conv1D has it
        inputs = getattr(output, "in_features", None) or output.weight.shape[0 if hasattr(output, "nf") else 1]
        matrix = output(torch.eye(inputs)) - output(torch.zeros(1, inputs))
        return LogitLens(through @ matrix.T * scale, False) if matrix.shape[1] == width else None
    last = int(getattr(model.model.config, "num_hidden_layers", 0)) - 1
    exact = is_block and site.path.endswith(f".{last}")
    return LogitLens(through * scale, exact)


def _folded(unembedding: Float[Tensor, "c d"], gain: Float[Tensor, "d"], centered: bool) -> Float[Tensor, "c d"]:
    """The unembedding with the gain of the norm in it, and its subtraction of the mean."""
    through = unembedding.float() * gain
    return through - through.mean(1, keepdim=True) if centered else through


def _final_norm(model: HuggingFaceModel) -> torch.nn.Module | None:
    """The norm that lies beside the list of blocks."""
    modules = dict(model.model.named_modules())
    layers = getattr(model.model.config, "num_hidden_layers", None)
    lists = [path for path, each in modules.items() if isinstance(each, torch.nn.ModuleList) and len(each) == layers]
    parent = min(lists, key=lambda path: path.count("."), default="").rpartition(".")[0]
    names = (f"{parent}.{name}".lstrip(".") for name in FINAL_NORMS)
    return next((modules[name] for name in names if name in modules), None)


def _gain(norm: torch.nn.Module, width: int) -> tuple[Float[Tensor, "d"], bool]:
    """The factor of each dimension and whether the mean is subtracted; asked of the norm, as families differ in it."""
    signs = torch.ones(width)
    signs[1::2] = -1
    output, shift = norm(signs[None])[0], norm(torch.zeros(1, width))[0]
    centered = torch.allclose(norm(signs[None] + 1)[0], output, atol=1e-3)
    unit = signs - signs.mean() if centered else signs
    return (output - shift) / (unit / unit.square().mean().sqrt()), centered


@dataclass(frozen=True)
class AnswerEffects:
    """The stories behind the indexed rows, and the model that answers their questions."""

    model: EditableModel
    batch: StoryBatch
    story: Int[np.ndarray, "n"]
    """Of each indexed row, which of the stories it is in."""

    @cached_property
    def _clean(self) -> tuple[Float[Tensor, "b q"], Float[Tensor, "b t d"]]:
        return self._read(self.batch)

    @torch.no_grad()
    def _read(
        self, batch: StoryBatch, change: Float[Tensor, "b t d"] | None = None
    ) -> tuple[Float[Tensor, "b q"], Float[Tensor, "b t d"]]:
        """The log-probabilities of the correct answers, and the activations."""
        edit = None if change is None else lambda rows: rows + change.to(rows.dtype)
        logits, rows = self.model.logits(batch, edit)
        return logits.log_softmax(-1).gather(-1, batch.answers[..., None])[..., 0], rows

    def of(self, member: Stack | FittedBaseline, strongest: Int[np.ndarray, "f k"]) -> Arrays:
        """The mean change of the log-probability, and of how many questions, for every feature."""
        _, x = self._clean
        stories, length, _ = x.shape
        codes = codes_to_rows(encode_rows(member, x.flatten(0, 1))).tocsc()
        feature, story = self._pairs(strongest)
        total, count = np.zeros(len(strongest)), np.zeros(len(strongest), dtype=np.int64)
        order = np.argsort(story, kind="stable")
        for begin in range(0, len(order), TOGETHER):
            some = order[begin : begin + TOGETHER]
            rows = story[some, None] * length + np.arange(length)
            values = torch.from_numpy(_values_at(codes, rows, feature[some], stories * length))
            values = values * self.batch.mask[story[some]]
            changes, judged = self._changes(member, feature[some], story[some], values)
            np.add.at(total, feature[some], (changes * judged).sum(1).numpy())
            np.add.at(count, feature[some], judged.sum(1).numpy())
        effect = np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0)
        return {"effect": effect.astype(np.float32), "effect_questions": count.astype(np.int16)}

    def _pairs(self, strongest: Int[np.ndarray, "f k"]) -> tuple[Int[np.ndarray, "p"], Int[np.ndarray, "p"]]:
        """Each feature with the stories of its strongest contexts, each story once."""
        near = np.where(strongest >= 0, self.story[strongest], -1).tolist()
        pairs = [
            (feature, story)
            for feature, of_feature in enumerate(near)
            for story in list(dict.fromkeys(story for story in of_feature if story >= 0))[:STORIES]
        ]
        table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        return table[:, 0], table[:, 1]

    def _changes(
        self,
        member: Stack | FittedBaseline,
        feature: Int[np.ndarray, "p"],
        story: Int[np.ndarray, "p"],
        values: Float[Tensor, "p t"],
    ) -> tuple[Float[Tensor, "p q"], Tensor]:
        """What ablating each feature in its story does to each answer, and which questions count."""
        batch = self.batch.select(torch.from_numpy(story))
        directions = member.directions[0].detach().cpu()[torch.from_numpy(feature)].float()
        change = -values.float()[..., None] * directions[:, None] * self.model.normalization.scale
        ablated, _ = self._read(batch, change)
        fires = values != 0
        first = torch.where(fires.any(1), fires.int().argmax(1), values.shape[1])
        causal = self.model.model.settings.causal
        judged = batch.asked >= first[:, None] if causal else fires.any(1)[:, None].expand_as(batch.asked)
        return ablated - self._clean[0][torch.from_numpy(story)], judged


def _values_at(
    codes: sparse.csc_array, rows: Int[np.ndarray, "p t"], feature: Int[np.ndarray, "p"], n: int
) -> Float[np.ndarray, "p t"]:
    """The values of one feature a line at these rows."""
    codes.sort_indices()
    keys = np.repeat(np.arange(len(codes.indptr) - 1), np.diff(codes.indptr)) * n + codes.indices
    asked = feature[:, None] * n + rows
    if not len(keys):
        return np.zeros(rows.shape)
    places = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
    return np.where(keys[places] == asked, codes.data[places], 0.0)


@dataclass(frozen=True)
class OutputEffects:
    """What is known of a model's output: a lens, stories to ablate features in, or both."""

    lens: LogitLens | None
    answers: AnswerEffects | None = None
    names: Sequence[str] = ()
    """What the classes of the lens are called; empty where they are the tokens of the vocabulary."""

    def of(self, member: Stack | FittedBaseline, strongest: Int[np.ndarray, "f k"]) -> Arrays:
        """The arrays of one member, as `storage/feature_index.py` has them."""
        lens = {} if self.lens is None else self.lens.of(member.directions[0].detach().cpu())
        return lens | ({} if self.answers is None else self.answers.of(member, strongest))

    def arrays(self) -> Arrays:
        """Beside the table of the rows."""
        exact = {} if self.lens is None else {"lens_exact": np.array([self.lens.exact], dtype=np.uint8)}
        return exact | (pack_names("answers", list(self.names)) if self.names else {})
