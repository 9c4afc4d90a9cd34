"""Read labelled texts for sparse probing: lines of JSON, a Hugging Face dataset, or one of SAEBench's eight sets.

*.jsonl    lines with "text", "label" and "split" (train or test)
a dataset  a column of texts and one of labels; without a split `test` or `validation`, one row in five is for the test
SAEBench   the dataset that is behind the name it has there, with its columns and its classes

Of the most frequent classes, or of SAEBench's, as many texts of each are drawn.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from unbraid.activations.dataset import check_column, check_text, open_tables
from unbraid.axes import Bool, Int
from unbraid.config import is_encodable
from unbraid.errors import Missing, UserError
from unbraid.metrics.probing import FEWEST_TEXTS
from unbraid.randomness import stream

if TYPE_CHECKING:
    from datasets import Dataset

CLASSES = 5
"""Of many classes the most frequent are probed, as SAEBench does."""
TEST_SHARE = 0.2
SPLITS = ("train", "test")
TEST_SPLITS = ("test", "validation")
"""What the split of a dataset that holds test texts may be called."""
FILES = (".jsonl", ".json", ".txt")


@dataclass(frozen=True)
class ProbingSet:
    """How SAEBench reads a dataset: what it is called, its columns and its classes."""

    dataset: str
    text: str
    label: str
    classes: tuple[str, ...]
    balanced_by: str | None = None
    """A column; as many texts of each of its values are drawn."""
    skip: int = 0
    """So many letters at the beginning of a text are left out: of code, the licence."""
    longer_than: int = 0
    """Texts of no more letters are left out."""
    subsets: Mapping[str, str] = field(default_factory=dict)
    """The subset of the dataset that each class is, where texts have no label but a subset of their own."""


_BIOS = partial(ProbingSet, "LabHC/bias_in_bios", "hard_text", "profession", balanced_by="gender")
_AMAZON = "canrager/amazon_reviews_mcauley_1and5"
SAEBENCH = {
    "LabHC/bias_in_bios_class_set1": _BIOS(classes=("0", "1", "2", "6", "9")),
    "LabHC/bias_in_bios_class_set2": _BIOS(classes=("11", "13", "14", "18", "19")),
    "LabHC/bias_in_bios_class_set3": _BIOS(classes=("20", "21", "22", "25", "26")),
    _AMAZON: ProbingSet(_AMAZON, "text", "category", ("1", "2", "3", "5", "6"), balanced_by="rating"),
    f"{_AMAZON}_sentiment": ProbingSet(_AMAZON, "text", "rating", ("1.0", "5.0")),
    "codeparrot/github-code": ProbingSet(
        "codeparrot/github-code", "code", "language", ("C", "Python", "HTML", "Java", "PHP"), skip=150, longer_than=534
    ),
    "fancyzhx/ag_news": ProbingSet("fancyzhx/ag_news", "text", "label", ("0", "1", "2", "3")),
    "Helsinki-NLP/europarl": ProbingSet(
        "Helsinki-NLP/europarl",
        "translation",
        "",
        ("en", "fr", "de", "es", "nl"),
        subsets={"en": "en-fr", "fr": "fr-it", "de": "de-en", "es": "es-fr", "nl": "nl-pt"},
    ),
}
"""The eight data sets of SAEBench's sparse probing, by the names that it has for them (version 0.6)."""


@dataclass(frozen=True)
class LabelColumns:
    """The columns of a dataset of labelled texts."""

    text: str = "text"
    label: str = "label"


@dataclass(frozen=True)
class LabelledTexts:
    """Texts with their classes, and which of them are for training."""

    name: str
    names: tuple[str, ...]
    texts: tuple[str, ...]
    classes: Int[np.ndarray, "b"]
    train: Bool[np.ndarray, "b"]


@dataclass(frozen=True)
class _Labelled:
    """The labels of all texts, their splits, and what they are balanced by; the texts are read when they are drawn."""

    labels: Sequence[str]
    splits: Sequence[str]
    texts: Callable[[Sequence[int]], list[str]]
    groups: list[str] | None = None
    classes: tuple[str, ...] = ()
    """The classes to probe; empty: the most frequent."""


def read_labelled(path: Path, n_texts: int, columns: LabelColumns | None = None) -> LabelledTexts:
    """About `n_texts` random texts, four of five for training, as many of each of the most frequent classes."""
    data = _open(path, columns or LabelColumns())
    counts = Counter(data.labels)
    names = [name for name in data.classes if name in counts]
    names = names or sorted(counts, key=lambda label: (-counts[label], label))[:CLASSES]
    if len(names) < 2:
        raise UserError(f"{path} has {len(names)} labels; accepted: texts of at least two")
    shares = {"train": 1 - TEST_SHARE, "test": TEST_SHARE}
    chosen = [
        index
        for name in names
        for split in SPLITS
        for index in _draw(data, name, split, round(n_texts * shares[split] / len(names)))
    ]
    if not can_probe([(data.labels[index], data.splits[index]) for index in chosen], names):
        needed = round(FEWEST_TEXTS * len(names) / TEST_SHARE)
        raise UserError(
            f"of the {len(names)} classes of {path} none has {FEWEST_TEXTS} training and {FEWEST_TEXTS} test texts "
            f"among the {n_texts} asked for; accepted: a file that has them, and texts of {needed} or more"
        )
    return LabelledTexts(
        path.stem,
        tuple(names),
        tuple(data.texts(chosen)),
        np.array([names.index(data.labels[index]) for index in chosen]),
        np.array([data.splits[index] == "train" for index in chosen]),
    )


