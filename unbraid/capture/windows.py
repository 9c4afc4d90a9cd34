"""Cut documents into windows a model takes at once, and put windows of like length together.

A document longer than the context becomes several windows, each with the special tokens the tokenizer puts around a
text. Special and padding tokens are seen by the model and never kept.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from unbraid.axes import Bool, Int, Tensor
from unbraid.capture.models import Model
from unbraid.errors import Refusal

TOGETHER = 64
"""So many documents are tokenised at a time."""


LONGEST = 1024
"""The longest window, where a model could take more and no context was asked for."""


@dataclass(frozen=True)
class Window:
    """Tokens a model takes at once, which of them are kept, and the document they are of."""

    tokens: Int[np.ndarray, "t"]
    kept: Bool[np.ndarray, "t"]
    document: int

    @property
    def amount(self) -> int:
        return int(self.kept.sum())

    def first(self, most: int) -> "Window":
        """The same, with no more than so many tokens kept."""
        return Window(self.tokens, self.kept & (self.kept.cumsum() <= most), self.document)


def context_of(model: Model, asked: int | None) -> int:
    """How long windows are: as asked, where model and tokenizer take it and it holds more than special tokens."""
    most = min(model.context, model.tokenizer.model_max_length)
    special = model.tokenizer.num_special_tokens_to_add()
    context = min(most, LONGEST) if asked is None else asked
    if special < context <= most:
        return context
    raise Refusal(
        f"a context of {context} was asked for and {model.name} takes {most} tokens at most, {special} of them "
        f"special; accepted: {special + 1} to {most}"
    )


def windows(model: Model, documents: Iterable[str], context: int, most: int | None) -> Iterator[Window]:
    """The windows of all documents, until `most` tokens are kept."""
    left = most
    for window in _all_windows(model, documents, context):
        if not window.amount:
            continue
        yield window if left is None else window.first(left)
        if left is not None and (left := left - window.amount) <= 0:
            return


def _all_windows(model: Model, documents: Iterable[str], context: int) -> Iterator[Window]:
    if not model.tokenizer.is_fast:
        raise Refusal(f"{model.name} has no fast tokenizer; accepted: a model with a tokenizer.json")
    special = np.array(sorted(special_tokens(model)), dtype=np.int64)
    for number, some in enumerate(_batched(documents)):
        found = model.tokenizer(some, truncation=True, max_length=context, return_overflowing_tokens=True)
        for tokens, document in zip(found["input_ids"], found["overflow_to_sample_mapping"], strict=True):
            ids = np.asarray(tokens, dtype=np.int64)
            yield Window(ids, ~np.isin(ids, special), number * TOGETHER + int(document))


def _batched(documents: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(documents)
    while some := list(itertools.islice(rest, TOGETHER)):
        yield some


def special_tokens(model: Model) -> set[int]:
    """What stands for no text: beginnings, ends, separators, padding; a word unknown to the tokenizer is text."""
    names = model.tokenizer.special_tokens_map
    others = {str(name) for key, name in names.items() if key != "unk_token"}
    unknown = names.get("unk_token")
    special = set(map(int, model.tokenizer.all_special_ids))
    if unknown is None or str(unknown) in others:
        return special
    return special - {int(str(model.tokenizer.unk_token_id))}


def by_length(chosen: Sequence[Window], most: int) -> Iterator[list[int]]:
    """Which windows run together: the longest first, as many as make `most` tokens with padding."""
    order = sorted(range(len(chosen)), key=lambda index: (-len(chosen[index].tokens), index))
    while order:
        amount = max(1, most // len(chosen[order[0]].tokens))
        yield order[:amount]
        order = order[amount:]


def padded(model: Model, some: Sequence[Window]) -> tuple[Int[Tensor, "b t"], Int[Tensor, "b t"] | None]:
    """Tokens and mask; no mask where none is needed: a causal model never looks at what comes after."""
    longest = max(len(window.tokens) for window in some)
    filler = model.tokenizer.pad_token_id or 0
    tokens = np.full((len(some), longest), filler, dtype=np.int64)
    mask = np.zeros((len(some), longest), dtype=np.int64)
    for row, window in enumerate(some):
        tokens[row, : len(window.tokens)] = window.tokens
        mask[row, : len(window.tokens)] = 1
    needed = not model.is_causal and not mask.all()
    return torch.from_numpy(tokens), torch.from_numpy(mask) if needed else None
