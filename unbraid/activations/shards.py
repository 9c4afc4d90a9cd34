"""Activations on disk: shards, the manifest of a folder of them, and the shuffled order of their rows.

    manifest.json       where the activations come from, the checksum of every shard, and one of itself
    00000.safetensors   activations (t d), float32 or bfloat16 · tokens, positions, documents (t), int32

A row is a token: its id, its position in the window the model saw, and its document. Only the rows that are asked for
are read. A shard's checksum is verified when it is first read; its size when the folder is opened.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field
from safetensors.torch import save

from unbraid.axes import Float, Int, Tensor
from unbraid.config import Config, check
from unbraid.errors import UserError
from unbraid.randomness import stream
from unbraid.storage.files import Damaged, read_sealed, write_bytes, write_sealed

MANIFEST = "manifest.json"
Dtype = Literal["float32", "bfloat16"]
Rows = Int[np.ndarray, "b"]
FINGERPRINT_VALUES = 1024
"""Values of every tensor that go into the fingerprint of a model."""
STORED = {"F32": np.dtype(np.float32), "BF16": np.dtype(np.int16), "I32": np.dtype(np.int32)}
"""The numpy type of each safetensors type; numpy has no bfloat16."""
BLOCK_BYTES = 1 << 24
SPLIT_SHARES = (0.45, 0.53, 0.55)
"""Evaluation is between the first two of these shares of a shard, tracking between the last two."""
MIN_CUTS = 20
"""A shard is cut between documents where it has so many, else between windows, else anywhere."""
FEISTEL_ROUNDS = 4
MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)


Tensors = dict[str, Tensor]
"""What a shard holds, by name, a row a token."""


class Shard(Config):
    """One file of rows."""

    file: str
    """Its name within the folder."""
    tokens: int = Field(ge=1)
    """Rows in it."""
    bytes: int = Field(ge=1)
    """Its size."""
    sha256: str
    """Its checksum."""


class Origin(Config):
    """Where activations come from: two captures of one origin have the same bits."""

    model: str
    """The name or folder the model was loaded from."""
    weights: str
    """Fingerprint of the model's weights."""
    tokenizer: str
    """Checksum of the tokenizer's vocabulary."""
    site: str
    """Where in the model."""
    width: int = Field(ge=1)
    """Numbers in a row."""
    dtype: Dtype
    """The type they are stored in."""
    context: int = Field(ge=1)
    """Longest window, in tokens."""
    batch: int = Field(ge=1)
    """Tokens (of stories: stories) that ran through the model at a time."""
    text: str
    """The name of the text."""
    text_sha256: str
    """Its checksum."""
    tokens: int = Field(ge=1)
    """Rows in all shards of a finished capture."""
    shard_tokens: int = Field(ge=1)
    """The most rows of a shard."""
    factors: dict[str, Annotated[tuple[str, ...], Field(strict=False)]] = Field(default={})
    """Known factors of every row with the names of their values; empty where none are known."""
    inputs: Annotated[tuple[int, ...], Field(strict=False)] = ()
    """Widths of the sites that inputs are concatenated from, where they are several."""
    targets: Annotated[tuple[int, ...], Field(strict=False)] = ()
    """Widths of the sites that targets are concatenated from, the last numbers of a row; empty where inputs are."""
    made_by: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """The sort of device and the precision, where they are not the CPU and float32."""

    @property
    def input_width(self) -> int:
        """Numbers of a row that a dictionary reads."""
        return self.width - sum(self.targets)


class Manifest(Config):
    """What a folder of shards holds."""

    format: Literal[1] = 1
    """Version of this file."""
    origin: Origin
    """Where the activations come from."""
    shards: tuple[Shard, ...] = Field(default=(), strict=False)
    """The shards that are finished, in order."""

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
        write_sealed(folder / MANIFEST, self.model_dump(mode="json"))


def read_manifest(folder: Path) -> Manifest:
    """What the folder holds; one whose manifest is not exactly as it was written is refused."""
    if not (folder / MANIFEST).is_file():
        problem = "is not a folder of shards" if folder.is_dir() else "there is no such folder"
        raise UserError(f"{folder}: {problem} (no {MANIFEST}); accepted: what `unbraid capture` has written")
    try:
        content = read_sealed(folder / MANIFEST, "format", "origin", "shards")
    except Damaged as problem:
        raise Damaged(f"{problem}; put the file back, or remove {folder} and capture again") from None
    return check(Manifest, content, str(folder / MANIFEST))