def is_file(path: Path) -> bool:
    """Whether labels are lines of JSON, and no dataset."""
    return path.is_file() or path.suffix in FILES


def can_probe(chosen: Sequence[tuple[str, str]], names: Sequence[str]) -> bool:
    """Whether any class can be probed: both splits have enough texts of it and of others."""

    def is_enough(name: str) -> bool:
        counts = Counter((label == name, split) for label, split in chosen)
        return all(counts[of_class, split] >= FEWEST_TEXTS for of_class in (True, False) for split in SPLITS)

    return any(is_enough(name) for name in names)


def _draw(data: _Labelled, name: str, split: str, n_texts: int) -> list[int]:
    """Random texts of a class and a split; where they are balanced, as many of each group as the smallest has."""
    pairs = zip(data.labels, data.splits, strict=True)
    indices = [index for index, (label, side) in enumerate(pairs) if (label, side) == (name, split)]
    drawn = stream(0, "texts", name, split).permutation(indices).tolist()
    if data.groups is None or not drawn:
        return drawn[:n_texts]
    by_group: dict[str, list[int]] = {}
    for index in drawn:
        by_group.setdefault(data.groups[index], []).append(index)
    each = min(n_texts // len(by_group), *map(len, by_group.values()), n_texts)
    return [index for indices in by_group.values() for index in indices[:each]]


def _open(path: Path, columns: LabelColumns) -> _Labelled:
    if is_file(path):
        rows = [_parse(line, number, path) for number, line in enumerate(_lines(path), 1) if line.strip()]
        labels, splits = ([row[column] for row in rows] for column in (1, 2))
        return _Labelled(labels, splits, lambda chosen: [rows[index][0] for index in chosen])
    for name, known in SAEBENCH.items():
        if path.as_posix() == name or path.as_posix().endswith(f"/{name}"):
            where = path.as_posix().removesuffix(name) + known.dataset
            return _languages(where, known) if known.subsets else _columns(where, known)
    return _columns(str(path), ProbingSet(str(path), columns.text, columns.label, ()))


def _columns(path: str, known: ProbingSet) -> _Labelled:
    """A dataset with a column of texts and one of labels."""
    from datasets import concatenate_datasets

    splits = open_tables(path)
    test = next((name for name in TEST_SPLITS if name in splits), None)
    parts = [splits.get("train", next(iter(splits.values()))), *([splits[test]] if test else [])]
    columns = list(dict.fromkeys(filter(None, (known.text, known.label, known.balanced_by))))
    for part in parts:
        for column in columns:
            check_column(part, column, path)
    if known.longer_than:
        parts = [
            part.filter(lambda row: len(row[known.text]) > known.longer_than, keep_in_memory=True) for part in parts
        ]
    rows = concatenate_datasets([part.select_columns(columns) for part in parts])
    labels = _names(rows, known)
    sides = ["train"] * len(parts[0]) + ["test"] * (len(rows) - len(parts[0])) if test else _one_in_five(len(rows))

    def texts(chosen: Sequence[int]) -> list[str]:
        drawn = rows.select(chosen)[known.text]
        return [check_text(text, known.text, path)[known.skip :] for text in drawn]

    groups = [str(value) for value in rows[known.balanced_by]] if known.balanced_by else None
    return _Labelled(labels, sides, texts, groups, known.classes)


def _one_in_five(n: int) -> list[str]:
    """Splits for texts that have none."""
    return np.where(stream(0, "test rows").random(n) < TEST_SHARE, "test", "train").tolist()


def _names(rows: "Dataset", known: ProbingSet) -> list[str]:
    """The labels as words: of a class label its names, but numbers where SAEBench names classes by them."""
    names = None if known.classes else getattr(rows.features[known.label], "names", None)
    return [str(value) if names is None else names[value] for value in rows[known.label]]


def _languages(path: str, known: ProbingSet) -> _Labelled:
    """A dataset of translations, with a subset for each class, as far as SAEBench reads them."""
    texts: list[str] = []
    labels: list[str] = []
    for language, subset in known.subsets.items():
        folder = Path(path, subset)
        tables = open_tables(str(folder)) if folder.is_dir() else open_tables(path, subset)
        rows = tables.get("train", next(iter(tables.values())))
        check_column(rows, known.text, path)
        own = [check_text(row.get(language), known.text, path) for row in rows[known.text]]
        texts += own
        labels += [language] * len(own)
    sides = _one_in_five(len(labels))
    return _Labelled(labels, sides, lambda chosen: [texts[index] for index in chosen], None, known.classes)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as problem:
        raise UserError(f"{path} is not UTF-8 ({problem.reason}); accepted: lines of JSON in UTF-8") from None
    except FileNotFoundError as problem:
        raise Missing(f"cannot read {path}: {problem.strerror}", path) from None
    except OSError as problem:
        raise UserError(f"cannot read {path}: {problem.strerror}") from None


def _parse(line: str, number: int, path: Path) -> tuple[str, str, str]:
    try:
        row = json.loads(line)
        text, label, split = row["text"], str(row["label"]), row["split"]
    except (ValueError, KeyError, TypeError, RecursionError):
        text, label, split = "", "", ""
    if not isinstance(text, str) or not text.strip() or split not in SPLITS or not is_encodable(text + label):
        raise UserError(
            f'line {number} of {path} is not a labelled text; accepted: a JSON object with "text", "label" and "split" '
            "(train or test), in Unicode"
        )
    return text, label, split
