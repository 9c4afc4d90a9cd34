"""Batches of whole sequences with the model they are of, for what is trained through it.

The tokens of a sequence are those in the shards, behind the special ones that the tokenizer puts before a text.
"""

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
import torch

from unbraid.activations.capture import ARROW
from unbraid.activations.huggingface import HuggingFaceModel, load_model
from unbraid.activations.normalization import Normalization
from unbraid.activations.sites import HOOKS, Site, find_site, replace_at_site, site_names
from unbraid.axes import Bool, Float, Int, Tensor
from unbraid.dictionaries.downstream import Downstream, Said
from unbraid.dictionaries.lists import Inputs
from unbraid.errors import UserError
from unbraid.worlds.activations import Activations, CapturedSequences

CLOSE = 0.02
"""The largest error of the activations that the model gives now, as a share of their length; bfloat16 has .004."""
BLOCK = re.compile(r"(?:^|\.)(\d+)(?:\.|$)")
LATER = "hook_resid_post"
assert LATER in HOOKS


def check_rows(found: Float[Tensor, "n o"], stored: Float[Tensor, "n o"], path: str) -> None:
    """Raise where a model does not give the activations that were captured."""
    if found.shape != stored.shape or (found - stored).norm() > CLOSE * stored.norm():
        raise UserError(
            f"{path} holds other activations than the model gives for the same tokens; accepted: shards of this model, "
            "captured anew"
        )


def output_normalization(world: Activations) -> Normalization:
    """That of what reconstructions stand for."""
    return world.normalization if world.target_normalization is None else world.target_normalization


def inputs_with(world: Activations, drawn: CapturedSequences, downstream: Downstream) -> Inputs:
    """The same rows in the dictionary's units, and the model that goes on from them."""
    target, normalization = drawn.target, world.target_normalization
    in_units = None if target is None or normalization is None else normalization.apply(target)
    return Inputs(world.normalization.apply(drawn.x), target=in_units, downstream=downstream)


@dataclass(frozen=True)
class TextSequences:
    """Whole sequences of a text that a Hugging Face model has read."""

    world: Activations
    model: HuggingFaceModel
    size: int
    target: Site
    later: list[Site]
    _checked: list[bool] = field(default_factory=list)

    @classmethod
    def of(cls, world: Activations, size: int) -> "TextSequences":
        """Those of a world whose model can be loaded and is the same; about `size` rows a batch."""
        if world.factors:
            raise UserError(f"{world.path} is of a model of stories; accepted for end_to_end: `unbraid run` trains it")
        model = load_model(world.model)
        if not model.is_causal:
            raise UserError(f"{world.model} does not predict tokens; accepted for end_to_end: a causal model")
        world.check_same_model(model)
        target = find_site(model, world.site.split(ARROW)[-1])
        return cls(world, model, size, target, list(_later(model, target)))

    def inputs(self, position: int) -> Inputs:
        """The batch of a step."""
        drawn = self.world.sequences(position, self.size)
        tokens, mask = self._pad(drawn)
        downstream = TextDownstream(self, tokens, mask)
        if not self._checked:
            stored = drawn.x if drawn.target is None else drawn.target
            check_rows(downstream.at_target(), stored, self.world.path)
            self._checked.append(True)
        return inputs_with(self.world, drawn, downstream)

    def _pad(self, drawn: CapturedSequences) -> tuple[Int[Tensor, "s t"], Bool[Tensor, "s t"]]:
        """Tokens, padded at the right, and which of them have a row."""
        special = np.asarray(self.model.tokenizer("")["input_ids"], np.int64)
        before = [special[: int(positions[0])] for positions in drawn.positions]
        whole = [np.concatenate([b, tokens]) for b, tokens in zip(before, drawn.tokens, strict=True)]
        shape = len(whole), max(map(len, whole))
        tokens, mask = np.full(shape, self.model.tokenizer.pad_token_id or 0), np.zeros(shape, bool)
        for row, (sequence, prefix) in enumerate(zip(whole, before, strict=True)):
            tokens[row, : len(sequence)], mask[row, len(prefix) : len(sequence)] = sequence, True
        return torch.from_numpy(tokens.astype(np.int64)), torch.from_numpy(mask)


def _later(model: HuggingFaceModel, target: Site) -> Iterator[Site]:
    """Behind each of the blocks after that of the target."""
    found = BLOCK.search(target.path)
    names = [name for name in site_names(model) if name.startswith("blocks.") and name.endswith(LATER)]
    for name in names:
        if found is not None and int(name.split(".")[1]) > int(found[1]):
            yield find_site(model, name)


@dataclass(frozen=True)
class TextDownstream(Downstream):
    """A language model behind a site, on one batch."""

    source: TextSequences
    tokens: Int[Tensor, "s t"]
    mask: Bool[Tensor, "s t"]

    @cached_property
    def _asked(self) -> Bool[Tensor, "s t"]:
        """The tokens that another follows."""
        asked = self.mask.clone()
        asked[:, :-1] &= self.mask[:, 1:]
        asked[:, -1] = False
        return asked

    @cached_property
    def right(self) -> Int[Tensor, "n"]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.tokens.roll(-1, 1)[self._asked]

    def run(self, rows: Float[Tensor, "m b o"] | None) -> Said:
        members = 1 if rows is None else len(rows)
        mask, asked = (where.repeat(members, 1) for where in (self.mask, self._asked))
        kept: list[Tensor] = []
        with ExitStack() as hooks:
            if rows is not None:
                inside = output_normalization(self.source.world).undo(rows.flatten(0, 1))
                hooks.enter_context(replace_at_site(self.source.target, partial(_put, inside, mask)))
            for site in self.source.later:
                hooks.enter_context(_kept(site, kept, mask))
            logits = self.source.model.model(input_ids=self.tokens.repeat(members, 1)).logits
        later = [rows.unflatten(0, (members, -1)) for rows in kept]
        return Said(logits[asked].unflatten(0, (members, -1)), later)

    @torch.no_grad()
    def at_target(self) -> Float[Tensor, "b o"]:
        """What the model has at the target on its own."""
        kept: list[Tensor] = []
        with _kept(self.source.target, kept, self.mask):
            self.source.model.model(input_ids=self.tokens)
        return kept[0]


def _put(rows: Float[Tensor, "n o"], mask: Bool[Tensor, "s t"], activations: Tensor) -> Tensor:
    changed = activations.clone()
    changed[mask] = rows.to(changed.dtype)
    return changed


@contextmanager
def _kept(site: Site, kept: list[Tensor], mask: Bool[Tensor, "s t"]) -> Iterator[None]:
    """Within this context the rows at a site are kept."""

    def keep(activations: Tensor) -> Tensor:
        kept.append(activations[mask])
        return activations

    with replace_at_site(site, keep):
        yield
