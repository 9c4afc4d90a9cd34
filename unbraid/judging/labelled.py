"""Labelled texts: lines of JSON with "text", "label" and "split" (train or test); a few classes, as many of each."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unbraid.axes import Bool, Int
from unbraid.errors import Missing, Refusal
from unbraid.metrics.probing import FEWEST
from unbraid.randomness import stream

CLASSES = 5
"""Of many classes the most frequent are probed, as SAEBench does."""
TEST_SHARE = 0.2
SPLITS = ("train", "test")


@dataclass(frozen=True)
class LabelledTexts:
    """Texts with their classes, and which of them are for training."""

    name: str
    names: tuple[str, ...]
    texts: tuple[str, ...]
    classes: Int[np.ndarray, "b"]
    train: Bool[np.ndarray, "b"]


def read_labelled(path: Path, amount: int) -> LabelledTexts:
    """About so many texts, four of five for training, as many of each of the most frequent classes; drawn by chance."""
    rows = [_checked(line, number, path) for number, line in enumerate(_lines(path), 1) if line.strip()]
    labels = [label for _, label, _ in rows]
    names = sorted(set(labels), key=lambda label: (-labels.count(label), label))[:CLASSES]
    if len(names) < 2:
        raise Refusal(f"{path} has {len(names)} labels; accepted: texts of at least two")
    shares = {"train": 1 - TEST_SHARE, "test": TEST_SHARE}
    chosen = [
        place
        for name in names
        for split in SPLITS
        for place in _drawn(rows, name, split, round(amount * shares[split] / len(names)))
    ]
    if not any(_is_enough([rows[place] for place in chosen], name) for name in names):
        needed = round(FEWEST * len(names) / TEST_SHARE)
        raise Refusal(
            f"of the {len(names)} classes of {path} none has {FEWEST} training and {FEWEST} test texts among the "
            f"{amount} asked for; accepted: a file that has them, and texts of {needed} or more"
        )
    return LabelledTexts(
        path.stem,
        tuple(names),
        tuple(rows[place][0] for place in chosen),
        np.array([names.index(rows[place][1]) for place in chosen]),
        np.array([rows[place][2] == "train" for place in chosen]),
    )


def _is_enough(chosen: list[tuple[str, str, str]], name: str) -> bool:
    """Whether this class can be probed: on both sides enough texts of its own and of others."""
    found = Counter((label == name, split) for _, label, split in chosen)
    return all(found[own, split] >= FEWEST for own in (True, False) for split in SPLITS)


def _drawn(rows: list[tuple[str, str, str]], name: str, split: str, amount: int) -> list[int]:
    places = [place for place, (_, label, side) in enumerate(rows) if (label, side) == (name, split)]
    return stream(0, "texts", name, split).permutation(places)[:amount].tolist()


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as problem:
        raise Refusal(f"{path} is not UTF-8 ({problem.reason}); accepted: lines of JSON in UTF-8") from None
    except FileNotFoundError as problem:
        raise Missing(f"cannot read {path}: {problem.strerror}", path) from None
    except OSError as problem:
        raise Refusal(f"cannot read {path}: {problem.strerror}") from None


def _checked(line: str, number: int, path: Path) -> tuple[str, str, str]:
    try:
        row = json.loads(line)
        found = row["text"], str(row["label"]), row["split"]
    except (ValueError, KeyError, TypeError, RecursionError):
        found = "", "", ""
    if not isinstance(found[0], str) or not found[0].strip() or found[2] not in SPLITS:
        raise Refusal(
            f'line {number} of {path} is not a labelled text; accepted: a JSON object with "text", "label" and "split" '
            "(train or test)"
        )
    return found
