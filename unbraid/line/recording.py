"""Run a taught model over stories and keep what is at a site as shards, with the factors behind every token.

    activations (t d) · tokens, positions, documents (t) · factor.NAME (t), -1 where it has no value

A shard holds whole stories and is written as one act, so that a recording that was stopped goes on where it was. What
heads have each is laid side by side.
"""

import hashlib
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import torch

from unbraid.axes import Float, Tensor
from unbraid.capture.manifest import FILE, Manifest, Origin, fingerprint, read_manifest, refuse_another
from unbraid.capture.shards import Shards, write_shard
from unbraid.line.settings import Capture
from unbraid.models import Models, Shape, start_models
from unbraid.worlds.stories import Stories, StoryBatch

SPLIT = "capture"
BATCH = 64
SHARD_STORIES = 1024
"""So many stories a shard: of 100 tokens and 256 dimensions about 100 MB."""


@torch.no_grad()
def record(model: Models, world: Stories, capture: Capture, folder: Path) -> Shards:
    """Make the shards of a single model that are not in the folder yet."""
    starts = range(0, capture.stories, SHARD_STORIES)
    manifest = _begun(folder, _origin(model, world, capture))
    for number, start in enumerate(starts):
        if number >= len(manifest.shards):
            parts = [_rows(model, capture.site, *part) for part in _told(world, start, capture.stories)]
            shard = write_shard(folder, number, {name: torch.cat([part[name] for part in parts]) for name in parts[0]})
            manifest = manifest.model_copy(update={"shards": (*manifest.shards, shard)})
            manifest.write(folder)
    return Shards.open(folder)


def is_recorded(folder: Path) -> bool:
    return (folder / FILE).is_file() and read_manifest(folder).is_finished


def at_site(model: Models, site: str, batch: StoryBatch) -> Float[Tensor, "n d"]:
    """The rows at a site, one a token that is not padding."""
    found = model.forward(batch.tokens, [site]).recorded[site][0]
    if found.dim() == 4:  # b h t e: a part for every head
        found = found.transpose(1, 2).flatten(2)
    return found[batch.mask]


def _told(world: Stories, start: int, stories: int) -> Iterator[tuple[int, StoryBatch]]:
    """The stories of a shard, some at a time, each part with the number of its first."""
    for first in range(start, min(start + SHARD_STORIES, stories), BATCH):
        batch = world.batch(first // BATCH, BATCH, split=SPLIT)
        yield first, batch.first(stories - first)


def _rows(model: Models, site: str, first: int, batch: StoryBatch) -> dict[str, Tensor]:
    stories, positions = batch.mask.nonzero(as_tuple=True)
    columns = {"tokens": batch.tokens[batch.mask], "positions": positions, "documents": stories + first}
    columns |= {f"factor.{name}": values[batch.mask] for name, values in batch.factors.items()}
    return {
        "activations": at_site(model, site, batch).float().contiguous(),
        **{name: column.to(torch.int32) for name, column in columns.items()},
    }


def _origin(model: Models, world: Stories, capture: Capture) -> Origin:
    """Two recordings of one origin have the same bits."""
    shards = range(0, capture.stories, SHARD_STORIES)
    told = (batch for start in shards for _, batch in _told(world, start, capture.stories))
    return Origin(
        model=model.settings.tree()["kind"],
        weights=fingerprint(model.weights),
        tokenizer=hashlib.sha256("\0".join(world.vocabulary).encode()).hexdigest(),
        site=capture.site,
        width=_width(model, world, capture.site),
        dtype="float32",
        context=world.length,
        batch=BATCH,
        text=f"stories: {world.task}",
        text_sha256=hashlib.sha256(json.dumps(world.tree(), sort_keys=True).encode()).hexdigest(),
        tokens=sum(int(batch.mask.sum()) for batch in told),
        shard_tokens=SHARD_STORIES * world.length,
        factors=dict(world.factors),
    )


@cache
def width_of(settings: Shape, world: Stories, site: str) -> int:
    """How many numbers a token has at a site of such a model."""
    return _width(start_models(settings, len(world.vocabulary), world.length, len(world.answers), [0]), world, site)


@torch.no_grad()
def _width(model: Models, world: Stories, site: str) -> int:
    _, few = next(_told(world, 0, 1))
    return at_site(model, site, few).shape[-1]


def _begun(folder: Path, origin: Origin) -> Manifest:
    """What the folder holds of this recording already."""
    if not (folder / FILE).is_file():
        manifest = Manifest(origin=origin)
        manifest.write(folder)
        return manifest
    manifest = read_manifest(folder)
    refuse_another(manifest.origin, origin, folder)
    return manifest
