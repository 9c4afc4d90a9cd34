"""Rows of activations on disk, read where they lie: nothing is loaded but the rows that are asked for.

    00000.safetensors   activations (t d), float32 or bfloat16 · tokens, positions, documents (t), int32

A row is a token: which one, its place in the window the model saw, and its document. A shard's checksum is looked at
when it is first read; its size when the folder is opened.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save

from unbraid.axes import Float, Int, Tensor
from unbraid.capture.manifest import Manifest, Shard, read_manifest
from unbraid.errors import Refusal
from unbraid.files import write_bytes

Rows = Int[np.ndarray, "b"]
STORED = {"F32": np.dtype(np.float32), "BF16": np.dtype(np.int16), "I32": np.dtype(np.int32)}
"""How what safetensors names lies in memory; numpy has no bfloat16."""
BLOCK = 1 << 24


def write_shard(folder: Path, number: int, tensors: dict[str, Tensor]) -> Shard:
    content = save(tensors)
    name = f"{number:05d}.safetensors"
    write_bytes(folder / name, content)
    amount, checksum = len(tensors["activations"]), hashlib.sha256(content).hexdigest()
    return Shard(file=name, tokens=amount, bytes=len(content), sha256=checksum)


@dataclass(frozen=True)
class Shards:
    """A folder of shards, open for reading."""

    folder: Path
    manifest: Manifest
    _opened: dict[int, dict[str, np.ndarray]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def open(cls, folder: str | Path) -> "Shards":
        """Refuses a folder whose capture is not finished or whose files are not those it names."""
        folder = Path(folder)
        manifest = read_manifest(folder)
        if not manifest.is_finished:
            done = f"{manifest.tokens:,} of {manifest.origin.tokens:,} tokens"
            raise Refusal(f"{folder} holds {done}; accepted: a finished capture (give the same command to go on)")
        for shard in manifest.shards:
            path = folder / shard.file
            if not path.is_file() or path.stat().st_size != shard.bytes:
                raise _damaged(path)
        return cls(folder, manifest)

    def __len__(self) -> int:
        return self.manifest.tokens

    @property
    def width(self) -> int:
        return self.manifest.origin.width

    @cached_property
    def starts(self) -> Int[np.ndarray, "n"]:
        """The number of the first row of every shard, and at the end how many rows there are."""
        return np.concatenate([[0], np.cumsum([shard.tokens for shard in self.manifest.shards])])

    def activations(self, rows: Rows) -> Float[Tensor, "b d"]:
        """These rows, as float32."""
        found = torch.empty(len(rows), self.width)
        for number, places in self._places(rows):
            array = self.shard(number)["activations"][rows[places] - self.starts[number]]
            part = torch.from_numpy(array)
            found[torch.from_numpy(places)] = part.view(torch.bfloat16).float() if part.dtype == torch.int16 else part
        return found

    def column(self, name: str, rows: Rows) -> Int[np.ndarray, "b"]:
        """The tokens, positions or documents of these rows."""
        found = np.empty(len(rows), np.int32)
        for number, places in self._places(rows):
            found[places] = self.shard(number)[name][rows[places] - self.starts[number]]
        return found

    def shard(self, number: int) -> dict[str, np.ndarray]:
        """One shard's arrays, mapped into memory; its checksum is looked at the first time."""
        if number not in self._opened:
            shard = self.manifest.shards[number]
            refuse_damaged(self.folder, shard)
            self._opened[number] = _mapped(self.folder / shard.file)
        return self._opened[number]

    def _places(self, rows: Rows) -> Sequence[tuple[int, np.ndarray]]:
        """For every shard that holds any of these rows, where in the list they are."""
        numbers = np.searchsorted(self.starts, rows, side="right") - 1
        return [(int(number), np.flatnonzero(numbers == number)) for number in np.unique(numbers)]


def refuse_damaged(folder: Path, shard: Shard) -> None:
    """Look at the checksum of a shard."""
    whole = hashlib.sha256()
    try:
        with (folder / shard.file).open("rb") as file:
            while block := file.read(BLOCK):
                whole.update(block)
    except OSError as problem:
        raise Refusal(f"cannot read {folder / shard.file}: {problem.strerror}") from None
    if whole.hexdigest() != shard.sha256:
        raise _damaged(folder / shard.file)


def _damaged(path: Path) -> Refusal:
    return Refusal(
        f"{path} is damaged or not the shard of this capture (its checksum does not match); accepted: the file as it "
        "was written (remove it and give the same `unbraid capture` command again to make it anew)"
    )


def _mapped(path: Path) -> dict[str, np.ndarray]:
    """A safetensors file is the length of its header (8 bytes), the header (JSON), and the arrays it places."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    return {
        name: np.memmap(path, STORED[card["dtype"]], "c", 8 + length + card["data_offsets"][0], tuple(card["shape"]))
        for name, card in header.items()
        if name != "__metadata__"
    }