def check_same_origin(stored: Origin, asked: Origin, folder: Path) -> None:
    """Raise where a folder holds other activations than those asked for, with what differs."""
    for name in ("model", "weights", "site", "width", *Origin.model_fields):
        was, wanted = getattr(stored, name), getattr(asked, name)
        if was != wanted and not _is_only_a_name(name, stored, asked):
            raise UserError(
                f"{folder} holds activations with {name} {was!r:.60}, and {wanted!r:.60} was asked for; accepted: the "
                "same capture to go on with, or another --out"
            )


def _is_only_a_name(name: str, stored: Origin, asked: Origin) -> bool:
    """Another spelling of where the same model or the same text is."""
    proof = {"model": "weights", "text": "text_sha256"}.get(name)
    return proof is not None and getattr(stored, proof) == getattr(asked, proof)


def weights_fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """A checksum of names, shapes and evenly spaced values of every tensor."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        flat = tensor.detach().reshape(-1)
        values = flat[:: max(1, len(flat) // FINGERPRINT_VALUES)][:FINGERPRINT_VALUES]
        digest.update(json.dumps([name, list(tensor.shape)]).encode())
        digest.update(np.ascontiguousarray(values.cpu().float().numpy()).tobytes())
    return digest.hexdigest()


def write_shard(folder: Path, number: int, tensors: Tensors) -> Shard:
    content = save(tensors)
    name = f"{number:05d}.safetensors"
    write_bytes(folder / name, content)
    tokens, checksum = len(tensors["activations"]), hashlib.sha256(content).hexdigest()
    return Shard(file=name, tokens=tokens, bytes=len(content), sha256=checksum)


@dataclass(frozen=True)
class Shards:
    """A folder of shards, open for reading: `Shards.open(folder)`."""

    folder: Path
    manifest: Manifest
    _opened: dict[int, dict[str, np.ndarray]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def open(cls, folder: str | Path) -> "Shards":
        """Raises where the capture is not finished, or a file is missing or has another size."""
        folder = Path(folder)
        manifest = read_manifest(folder)
        if not manifest.is_finished:
            done = f"{manifest.tokens:,} of {manifest.origin.tokens:,} tokens"
            raise UserError(f"{folder} holds {done}; accepted: a finished capture (give the same command to go on)")
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
        activations = torch.empty(len(rows), self.width)
        for number, indices in self._by_shard(rows):
            stored = torch.from_numpy(self.shard(number)["activations"][rows[indices] - self.starts[number]])
            values = stored.view(torch.bfloat16).float() if stored.dtype == torch.int16 else stored
            activations[torch.from_numpy(indices)] = values
        return activations

    def column(self, name: str, rows: Rows) -> Int[np.ndarray, "b"]:
        """The tokens, positions, documents or factor values of these rows."""
        values = np.empty(len(rows), np.int32)
        for number, indices in self._by_shard(rows):
            values[indices] = self.shard(number)[name][rows[indices] - self.starts[number]]
        return values

    def shard(self, number: int) -> dict[str, np.ndarray]:
        """One shard's arrays, mapped into memory; its checksum is verified the first time."""
        if number not in self._opened:
            shard = self.manifest.shards[number]
            check_checksum(self.folder, shard)
            self._opened[number] = _memory_map(self.folder / shard.file)
        return self._opened[number]

    def _by_shard(self, rows: Rows) -> Sequence[tuple[int, np.ndarray]]:
        """For every shard that holds any of these rows, their indices in `rows`."""
        numbers = np.searchsorted(self.starts, rows, side="right") - 1
        return [(int(number), np.flatnonzero(numbers == number)) for number in np.unique(numbers)]


def begin_manifest(folder: Path, origin: Origin, say: Callable[[str], None]) -> Manifest:
    """The manifest in the folder, up to its first shard that is not whole; a new one where there is none."""
    if not (folder / MANIFEST).is_file():
        manifest = Manifest(origin=origin)
        manifest.write(folder)
        return manifest
    manifest = read_manifest(folder)
    check_same_origin(manifest.origin, origin, folder)
    whole = _whole_shards(folder, manifest)
    if len(whole) < len(manifest.shards):
        say(f"{folder / manifest.shards[len(whole)].file} is missing or damaged; it is captured again")
    return manifest.model_copy(update={"shards": whole})


