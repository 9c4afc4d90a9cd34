"""Read documents from a text, and cut them into windows that a model takes at once.

*.jsonl    one document a line, its "text"
a folder   its *.txt and *.jsonl, in the order of their names
a dataset  of Hugging Face: a row a document, one of its columns
else       text in UTF-8; a blank line ends a document

A document longer than the context becomes several windows, each with the special tokens the tokenizer puts around a
text. The model sees special and padding tokens; their activations are never kept.
"""

import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from unbraid.activations.dataset import is_saved, open_split, read_column
from unbraid.activations.huggingface import HuggingFaceModel
from unbraid.axes import Bool, Int, Tensor
from unbraid.config import is_encodable
from unbraid.errors import Missing, UserError

SUFFIXES = (".txt", ".jsonl")
BLOCK_BYTES = 1 << 20
TOKENIZER_BATCH = 64
"""Documents that are tokenized at a time."""
MAX_CONTEXT = 1024
"""The longest window in tokens, where a model could take more and no context was asked for."""


@dataclass(frozen=True)
class TextSource:
    """Where documents come from: a text, or a column of a Hugging Face dataset.

    It is a dataset if the folder was written by `save_to_disk`, or anything is said that only a dataset has.
    """

    path: str
    column: str | None = None
    """None: `text`."""
    split: str | None = None
    """None: the only one."""
    subset: str | None = None
    streaming: bool = False

    @property
    def is_dataset(self) -> bool:
        asked = any(part is not None for part in (self.column, self.split, self.subset)) or self.streaming
        return asked or is_saved(Path(self.path))

    @property
    def name(self) -> str:
        """The path, and what of a dataset was asked for."""
        return " · ".join(
            [str(Path(self.path)), *(part for part in (self.subset, self.split, self.column) if part is not None)]
        )

    def documents(self) -> Iterator[str]:
        """Every document that is not empty; raises for a text without any."""
        if not self.is_dataset:
            yield from read_documents(Path(self.path))
            return
        empty = True
        rows = open_split(self.path, self.split, self.subset, self.streaming)
        for document in read_column(rows, self.column or "text", self.path):
            if document.strip():
                empty = False
                yield document
        if empty:
            raise UserError(f"{self.name} is empty; accepted: a text with at least one word")

    def fingerprint(self) -> str:
        """The checksum of all that is read."""
        if not self.is_dataset:
            return text_fingerprint(Path(self.path))
        digest = hashlib.sha256()
        for document in self.documents():
            digest.update(document.encode() + b"\0")
        return digest.hexdigest()

    def check_exists(self) -> None:
        """Raise where a text is not on this machine; a dataset may be in the hub's cache."""
        if not self.is_dataset and not Path(self.path).exists():
            raise Missing(f"{self.path}: there is no such text to evaluate on", self.path)


def read_documents(path: Path) -> Iterator[str]:
    """Every document that is not empty; raises for a text without any.

    Parameters
    ----------
    path
        A text file (documents end at blank lines), a .jsonl file, or a folder of them.

    Returns
    -------
    An iterator over the documents, in order.

    Example
    -------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "text.txt")
    ...     _ = path.write_text("One paragraph.\\n\\nAnother.")
    ...     list(read_documents(path))
    ['One paragraph.', 'Another.']
    """
    empty = True
    for file in _files(path):
        for document in _json_documents(file) if file.suffix == ".jsonl" else _paragraphs(file):
            empty = False
            yield document
    if empty:
        raise UserError(f"{path} is empty; accepted: a text with at least one word")


def text_fingerprint(path: Path) -> str:
    """The checksum of every file that is read."""
    digest = hashlib.sha256()
    for file in _files(path):
        with file.open("rb") as opened:
            while block := opened.read(BLOCK_BYTES):
                digest.update(block)
        digest.update(b"\0")
    return digest.hexdigest()


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise Missing(
            f"{path}: there is no such text; accepted: a text file, a .jsonl file, a folder of them, or a dataset of "
            "Hugging Face, with its split",
            path,
        )
    files = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())
    if not files:
        raise UserError(f"{path} holds no text; accepted: a folder with {' or '.join(SUFFIXES)} files")
    return files


def _paragraphs(file: Path) -> Iterator[str]:
    paragraph: list[str] = []
    for _, line in _lines(file):
        if line.strip():
            paragraph.append(line)
        elif paragraph:
            yield "".join(paragraph).strip()
            paragraph = []
    if paragraph:
        yield "".join(paragraph).strip()


