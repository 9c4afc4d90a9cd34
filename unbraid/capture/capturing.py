"""Run a model over a text and keep what is at a site as shards; what a stopped capture has finished is kept.

A shard is made of whole windows, in the order of the text, and written as one act. So going on is making the shards
that are not there yet, and a capture that was stopped ends with the same files as one that was not.
"""

import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from pydantic import Field

from unbraid.axes import Tensor
from unbraid.capture.manifest import (
    FILE,
    Dtype,
    Manifest,
    Origin,
    fingerprint,
    read_manifest,
    refuse_another,
    tokenizer_fingerprint,
)
from unbraid.capture.models import Model
from unbraid.capture.shards import Shards, write_shard
from unbraid.capture.sites import Site, read
from unbraid.capture.texts import documents
from unbraid.capture.texts import fingerprint as text_fingerprint
from unbraid.capture.windows import Window, by_length, context_of, padded, windows
from unbraid.config import Record
from unbraid.errors import Refusal
from unbraid.progress import Watcher

ROW_BYTES = 12
"""What a row takes beside its activations."""


class Capturing(Record):
    """How many tokens are kept (None: all), in what type, in windows of what length; `batch` tokens run at a time."""

    tokens: int | None = Field(default=None, ge=1)
    dtype: Dtype = "float32"
    context: int | None = Field(default=None, ge=2)
    batch: int = Field(default=4096, ge=1)
    shard_bytes: int = Field(default=64 << 20, ge=1)


def capture(model: Model, site: Site, text: Path, folder: Path, settings: Capturing, watcher: Watcher) -> Shards:
    """Make the shards that are not in the folder yet."""
    watcher.stage(f"tokenising {text}")
    context = context_of(model, settings.context)
    chosen = list(windows(model, documents(text), context, settings.tokens))
    manifest = _begun(folder, _origin(model, site, text, settings, context, chosen), watcher)
    pools = list(_pools(chosen, manifest.origin.shard_tokens))
    _refuse_full_disk(folder, manifest)
    watcher.plan([(manifest.origin.tokens, 1.0)])
    watcher.advance(0, manifest.tokens)
    for number, pool in enumerate(pools):
        if number >= len(manifest.shards):
            rows = _rows(model, site, pool, manifest, watcher)
            shard = write_shard(folder, number, rows)
            manifest = manifest.model_copy(update={"shards": (*manifest.shards, shard)})
            manifest.write(folder)
    return Shards.open(folder)


def _origin(
    model: Model, site: Site, text: Path, settings: Capturing, context: int, chosen: Sequence[Window]
) -> Origin:
    if not chosen:
        raise Refusal(f"{text} holds no tokens but special ones; accepted: a text with at least one word")
    width = read(model, site, torch.from_numpy(chosen[0].tokens[:2])[None]).shape[-1]
    return Origin(
        model=model.name,
        weights=fingerprint(model.model.state_dict()),
        tokenizer=tokenizer_fingerprint(model),
        site=site.name,
        width=width,
        dtype=settings.dtype,
        context=context,
        batch=settings.batch,
        text=str(text),
        text_sha256=text_fingerprint(text),
        tokens=sum(window.amount for window in chosen),
        shard_tokens=max(1, settings.shard_bytes // _row_bytes(settings.dtype, width)),
    )


def _begun(folder: Path, origin: Origin, watcher: Watcher) -> Manifest:
    """What the folder holds of this capture, without shards that are not whole; a new one where it holds nothing."""
    if not (folder / FILE).is_file():
        if folder.is_dir() and any(folder.iterdir()):
            raise Refusal(f"{folder} holds other files; accepted: an empty or new folder, or a capture to go on with")
        manifest = Manifest(origin=origin)
        manifest.write(folder)
        return manifest
    manifest = read_manifest(folder)
    refuse_another(manifest.origin, origin, folder)
    whole = [
        (folder / shard.file).is_file() and (folder / shard.file).stat().st_size == shard.bytes
        for shard in manifest.shards
    ]
    kept = whole.index(False) if False in whole else len(whole)
    if manifest.shards:
        watcher.say(f"{folder} holds {kept} finished shards; going on from there")
    return manifest.model_copy(update={"shards": manifest.shards[:kept]})


def _row_bytes(dtype: Dtype, width: int) -> int:
    return getattr(torch, dtype).itemsize * width + ROW_BYTES


def _refuse_full_disk(folder: Path, manifest: Manifest) -> None:
    origin = manifest.origin
    left = origin.tokens - manifest.tokens
    needed = left * _row_bytes(origin.dtype, origin.width)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise Refusal(
            f"the activations of {left:,} tokens take {needed / 1e9:.2f} GB and {folder} has "
            f"{free / 1e9:.2f} GB free; accepted: fewer --tokens, --dtype bfloat16, or another --out"
        )


def _pools(chosen: Sequence[Window], most: int) -> Iterator[list[Window]]:
    """The windows of every shard: as many as do not exceed its tokens, and at least one."""
    pool: list[Window] = []
    amount = 0
    for window in chosen:
        if pool and amount + window.amount > most:
            yield pool
            pool, amount = [], 0
        pool.append(window)
        amount += window.amount
    yield pool


def _rows(model: Model, site: Site, pool: Sequence[Window], manifest: Manifest, watcher: Watcher) -> dict[str, Tensor]:
    """The tensors of one shard: batches run longest first, and rows go where the text has them."""
    ends = np.cumsum([window.amount for window in pool])
    done, began, before = manifest.tokens, time.monotonic(), manifest.tokens
    kept = torch.empty(int(ends[-1]), manifest.origin.width, dtype=getattr(torch, manifest.origin.dtype))
    for chosen in by_length(pool, manifest.origin.batch):
        found = read(model, site, *padded(model, [pool[index] for index in chosen]))
        for row, index in enumerate(chosen):
            window = pool[index]
            places = torch.from_numpy(np.flatnonzero(window.kept))
            kept[ends[index] - window.amount : ends[index]] = found[row, places].to(kept.dtype)
            done += window.amount
        watcher.advance(0, done)
        speed = (done - before) / max(time.monotonic() - began, 1e-9)
        watcher.note(f"{done:,} of {manifest.origin.tokens:,} tokens  {speed:,.0f} a second")
    columns = {
        "tokens": [window.tokens[window.kept] for window in pool],
        "positions": [np.flatnonzero(window.kept) for window in pool],
        "documents": [np.full(window.amount, window.document) for window in pool],
    }
    named = {name: torch.from_numpy(np.concatenate(parts).astype(np.int32)) for name, parts in columns.items()}
    return {"activations": kept, **named}