def write_missing(folder: Path, manifest: Manifest, count: int, make: Callable[[int, Manifest], Tensors]) -> Shards:
    """Make the shards up to `count` that are not there yet; the manifest knows each as soon as it is written."""
    for number in range(len(manifest.shards), count):
        shard = write_shard(folder, number, make(number, manifest))
        manifest = manifest.model_copy(update={"shards": (*manifest.shards, shard)})
        manifest.write(folder)
    return Shards.open(folder)


def _whole_shards(folder: Path, manifest: Manifest) -> tuple[Shard, ...]:
    """The shards before the first that is missing or not the file that was written."""
    whole: list[Shard] = []
    for shard in manifest.shards:
        try:
            check_checksum(folder, shard)
        except UserError:
            break
        whole.append(shard)
    return tuple(whole)


def check_checksum(folder: Path, shard: Shard) -> None:
    """Raise where a shard is not the file that was written."""
    digest = hashlib.sha256()
    try:
        with (folder / shard.file).open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                digest.update(block)
    except OSError as problem:
        raise Damaged(f"cannot read {folder / shard.file}: {problem.strerror}") from None
    if digest.hexdigest() != shard.sha256:
        raise _damaged(folder / shard.file)


def _damaged(path: Path) -> Damaged:
    return Damaged(
        f"{path} is damaged or not the shard of this capture (its checksum does not match); accepted: the file as it "
        "was written (remove it and give the same `unbraid capture` command again to make it anew)"
    )


