"""A text as a model reads it: windows, and the activations of their tokens at a site, special ones left out."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from unbraid.axes import Bool, Float, Int, Tensor
from unbraid.capture.models import Model
from unbraid.capture.sites import Site, read
from unbraid.capture.windows import Window, by_length, padded, windows

TOGETHER = 1024
"""So many tokens, with padding, run at a time: the logits of a large vocabulary are large."""


@dataclass(frozen=True)
class Passage:
    """Windows that run together: their tokens, mask, and which tokens are text."""

    places: tuple[int, ...]
    tokens: Int[Tensor, "b t"]
    mask: Int[Tensor, "b t"] | None
    kept: Bool[Tensor, "b t"]


def first_windows(model: Model, texts: Iterable[str], context: int) -> list[Window]:
    """The beginning of every text, as much as the context holds; texts without tokens have none."""
    chosen: dict[int, Window] = {}
    for window in windows(model, texts, context, None):
        chosen.setdefault(window.document, window)
    return list(chosen.values())


def passages(model: Model, chosen: Sequence[Window], together: int = TOGETHER) -> Iterator[Passage]:
    for places in by_length(chosen, together):
        some = [chosen[place] for place in places]
        tokens, mask = padded(model, some)
        kept = np.zeros(tokens.shape, bool)
        for row, window in enumerate(some):
            kept[row, : len(window.tokens)] = window.kept
        yield Passage(tuple(places), tokens, mask, torch.from_numpy(kept))


def rows(model: Model, site: Site, passage: Passage) -> Float[Tensor, "p d"]:
    """The activations of the kept tokens, window after window."""
    return read(model, site, passage.tokens, passage.mask)[passage.kept]
