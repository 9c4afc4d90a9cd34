"""What a folder of shards says of itself: `manifest.json`, and one safetensors file a shard with its checksum."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from unbraid.axes import Tensor
from unbraid.capture.models import Model
from unbraid.config import Record, check
from unbraid.errors import Refusal
from unbraid.files import read_record, write_json

FILE = "manifest.json"
Dtype = Literal["float32", "bfloat16"]
SAMPLED = 1024
"""So many values of every tensor go into the fingerprint of a model."""


class Shard(Record):
    """One file, and what must be found in it."""

    file: str
    tokens: int = Field(ge=1)
    bytes: int = Field(ge=1)
    sha256: str


class Origin(Record):
    """Where activations come from: two captures of one origin have the same bits."""

    model: str
    weights: str
    tokenizer: str
    site: str
    width: int = Field(ge=1)
    dtype: Dtype
    context: int = Field(ge=1)
    batch: int = Field(ge=1)
    text: str
    text_sha256: str
    tokens: int = Field(ge=1)
    shard_tokens: int = Field(ge=1)
    factors: dict[str, Annotated[tuple[str, ...], Field(strict=False)]] = Field(default={})
    """What is known of every row beside its token, and what its values are called; nothing of a text of no one's
    making."""


class Manifest(Record):
    format: Literal[1] = 1
    origin: Origin
    shards: tuple[Shard, ...] = Field(default=(), strict=False)

    @property
    def tokens(self) -> int:
        return sum(shard.tokens for shard in self.shards)

    @property
    def is_finished(self) -> bool:
        return self.tokens == self.origin.tokens

    @property
    def checksum(self) -> str:
        """One checksum for all shards."""
        return hashlib.sha256("".join(shard.sha256 for shard in self.shards).encode()).hexdigest()[:16]

    def write(self, folder: Path) -> None:
        write_json(folder / FILE, self.model_dump(mode="json"))


def read_manifest(folder: Path) -> Manifest:
    if not (folder / FILE).is_file():
        found = "is not a folder of shards" if folder.is_dir() else "there is no such folder"
        raise Refusal(f"{folder}: {found} (no {FILE}); accepted: what `unbraid capture` has written")
    return check(Manifest, read_record(folder / FILE, "format", "origin", "shards"), str(folder / FILE))


def refuse_another(found: Origin, asked: Origin, folder: Path) -> None:
    """Say what differs, where a folder holds something else than what is asked for."""
    for name in ("model", "weights", "site", "width", *Origin.model_fields):
        was, wanted = getattr(found, name), getattr(asked, name)
        if was != wanted and not _is_only_a_name(name, found, asked):
            raise Refusal(
                f"{folder} holds activations with {name} {was!r:.60}, and {wanted!r:.60} was asked for; accepted: the "
                "same capture to go on with, or another --out"
            )


def _is_only_a_name(name: str, found: Origin, asked: Origin) -> bool:
    """Another spelling of where the same model or the same text is."""
    proof = {"model": "weights", "text": "text_sha256"}.get(name)
    return proof is not None and getattr(found, proof) == getattr(asked, proof)


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """A checksum of names, shapes and evenly spaced values of every tensor."""
    whole = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        flat = tensor.detach().reshape(-1)
        some = flat[:: max(1, len(flat) // SAMPLED)][:SAMPLED]
        whole.update(json.dumps([name, list(tensor.shape)]).encode())
        whole.update(np.ascontiguousarray(some.float().numpy()).tobytes())
    return whole.hexdigest()


def tokenizer_fingerprint(model: Model) -> str:
    vocabulary = model.tokenizer.get_vocab()
    in_order = sorted(vocabulary, key=vocabulary.__getitem__)
    return hashlib.sha256("\0".join(in_order).encode()).hexdigest()
