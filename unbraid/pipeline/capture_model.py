"""Run a trained model over stories and store its activations at sites as shards, with the factors of every token.

    activations (t d) · tokens, positions, documents (t) · factor.NAME (t), -1 where it has no value

A shard holds whole stories and is written at once, so a capture that was stopped goes on where it was. Where a site has
a vector for each head, they are concatenated. So are several sites, inputs first, then targets: one pass gives all.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from pydantic import Field, model_validator

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
from unbraid.axes import Float, Int, Tensor
from unbraid.config import Config, suggest
from unbraid.errors import UserError
from unbraid.models import ModelConfig, Models, start_models
from unbraid.models.models import token_rows
from unbraid.storage.files import Damaged
from unbraid.worlds.stories import Stories, StoryBatch
from unbraid.worlds.stories.batch import joined

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
    input: str | list[str] | None = None
    """In place of `site`: where dictionaries read. Of several hooks, the vectors are concatenated (crosscoder)."""
    target: str | list[str] | None = None
    """What must be predicted from the input (transcoder), as the `hook_mlp_out` of a layer from its `hook_resid_mid`.
    None: the input itself."""
    stories: int = Field(default=3000, ge=50, le=10**9)
    """Stories that the model reads; more give more training data, and take more disk and time."""
    normalize: Normalize = "center_and_scale"
    """What is done to activations before a dictionary sees them; `scale` makes their mean length √d."""

    renamed: ClassVar[dict[str, str]] = {"seed": "model.seed", "normalise": "normalize"}
    renamed_values: ClassVar[dict[str, dict[str, str]]] = {"normalize": RENAMED_NORMALIZE}

    @model_validator(mode="before")
    @classmethod
    def read_site_from_input(cls, data: Any) -> Any:
        """`site` is the first input, where that is given."""
        given = data.get("input") if isinstance(data, dict) else None
        first = given[0] if isinstance(given, list) and given else given
        if not isinstance(first, str):
            return data
        if data.get("site", first) != first:
            raise ValueError(f"activations has both site '{data['site']}' and input '{first}'; accepted: one of them")
        return {**data, "site": first}

    @model_validator(mode="after")
    def check_sites_differ(self) -> Self:
        if not self.inputs or self.target == []:
            raise ValueError("activations.input or target is an empty list; accepted: a hook, or several")
        if len({*self.inputs}) < len(self.inputs) or len({*self.targets}) < len(self.targets):
            raise ValueError("activations names a hook twice; accepted: each once")
        return self

    @property
    def inputs(self) -> tuple[str, ...]:
        """The hooks where dictionaries read."""
        return _tuple(self.site if self.input is None else self.input)

    @property
    def targets(self) -> tuple[str, ...]:
        """The hooks that are predicted; none where the inputs are."""
        return () if self.target is None else _tuple(self.target)

    @property
    def is_plain(self) -> bool:
        """Whether dictionaries are autoencoders of one site."""
        return not self.targets and len(self.inputs) == 1

    @property
    def description(self) -> str:
        """The sites, as `a + b → c`."""
        return " → ".join(" + ".join(sites) for sites in (self.inputs, self.targets) if sites)


def _tuple(sites: str | list[str]) -> tuple[str, ...]:
    return (sites,) if isinstance(sites, str) else tuple(sites)


def check_site(config: ActivationsConfig, model: ModelConfig) -> None:
    for part, sites in (("site" if config.input is None else "input", config.inputs), ("target", config.targets)):
        for site in sites:
            if site not in model.sites():
                raise UserError(
                    f"activations.{part} is '{site:.60}', which the model has not; {suggest(site, model.sites())}"
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
        sites = (*config.inputs, *config.targets)
        batches = [_tensors(model, sites, *batch) for batch in _batches(world, starts[number], config.stories)]
        return {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}

    return write_missing(folder, _begin(folder, _origin(model, world, config), say), len(starts), run_stories)


@cache
def site_width(model: ModelConfig, world: Stories, site: str) -> int:
    """How many numbers a token has at a site of such a model."""
    return _width(start_models(model, len(world.vocabulary), world.length, len(world.answers), [0]), world, site)


def _activations(model: Models, sites: Sequence[str], batch: StoryBatch) -> Float[Tensor, "n d"]:
    """The rows at these sites, side by side, one a token that is not padding; all of one pass."""
    recorded = model.forward(batch.tokens, list(dict.fromkeys(sites))).recorded
    return torch.cat([token_rows(recorded[site])[0][batch.mask] for site in sites], dim=-1)


def _batches(world: Stories, start: int, stories: int) -> Iterator[tuple[int, StoryBatch]]:
    """The stories of a shard, a batch at a time, each with the number of its first story."""
    for first in range(start, min(start + SHARD_STORIES, stories), BATCH):
        batch = world.batch(first // BATCH, BATCH, split=SPLIT)
        yield first, batch.first(stories - first)


def captured_stories(world: Stories, numbers: Int[np.ndarray, "n"]) -> StoryBatch:
    """Stories that were captured, by their numbers, which are the documents of the shards."""
    parts: list[StoryBatch] = []
    places: list[np.ndarray] = []
    for position in np.unique(numbers // BATCH).tolist():
        own = np.flatnonzero(numbers // BATCH == position)
        batch = world.batch(position, BATCH, split=SPLIT)
        parts.append(batch.select(torch.from_numpy(numbers[own] % BATCH)))
        places.append(own)
    return joined(parts).select(torch.from_numpy(np.argsort(np.concatenate(places))))


def _tensors(model: Models, sites: Sequence[str], first: int, batch: StoryBatch) -> dict[str, Tensor]:
    stories, positions = batch.mask.nonzero(as_tuple=True)
    columns = {"tokens": batch.tokens[batch.mask], "positions": positions, "documents": stories + first}
    columns |= {f"factor.{name}": values[batch.mask] for name, values in batch.factors.items()}
    return {
        "activations": _activations(model, sites, batch).float().contiguous(),
        **{name: column.to(torch.int32) for name, column in columns.items()},
    }


def _origin(model: Models, world: Stories, config: ActivationsConfig) -> Origin:
    """Two captures of one origin have the same bits."""
    starts = range(0, config.stories, SHARD_STORIES)
    batches = (batch for start in starts for _, batch in _batches(world, start, config.stories))
    widths = [tuple(_width(model, world, site) for site in sites) for sites in (config.inputs, config.targets)]
    return Origin(
        model=model.settings.to_dict()["kind"],
        weights=weights_fingerprint(model.weights),
        tokenizer=hashlib.sha256("\0".join(world.vocabulary).encode()).hexdigest(),
        site=config.description,
        width=sum(map(sum, widths)),
        inputs=widths[0] if len(widths[0]) > 1 else (),
        targets=widths[1],
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
    return _activations(model, [site], first_story).shape[-1]


def _begin(folder: Path, origin: Origin, say: Callable[[str], None]) -> Manifest:
    try:
        return begin_manifest(folder, origin, say)
    except Damaged:
        say(f"{folder / MANIFEST} is damaged; all of it is captured again")
        (folder / MANIFEST).unlink()
        return begin_manifest(folder, origin, say)
