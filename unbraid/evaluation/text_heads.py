"""Look at the heads of any transformer on any text: attention patterns, what heads read, and measures of both.

    of a head     row_std, sharpness, attention_entropy, effective_keys, query_variation      of its pattern
                  head_cosine, head_cka    of what it and another head of its layer write, mean over the others
                  head_dependence(_nonlinear)    held-out R² of what it writes, predicted from the best of the others
                  head_rank, activity      directions that it writes over sequences; its share of the layer's writing
    of a layer    usage_evenness, and the costs of the constraints at weight 1, as constraints.orthogonality

The formulas are those of `unbraid.metrics.attention`, `unbraid.metrics.heads` and `unbraid.models.constraints`; where
these speak of stories, sequences of the text stand here. What a head writes is its part of what the output matrix gets,
through that matrix.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from unbraid.activations.huggingface import HuggingFaceModel, eager_attention, load_model
from unbraid.activations.sites import Site, find_site, replace_at_site
from unbraid.activations.text import context_length, cut_windows, pad_windows
from unbraid.axes import Bool, Float, Int, Tensor
from unbraid.errors import UserError
from unbraid.evaluation.heads import TINY, deal_stories, dependence
from unbraid.metrics import attention
from unbraid.metrics import heads as measures
from unbraid.models import Model, Models
from unbraid.models.attention import AttentionMask
from unbraid.models.constraints import CONSTRAINTS, costs
from unbraid.models.constraints.base import HOOKS
from unbraid.models.constraints.independence import FEWEST_STORIES
from unbraid.models.models import PADDING, ForwardOutput

BATCH_TOKENS = 1024
"""Tokens that run at a time."""
CONTEXT, TOKENS = 64, 4096
Named = dict[str, Tensor]
AnyModel = HuggingFaceModel | nn.Module | Models | str | Path


@dataclass(frozen=True)
class Heads:
    """The heads of a model on a text, as `heads` returns them: patterns, what heads read, and measures.

    Parameters
    ----------
    tokens : integer Tensor, shape (b, t)
        The sequences that were read.
    mask : boolean Tensor, shape (b, t)
        False at padding.
    pattern : Tensor, shape (l, b, h, t, s)
        Attention weights by layer, sequence, head, query and key.
    z : Tensor, shape (l, b, h, t, e)
        What each head reads: its part of what the output matrix gets.
    values : dict of str to Tensor, each of shape (l, h) or (l,)
        Every measure, of each head or of a whole layer.
    chance : dict of str to Tensor, of the same shapes
        What a head that knows nothing has, of measures that have such a number.

    Examples
    --------
    >>> import torch, unbraid as ub
    >>> one = torch.ones(1, 1, 1, 1, 1)  # a layer with a head, and a sequence of a token
    >>> shown = ub.Heads(one[0, 0, 0].long(), one[0, 0, 0] > 0, one, one, {"sharpness": torch.tensor([[0.5]])}, {})
    >>> shown.frame().to_dict("records")
    [{'layer': 0, 'head': 0, 'metric': 'sharpness', 'value': 0.5, 'chance': nan}]
    """

    tokens: Int[Tensor, "b t"]
    mask: Bool[Tensor, "b t"]
    pattern: Float[Tensor, "l b h t s"]
    z: Float[Tensor, "l b h t e"]
    values: dict[str, Tensor]
    chance: dict[str, Tensor]

    def frame(self) -> pd.DataFrame:
        """One row a layer, head and metric, with value and chance; a layer's own measures have no head (<NA>)."""
        parts = [_rows(name, value, self.chance.get(name)) for name, value in self.values.items()]
        return pd.concat(parts, ignore_index=True).astype({"head": "Int64"})


def _rows(name: str, value: Tensor, chance: Tensor | None) -> pd.DataFrame:
    layers, heads = np.indices((len(value), value.shape[1] if value.dim() == 2 else 1)).reshape(2, -1)
    return pd.DataFrame(
        {
            "layer": layers,
            "head": pd.array(heads, dtype="Int64") if value.dim() == 2 else pd.array([pd.NA] * len(layers), "Int64"),
            "metric": name,
            "value": value.double().flatten().numpy(),
            "chance": np.nan if chance is None else chance.double().flatten().numpy(),
        }
    )