def _json_documents(file: Path) -> Iterator[str]:
    for number, line in _lines(file):
        if not line.strip():
            continue
        try:
            text = json.loads(line)["text"]
        except (ValueError, KeyError, TypeError, RecursionError):
            text = None
        if not isinstance(text, str) or not is_encodable(text):
            raise UserError(
                f'line {number} of {file} is not a document; accepted: a JSON object with "text" in Unicode'
            )
        if text.strip():
            yield text


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    try:
        with file.open(encoding="utf-8-sig", newline="\n") as opened:
            yield from enumerate(opened, 1)
    except UnicodeDecodeError as problem:
        raise UserError(f"{file} is not UTF-8 ({problem.reason}); accepted: a text in UTF-8") from None
    except OSError as problem:
        raise UserError(f"cannot read {file}: {problem.strerror}") from None


@dataclass(frozen=True)
class Window:
    """Tokens a model takes at once, which of them are kept, and the number of their document."""

    tokens: Int[np.ndarray, "t"]
    kept: Bool[np.ndarray, "t"]
    document: int

    @property
    def n_kept(self) -> int:
        return int(self.kept.sum())

    def first(self, n_tokens: int) -> "Window":
        """The same window with at most so many tokens kept."""
        return Window(self.tokens, self.kept & (self.kept.cumsum() <= n_tokens), self.document)


def context_length(model: HuggingFaceModel, context: int | None) -> int:
    """The length of windows in tokens: as asked, where the model takes it and it holds more than special tokens."""
    longest = min(model.context, model.tokenizer.model_max_length)
    special = model.tokenizer.num_special_tokens_to_add()
    length = min(longest, MAX_CONTEXT) if context is None else context
    if special < length <= longest:
        return length
    raise UserError(
        f"a context of {length} was asked for and {model.name} takes {longest} tokens at most, {special} of them "
        f"special; accepted: {special + 1} to {longest}"
    )


def cut_windows(
    model: HuggingFaceModel, documents: Iterable[str], context: int, max_tokens: int | None
) -> Iterator[Window]:
    """The windows of all documents, until `max_tokens` tokens are kept."""
    left = max_tokens
    for window in _all_windows(model, documents, context):
        if not window.n_kept:
            continue
        yield window if left is None else window.first(left)
        if left is not None and (left := left - window.n_kept) <= 0:
            return


def windows_fingerprint(windows: Iterable[Window]) -> str:
    """A checksum of the tokens: of a dataset, which may be a stream, that is all that was read."""
    digest = hashlib.sha256()
    for window in windows:
        digest.update(window.tokens.tobytes() + window.kept.tobytes())
    return digest.hexdigest()


def _all_windows(model: HuggingFaceModel, documents: Iterable[str], context: int) -> Iterator[Window]:
    if not model.tokenizer.is_fast:
        raise UserError(f"{model.name} has no fast tokenizer; accepted: a model with a tokenizer.json")
    special = np.array(sorted(special_token_ids(model)), dtype=np.int64)
    for number, batch in enumerate(_batched(documents)):
        encoded = model.tokenizer(batch, truncation=True, max_length=context, return_overflowing_tokens=True)
        for tokens, document in zip(encoded["input_ids"], encoded["overflow_to_sample_mapping"], strict=True):
            ids = np.asarray(tokens, dtype=np.int64)
            yield Window(ids, ~np.isin(ids, special), number * TOKENIZER_BATCH + int(document))


def _batched(documents: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(documents)
    while batch := list(itertools.islice(rest, TOKENIZER_BATCH)):
        yield batch


def special_token_ids(model: HuggingFaceModel) -> set[int]:
    """Beginnings, ends, separators and padding; a word unknown to the tokenizer counts as text."""
    names = model.tokenizer.special_tokens_map
    others = {str(name) for key, name in names.items() if key != "unk_token"}
    unknown = names.get("unk_token")
    special = set(map(int, model.tokenizer.all_special_ids))
    if unknown is None or str(unknown) in others:
        return special
    return special - {int(str(model.tokenizer.unk_token_id))}


def batch_by_length(windows: Sequence[Window], max_tokens: int) -> Iterator[list[int]]:
    """Which windows run together: the longest first, as many as make `max_tokens` tokens with padding."""
    order = sorted(range(len(windows)), key=lambda index: (-len(windows[index].tokens), index))
    while order:
        size = max(1, max_tokens // len(windows[order[0]].tokens))
        yield order[:size]
        order = order[size:]


def pad_windows(
    model: HuggingFaceModel, windows: Sequence[Window]
) -> tuple[Int[Tensor, "b t"], Int[Tensor, "b t"] | None]:
    """Tokens and mask; no mask where none is needed: a causal model never looks at what comes after."""
    longest = max(len(window.tokens) for window in windows)
    padding = model.tokenizer.pad_token_id or 0
    tokens = np.full((len(windows), longest), padding, dtype=np.int64)
    mask = np.zeros((len(windows), longest), dtype=np.int64)
    for row, window in enumerate(windows):
        tokens[row, : len(window.tokens)] = window.tokens
        mask[row, : len(window.tokens)] = 1
    needed = not model.is_causal and not mask.all()
    return torch.from_numpy(tokens), torch.from_numpy(mask) if needed else None