def _memory_map(path: Path) -> dict[str, np.ndarray]:
    """A safetensors file is the length of its header (8 bytes), the header (JSON), and the arrays."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    return {
        name: np.memmap(path, STORED[array["dtype"]], "c", 8 + length + array["data_offsets"][0], tuple(array["shape"]))
        for name, array in header.items()
        if name != "__metadata__"
    }


class Order:
    """The rows of a split in a shuffled order: the same seed, split and position always give the same rows.

    A tenth of every shard, from its middle, is held out, cut where a document begins: most for evaluation, some for
    tracking. The rest is for training. Each epoch goes once through all rows of its split, in another order.
    """

    def __init__(self, shards: Shards, split: str, seed: int) -> None:
        self.shards, self.split, self.seed = shards, split, seed

    def rows(self, position: int, size: int) -> Rows:
        """The rows of batch number `position`."""
        positions = np.arange(position * size, (position + 1) * size, dtype=np.int64)
        numbers = np.empty(size, np.int64)
        for epoch in np.unique(positions // len(self)).tolist():
            in_epoch = positions // len(self) == epoch
            within = positions[in_epoch] % len(self)
            numbers[in_epoch] = permute(within, len(self), self.seed, "order", self.split, epoch)
        return self._row(numbers)

    def in_order(self, amount: int) -> Rows:
        """The first so many rows of the split as they are stored, or all there are."""
        return self._row(np.arange(min(amount, len(self)), dtype=np.int64))

    def __len__(self) -> int:
        return int(self._ends[-1])

    def _row(self, numbers: Int[np.ndarray, "b"]) -> Rows:
        """The rows with these numbers among those of the split."""
        piece = np.searchsorted(self._ends, numbers, side="right")
        return numbers - (self._ends[piece] - self._lengths[piece]) + self._begins[piece]

    @cached_property
    def pieces(self) -> Int[np.ndarray, "n 2"]:
        """The first row of every piece of this split, and the row after its last."""
        pieces: list[tuple[int, int]] = []
        for number, start in enumerate(self.shards.starts[:-1].tolist()):
            low, middle, high = (start + cut for cut in _cuts(self.shards, number))
            held_out = {"evaluation": [(low, middle)], "tracking": [(middle, high)]}
            pieces += held_out.get(self.split, [(start, low), (high, int(self.shards.starts[number + 1]))])
        kept = [piece for piece in pieces if piece[1] > piece[0]]
        if not kept:
            raise UserError(
                f"{self.shards.folder} holds too few tokens for a split '{self.split}'; accepted: 50 or more"
            )
        return np.array(kept)

    @cached_property
    def _begins(self) -> Int[np.ndarray, "n"]:
        return self.pieces[:, 0]

    @cached_property
    def _lengths(self) -> Int[np.ndarray, "n"]:
        return self.pieces[:, 1] - self.pieces[:, 0]

    @cached_property
    def _ends(self) -> Int[np.ndarray, "n"]:
        return np.cumsum(self._lengths)


class Sequences:
    """The whole sequences of a split in a shuffled order, for what must run the model: each is its rows, in order.

    What was cut off at its beginning, or has special tokens inside, is left out.
    """

    def __init__(self, shards: Shards, split: str, seed: int) -> None:
        self.shards, self.split, self.seed = shards, split, seed

    def rows(self, position: int, size: int) -> list[Rows]:
        """Batch number `position` of as many sequences as have about `size` rows; each with a row at least."""
        lengths = self._spans[:, 1] - self._spans[:, 0]
        count = max(1, round(size / float(lengths.mean())))
        places = [self._place(number) for number in range(position * count, (position + 1) * count)]
        return [np.arange(*self._spans[place]) for place in places]

    def _place(self, number: int) -> int:
        """Which sequence comes at this number; each epoch in another order."""
        epoch, within = divmod(number, len(self._spans))
        return int(permute(np.array([within]), len(self._spans), self.seed, "sequences", self.split, epoch)[0])

    @cached_property
    def _spans(self) -> Int[np.ndarray, "n 2"]:
        """The first row of every sequence, and the row after its last."""
        spans, firsts = [], []
        for start, stop in Order(self.shards, self.split, self.seed).pieces.tolist():
            rows = np.arange(start, stop)
            documents, positions = (self.shards.column(name, rows) for name in ("documents", "positions"))
            inner = np.flatnonzero((np.diff(documents) != 0) | (np.diff(positions) != 1)) + 1
            begins = np.concatenate([[0], inner])
            spans.append(start + np.stack([begins, np.append(inner, stop - start)], 1))
            firsts.append(positions[begins])
        first = np.concatenate(firsts)
        return np.concatenate(spans)[first == first.min()]


def _cuts(shards: Shards, number: int) -> Sequence[int]:
    """Where a shard is cut: the boundaries nearest to the shares wanted."""
    arrays = shards.shard(number)
    documents, positions = np.asarray(arrays["documents"]), np.asarray(arrays["positions"])
    tokens = len(documents)
    by_document = np.flatnonzero(documents[1:] != documents[:-1]) + 1
    by_window = np.flatnonzero((documents[1:] != documents[:-1]) | (positions[1:] <= positions[:-1])) + 1
    enough = (boundaries for boundaries in (by_document, by_window) if len(boundaries) >= MIN_CUTS)
    cuts = next(enough, np.arange(tokens + 1))
    return [int(cuts[np.abs(cuts - share * tokens).argmin()]) for share in SPLIT_SHARES]


def permute(positions: Int[np.ndarray, "b"], size: int, seed: int, *names: str | int) -> Int[np.ndarray, "b"]:
    """What stands at these positions of a pseudo-random permutation of 0 … size-1, which is never written out.

    A Feistel network of four rounds permutes the numbers of 2h bits: each round adds a keyed hash of one half to the
    other. What falls outside 0 … size-1 is permuted again until it is inside. Seed and names are the key.
    """
    half = max(1, -(-(size - 1).bit_length() // 2))
    keys = stream(seed, *names).integers(0, 1 << 63, FEISTEL_ROUNDS, dtype=np.uint64)
    permuted = _feistel(positions.astype(np.uint64), keys, half)
    while (outside := permuted >= size).any():
        permuted[outside] = _feistel(permuted[outside], keys, half)
    return permuted.astype(np.int64)


def _feistel(numbers: np.ndarray, keys: np.ndarray, half: int) -> np.ndarray:
    bits, mask = np.uint64(half), np.uint64((1 << half) - 1)
    left, right = numbers >> bits, numbers & mask
    for key in keys:
        left, right = right, left ^ (_hash(right + key) & mask)
    return (left << bits) | right


def _hash(numbers: np.ndarray) -> np.ndarray:
    mixed = (numbers ^ (numbers >> np.uint64(30))) * MIX[1]
    mixed = (mixed ^ (mixed >> np.uint64(27))) * MIX[0]
    return mixed ^ (mixed >> np.uint64(31))
