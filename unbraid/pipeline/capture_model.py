"""Run a trained model over stories and store the activations at a site as shards, with the factors of every token.

    activations (t d) · tokens, positions, documents (t) · factor.NAME (t), -1 where it has no value

A shard holds whole stories and is written at once, so a capture that was stopped goes on where it was. Where a site has
a vector for each head, they are concatenated.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import ClassVar

import torch
from pydantic import Field

from unbraid.activations.normalization import RENAMED_NORMALIZE, Normalize
from unbraid.activations.shards import (
    MANIFEST,
    Manifest,
    Origin,
    Shards,
    begin_manifest,
    weights_fingerprint,
    write_missing,
)
from unbraid.axes import Float, Tensor
from unbraid.config import Config, suggest
from unbraid.errors import UserError
from unbraid.models import ModelConfig, Models, start_models
from unbraid.models.models import token_rows
from unbraid.storage.files import Damaged
from unbraid.worlds.stories import Stories, StoryBatch

SPLIT = "capture"
BATCH = 64
SHARD_STORIES = 1024
"""Stories in a shard: of 100 tokens and 256 dimensions about 100 MB."""


class ActivationsConfig(Config):
    """Which activations of the trained model the dictionaries are trained on.

    The stories are ones that the model was not trained on. Dictionaries are scored on 8 % of them, held out.
    """

    site: str = "blocks.0.hook_resid_post"
    """Where in the model: one of its hooks that has one vector a token."""
    stories: int = Field(default=3000, ge=50, le=10**9)
    """Stories that the model reads; more give more training data, and take more disk and time."""
    normalize: Normalize = "center_and_scale"
    """What is done to activations before a dictionary sees them; `scale` makes their mean length √d."""

    renamed: ClassVar[dict[str, str]] = {"seed": "model.seed", "normalise": "normalize"}
    renamed_values: ClassVar[dict[str, dict[str, str]]] = {"normalize": RENAMED_NORMALIZE}


def check_site(config: ActivationsConfig, model: ModelConfig) -> None:
    if config.site not in model.sites():
        raise UserError(
            f"activations.site is '{config.site:.60}', which the model has not; {suggest(config.site, model.sites())}"
        )


@torch.no_grad()
def capture_model(
    model: Models,
    world: Stories,
    config: ActivationsConfig,
    folder: Path,
    say: Callable[[str], None] = print,
) -> Shards:
    """Make the shards of a single model that are not in the folder yet; says what of it is damaged."""
    starts = range(0, config.stories, SHARD_STORIES)

    def run_stories(number: int, _: Manifest) -> dict[str, Tensor]:
        batches = [_tensors(model, config.site, *batch) for batch in _batches(world, starts[number], config.stories)]
        return {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}

    return write_missing(folder, _begin(folder, _origin(model, world, config), say), len(starts), run_stories)


@cache
def site_width(model: ModelConfig, world: Stories, site: str) -> int:
    """How many numbers a token has at a site of such a model."""
    return _width(start_models(model, len(world.vocabulary), world.length, len(world.answers), [0]), world, site)


def _activations(model: Models, site: str, batch: StoryBatch) -> Float[Tensor, "n d"]:
    """The rows at a site, one a token that is not padding."""
    return token_rows(model.forward(batch.tokens, [site]).recorded[site])[0][batch.mask]


def _batches(world: Stories, start: int, stories: int) -> Iterator[tuple[int, StoryBatch]]:
    """The stories of a shard, a batch at a time, each with the number of its first story."""
    for first in range(start, min(start + SHARD_STORIES, stories), BATCH):
        batch = world.batch(first // BATCH, BATCH, split=SPLIT)
        yield first, batch.first(stories - first)


def _tensors(model: Models, site: str, first: int, batch: StoryBatch) -> dict[str, Tensor]:
    stories, positions = batch.mask.nonzero(as_tuple=True)
    columns = {"tokens": batch.tokens[batch.mask], "positions": positions, "documents": stories + first}
    columns |= {f"factor.{name}": values[batch.mask] for name, values in batch.factors.items()}
    return {
        "activations": _activations(model, site, batch).float().contiguous(),
        **{name: column.to(torch.int32) for name, column in columns.items()},
    }


def _origin(model: Models, world: Stories, config: ActivationsConfig) -> Origin:
    """Two captures of one origin have the same bits."""
    starts = range(0, config.stories, SHARD_STORIES)
    batches = (batch for start in starts for _, batch in _batches(world, start, config.stories))
    return Origin(
        model=model.settings.to_dict()["kind"],
        weights=weights_fingerprint(model.weights),
        tokenizer=hashlib.sha256("\0".join(world.vocabulary).encode()).hexdigest(),
        site=config.site,
        width=_width(model, world, config.site),
        dtype="float32",
        context=world.length,
        batch=BATCH,
        text=f"stories: {world.task}",
        text_sha256=hashlib.sha256(json.dumps(world.to_dict(), sort_keys=True).encode()).hexdigest(),
        tokens=sum(int(batch.mask.sum()) for batch in batches),
        shard_tokens=SHARD_STORIES * world.length,
        factors=dict(world.factors),
    )


@torch.no_grad()
def _width(model: Models, world: Stories, site: str) -> int:
    _, first_story = next(_batches(world, 0, 1))
    return _activations(model, site, first_story).shape[-1]


def _begin(folder: Path, origin: Origin, say: Callable[[str], None]) -> Manifest:
    try:
        return begin_manifest(folder, origin, say)
    except Damaged:
        say(f"{folder / MANIFEST} is damaged; all of it is captured again")
        (folder / MANIFEST).unlink()
        return begin_manifest(folder, origin, say)