@torch.no_grad()
def heads(
    model: AnyModel,
    text: str | Sequence[str] | Tensor,
    tokenizer: Any = None,
    context: int = CONTEXT,
    tokens: int = TOKENS,
) -> Heads:
    """Measure every attention head of a model on a text: where it attends, what it writes, how heads differ.

    Parameters
    ----------
    model : torch.nn.Module, str or Path
        A model of transformers, its name or folder, or `ub.Model`.
    text : str, sequence of str, or integer Tensor of shape (b, t)
        A text, several, or the token ids of sequences of one length (for `ub.Model` 0 is padding, at the right).
    tokenizer : optional
        What makes tokens of the text; not needed with token ids, a name or a folder. For `ub.Model` that of its world,
        `world.tokenized.tokenizer`.
    context : int, default 64
        Longest sequence in tokens; a longer text is cut. Patterns take its square of memory.
    tokens : int, default 4096
        Tokens of the text that are read, at most.

    Returns
    -------
    Heads
        `pattern`, `z`, and `frame()`: layer, head, metric, value and chance.

    Examples
    --------
    >>> import torch, unbraid as ub
    >>> model = ub.Model(ub.Transformer(d_model=8, heads=2, d_ff=8), vocabulary=9, length=6)
    >>> seen = ub.heads(model, torch.randint(1, 9, (20, 6)))
    >>> seen.pattern.shape  # layer, sequence, head, query, key
    torch.Size([2, 20, 2, 6, 6])
    >>> frame = seen.frame()
    >>> frame.columns.to_list()
    ['layer', 'head', 'metric', 'value', 'chance']
    >>> frame[frame["metric"] == "attention_entropy"][["layer", "head", "chance"]].values.tolist()
    [[0, 0, 1.0], [0, 1, 1.0], [1, 0, 1.0], [1, 1, 1.0]]
    """
    if isinstance(model, Models):
        raise UserError("heads of a stack of models were asked for; accepted: one as a module, models.module(0)")
    if isinstance(model, Model):
        return _measured(_look_at_ours(model, _our_tokens(model, text, tokenizer, context, tokens)))
    loaded = _loaded(model, tokenizer)
    return _measured(_look_at_transformers(loaded, *_their_tokens(loaded, text, context, tokens)))


@dataclass(frozen=True)
class _Seen:
    """What a model's heads did."""

    tokens: Int[Tensor, "b t"]
    mask: Bool[Tensor, "b t"]
    pattern: Float[Tensor, "l b h t s"]
    z: Float[Tensor, "l b h t e"]
    takes: Bool[Tensor, "l b h t"]
    """Which tokens use a head, where they are routed."""
    written: Callable[[int], Float[Tensor, "b h t d"]]
    """What the heads of a layer write, made when it is asked for."""

    @property
    def causal(self) -> bool:
        """Whether no token attends to a later one."""
        return not bool(self.pattern.triu(1).any())


def _our_tokens(
    model: Model, text: str | Sequence[str] | Tensor, tokenizer: Any, context: int, tokens: int
) -> Int[Tensor, "b t"]:
    if isinstance(text, Tensor):
        return text
    if tokenizer is None:
        raise _no_tokenizer("world.tokenized.tokenizer")
    encoded = [np.asarray(tokenizer.encode(each)) for each in ([text] if isinstance(text, str) else text)]
    step = min(context, model.length)
    pieces = [ids[start : start + step] for ids in encoded for start in range(0, len(ids), step)]
    begins = np.cumsum([0, *map(len, pieces)])
    pieces = [torch.from_numpy(ids[: tokens - begin]).long() for ids, begin in zip(pieces, begins, strict=False)]
    return nn.utils.rnn.pad_sequence(
        _some([ids for ids in pieces if len(ids)]), batch_first=True, padding_value=PADDING
    )


def _loaded(model: HuggingFaceModel | nn.Module | str | Path, tokenizer: Any) -> HuggingFaceModel:
    if isinstance(model, HuggingFaceModel):
        return model
    if not isinstance(model, nn.Module):
        return load_model(model)
    if not isinstance(getattr(getattr(model, "config", None), "num_hidden_layers", None), int):
        raise UserError(
            f"heads of a {type(model).__name__} were asked for; accepted: a model of transformers, or Model"
        )
    name = getattr(model, "name_or_path", "") or type(model).__name__
    return HuggingFaceModel(model, tokenizer, name)  # pyright: ignore[reportArgumentType]


def _their_tokens(
    model: HuggingFaceModel, text: str | Sequence[str] | Tensor, context: int, tokens: int
) -> tuple[Int[Tensor, "b t"], Bool[Tensor, "b t"]]:
    if isinstance(text, Tensor):
        return text, torch.ones_like(text, dtype=torch.bool)
    if model.tokenizer is None:
        raise _no_tokenizer("transformers.AutoTokenizer.from_pretrained(…)")
    longest = context_length(model, min(context, model.context))
    windows = _some(list(cut_windows(model, [text] if isinstance(text, str) else text, longest, tokens)))
    ids, lengths = pad_windows(model, windows)[0], torch.tensor([len(window.tokens) for window in windows])
    return ids, torch.arange(ids.shape[1]) < lengths[:, None]


def _no_tokenizer(accepted: str) -> UserError:
    return UserError(f"a text was given without a tokenizer; accepted: tokenizer = {accepted}, or token ids")


def _some(sequences: list[Any]) -> list[Any]:
    if not sequences:
        raise UserError("the text has no tokens; accepted: a text with at least one word")
    return sequences


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Within this context, without dropout."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def _look_at_ours(model: Model, tokens: Int[Tensor, "b t"]) -> _Seen:
    def at(name: str) -> list[str]:
        return [f"blocks.{layer}.attn.hook_{name}" for layer in range(model.settings.layers)]

    known = model.settings.hooks()
    with _evaluating(model):
        asked = [hook for name in ("pattern", "z", "result", "gate") for hook in at(name) if hook in known]
        cache = {hook: kept.float().cpu() for hook, kept in model.run_with_cache(tokens, asked)[1].items()}
    pattern, z = (torch.stack([cache[hook] for hook in at(name)]) for name in ("pattern", "z"))
    takes = torch.ones(pattern.shape[:-1], dtype=torch.bool)
    if at("gate")[0] in cache:
        takes = torch.stack([cache[hook].mT > 0 for hook in at("gate")])
    tokens = tokens.cpu()
    return _Seen(tokens, tokens != PADDING, pattern, z, takes, [cache[hook] for hook in at("result")].__getitem__)


def _look_at_transformers(model: HuggingFaceModel, tokens: Int[Tensor, "b t"], mask: Bool[Tensor, "b t"]) -> _Seen:
    """By the part of the model below its output, which needs no logits."""
    inner: Any = getattr(model.model, "base_model", model.model)
    sites = [find_site(model, f"blocks.{layer}.attn.hook_z") for layer in range(model.model.config.num_hidden_layers)]
    rows = max(1, BATCH_TOKENS // tokens.shape[1])
    patterns: list[Tensor] = []
    read: list[list[Tensor]] = [[] for _ in sites]
    with ExitStack() as contexts:
        contexts.enter_context(_evaluating(inner))
        contexts.enter_context(eager_attention(inner))
        for site, kept in zip(sites, read, strict=True):
            contexts.enter_context(replace_at_site(site, partial(_keep, kept)))
        for ids, real in zip(tokens.split(rows), mask.split(rows), strict=True):
            ids, padded = ids.to(inner.device), None if real.all() else real.long().to(inner.device)
            output = inner(input_ids=ids, attention_mask=padded, output_attentions=True)
            patterns.append(_attention(model, output, len(sites)))
    pattern = torch.cat(patterns, 1)
    z = torch.stack([torch.cat(kept) for kept in read]).unflatten(-1, (pattern.shape[2], -1)).transpose(2, 3)
    takes = torch.ones(pattern.shape[:-1], dtype=torch.bool)
    return _Seen(tokens, mask, pattern, z, takes, lambda layer: _project(sites[layer], z[layer]))


def _keep(kept: list[Tensor], x: Tensor) -> Tensor:
    kept.append(x.float().cpu())
    return x


def _attention(model: HuggingFaceModel, output: Any, layers: int) -> Float[Tensor, "l b h t s"]:
    found = [weights for weights in getattr(output, "attentions", None) or () if weights is not None]
    if len(found) != layers:
        raise UserError(
            f"{model.name} gives the attention of {len(found)} of {layers} layers; accepted: a model whose attention "
            'can be looked at, loaded with attn_implementation="eager"'
        )
    return torch.stack([weights.float().cpu() for weights in found])


def _project(site: Site, z: Float[Tensor, "b h t e"]) -> Float[Tensor, "b h t d"]:
    """What each head writes: its rows of the output matrix, which stands at the site, times what it reads."""
    each = torch.eye(z.shape[1] * z.shape[3]).to(next(site.module.parameters()))
    matrix = (site.module.forward(each) - site.module.forward(torch.zeros_like(each))).to(z)  # past anybody's hooks
    return torch.einsum("bhte,hed->bhtd", z, matrix.unflatten(0, (z.shape[1], -1)))


def _measured(seen: _Seen) -> Heads:
    """Every measure of what was seen; layer by layer where heads write."""
    values, chance = _of_patterns(seen)
    layers = [_of_layer(seen, layer) for layer in range(len(seen.z))]
    values |= {name: torch.stack([found[name] for found, _ in layers]) for name in layers[0][0]}
    chance |= {name: torch.stack([floor[name] for _, floor in layers]) for name in layers[0][1]}
    chance = {name: level.to(values[name]).expand(values[name].shape) for name, level in chance.items()}
    return Heads(seen.tokens, seen.mask, seen.pattern, seen.z, values, chance)


def _of_patterns(seen: _Seen) -> tuple[Named, Named]:
    """Where heads attend, `l h`, and the same of uniform attention."""
    keys = attention.allowed(seen.mask, seen.causal) & seen.mask[..., None]
    if attention.is_self_masked(seen.pattern):
        keys = attention.without_self(keys)
    queries = (keys.sum(-1) > 1)[:, None] & seen.takes
    on_tokens = seen.pattern / seen.pattern.sum(-1, keepdim=True).clamp_min(TINY)  # the rest may be on memories
    length = int(seen.mask[0].sum())
    first, first_keys = seen.pattern[:, :1, :, :length, :length], keys[:1, :length, :length]
    uniform = attention.uniform_attention(first_keys)
    values = {
        "row_std": attention.row_std(first),
        "sharpness": attention.sharpness(seen.pattern, keys),
        "attention_entropy": attention.over_queries(attention.attention_entropy(on_tokens, keys), queries),
        "effective_keys": attention.mean_effective_keys(seen.pattern, keys),
        "query_variation": attention.query_variation(first),
    }
    chance = {
        "row_std": attention.row_std(uniform),
        "sharpness": torch.zeros(1, 1),
        "attention_entropy": torch.ones(1, 1),
        "effective_keys": attention.mean_effective_keys(attention.uniform_attention(keys), keys),
        "query_variation": attention.query_variation(uniform),
    }
    return values, chance


def _of_layer(seen: _Seen, layer: int) -> tuple[Named, Named]:
    """What the heads of a layer write: of each head `h`, of the layer a number; with what chance has."""
    written = seen.written(layer)[None]
    pooled = measures.pooled(written, seen.mask)
    size = attention.over_queries(written.norm(dim=-1), seen.mask[None, :, None])[0]
    share = size / size.sum()
    values = {
        "head_cosine": _others(measures.cosine_redundancy(pooled)[0]).nanmean(0),
        "head_cka": _others(measures.cka(pooled)[0]).nanmean(0),
        **_largest_dependence(pooled),
        "head_rank": measures.effective_rank(pooled)[0],
        "activity": share,
        "usage_evenness": measures.evenness(share[None])[0],
        **_constraint_costs(seen, layer, written),
    }
    cosine = torch.tensor(measures.expected_cosine(written.shape[-1]))
    return values, {"head_cosine": cosine[None], **_largest_dependence(deal_stories(pooled))}


def _others(table: Float[Tensor, "h h"]) -> Float[Tensor, "h h"]:
    """Without what a head has with itself."""
    return table.masked_fill(torch.eye(len(table), dtype=torch.bool), torch.nan)


def _largest_dependence(pooled: Float[Tensor, "1 b h d"]) -> Named:
    """How much of each head the best of the others predicts; NaN where sequences are too few."""
    largest = {name: _others(table[0]).nan_to_num(nan=-torch.inf).amax(0) for name, table in dependence(pooled).items()}
    return {f"head_{name}": torch.where(found.isfinite(), found, torch.nan) for name, found in largest.items()}


def _constraint_costs(seen: _Seen, layer: int, written: Float[Tensor, "1 b h t d"]) -> Named:
    """The costs of a layer, as training under the constraint has them without its weight."""
    recorded = {"pattern": seen.pattern[layer][None], "output": seen.z[layer][None], "written": written}
    hooks = {f"blocks.0.{HOOKS[name]}": tensor for name, tensor in recorded.items()}
    output = ForwardOutput(written.sum(2), AttentionMask(seen.causal, seen.mask), hooks, {})
    found = costs(
        {name: CONSTRAINTS[name](weight=1.0) for name in CONSTRAINTS if name in CONSTRAINTS.built_in}, output, layers=1
    )
    if len(seen.tokens) < FEWEST_STORIES:
        found["independence"] = torch.full((1,), torch.nan)
    return {f"constraints.{name}": cost[0] for name, cost in found.items()}
