"""Sparse probing on a model: read labelled texts once, pool every dictionary's codes over each, and train probes.

Labelled texts are lines of JSON with "text", "label" and "split" (train or test). Of the most frequent classes as many
texts of each are drawn.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from scipy import sparse

from unbraid.activations.huggingface import HuggingFaceModel
from unbraid.activations.sites import Site
from unbraid.axes import Bool, Int
from unbraid.config import is_encodable
from unbraid.errors import Missing, UserError
from unbraid.evaluation.language_model.sae import BLOCK, SAE, active_features, first_windows, read_rows, token_batches
from unbraid.metrics import probing
from unbraid.metrics.probing import FEWEST_TEXTS, Accuracies, Labelled, Rows
from unbraid.progress import ReportShare, ignore_share
from unbraid.randomness import stream

CLASSES = 5
"""Of many classes the most frequent are probed, as SAEBench does."""
TEST_SHARE = 0.2
SPLITS = ("train", "test")
BATCH_TOKENS = 8192
"""Tokens that run at a time: no logits are made."""
RAW = "raw"


@dataclass(frozen=True)
class LabelledTexts:
    """Texts with their classes, and which of them are for training."""

    name: str
    names: tuple[str, ...]
    texts: tuple[str, ...]
    classes: Int[np.ndarray, "b"]
    train: Bool[np.ndarray, "b"]


def read_labelled(path: Path, n_texts: int) -> LabelledTexts:
    """About `n_texts` random texts, four of five for training, as many of each of the most frequent classes."""
    rows = [_parse(line, number, path) for number, line in enumerate(_lines(path), 1) if line.strip()]
    counts = Counter(label for _, label, _ in rows)
    names = sorted(counts, key=lambda label: (-counts[label], label))[:CLASSES]
    if len(names) < 2:
        raise UserError(f"{path} has {len(names)} labels; accepted: texts of at least two")
    shares = {"train": 1 - TEST_SHARE, "test": TEST_SHARE}
    chosen = [
        index
        for name in names
        for split in SPLITS
        for index in _draw(rows, name, split, round(n_texts * shares[split] / len(names)))
    ]
    if not any(_is_enough([rows[index] for index in chosen], name) for name in names):
        needed = round(FEWEST_TEXTS * len(names) / TEST_SHARE)
        raise UserError(
            f"of the {len(names)} classes of {path} none has {FEWEST_TEXTS} training and {FEWEST_TEXTS} test texts "
            f"among the {n_texts} asked for; accepted: a file that has them, and texts of {needed} or more"
        )
    return LabelledTexts(
        path.stem,
        tuple(names),
        tuple(rows[index][0] for index in chosen),
        np.array([names.index(rows[index][1]) for index in chosen]),
        np.array([rows[index][2] == "train" for index in chosen]),
    )


def _is_enough(chosen: list[tuple[str, str, str]], name: str) -> bool:
    """Whether this class can be probed: both splits have enough texts of it and of others."""
    counts = Counter((label == name, split) for _, label, split in chosen)
    return all(counts[of_class, split] >= FEWEST_TEXTS for of_class in (True, False) for split in SPLITS)


def _draw(rows: list[tuple[str, str, str]], name: str, split: str, n_texts: int) -> list[int]:
    indices = [index for index, (_, label, side) in enumerate(rows) if (label, side) == (name, split)]
    return stream(0, "texts", name, split).permutation(indices)[:n_texts].tolist()


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


def probe_texts(
    model: HuggingFaceModel,
    site: Site,
    data: LabelledTexts,
    saes: Mapping[str, SAE],
    context: int,
    progress: ReportShare = ignore_share,
) -> dict[str, Accuracies]:
    """The accuracy of sparse probes on the codes of each dictionary, and on the activations themselves as `raw`."""
    order, pooled = pool_texts(model, site, data, saes, context, lambda share: progress(share / 2))
    classes, train = data.classes[order], data.train[order]
    rows = [("", data.names[label], SPLITS[not side]) for label, side in zip(classes, train, strict=True)]
    if not any(_is_enough(rows, name) for name in data.names):
        raise _too_few(model, data, len(rows))
    accuracies: dict[str, Accuracies] = {}
    for name, rows in pooled.items():
        accuracies[name] = probing.probe(Labelled(rows, classes, train), stream(0, "against", data.name))
        progress((1 + len(accuracies) / len(pooled)) / 2)
    return accuracies


def pool_texts(
    model: HuggingFaceModel,
    site: Site,
    data: LabelledTexts,
    saes: Mapping[str, SAE],
    context: int,
    progress: ReportShare = ignore_share,
) -> tuple[Int[np.ndarray, "b"], dict[str, Rows]]:
    """Which texts have a row, and the rows: means over the tokens that are text, of the first window of each."""
    windows = first_windows(model, data.texts, context)
    if not windows:
        raise _too_few(model, data, 0)
    order: list[int] = []
    raw: list[np.ndarray] = []
    codes: dict[str, list[sparse.csr_array]] = {name: [] for name in saes}
    for batch in token_batches(model, windows, BATCH_TOKENS):
        x, text = read_rows(model, site, batch), batch.kept.nonzero()[:, 0]
        order += [windows[number].document for number in batch.windows]
        total = torch.zeros(len(batch.windows), x.shape[1]).index_add_(0, text, x)
        raw.append((total / batch.kept.sum(1, keepdim=True)).numpy())
        for name, sae in saes.items():
            codes[name].append(_pool(sae, x, text.numpy(), len(batch.windows)))
        progress(len(order) / len(windows))
    pooled = {name: sparse.csr_array(sparse.vstack(parts)) for name, parts in codes.items()}
    return np.array(order), {RAW: np.concatenate(raw), **pooled}


def _too_few(model: HuggingFaceModel, data: LabelledTexts, n_read: int) -> UserError:
    """Too few texts have any token of text, as with a language that the tokenizer does not know."""
    return UserError(
        f"of the {len(data.texts)} labelled texts '{data.name}' {n_read} have tokens that {model.name} knows, too few "
        f"to probe; accepted: {FEWEST_TEXTS} training and {FEWEST_TEXTS} test texts of two classes"
    )


def _pool(sae: SAE, x: torch.Tensor, text: np.ndarray, n_texts: int) -> sparse.csr_array:
    """A block of tokens at a time, each weighted by its share of its text's tokens."""
    tokens, total = np.bincount(text, minlength=n_texts), None
    for start in range(0, len(x), BLOCK):
        features, values = active_features(sae.encode(x[start : start + BLOCK]))
        text_of_block = text[start : start + BLOCK]
        shares = np.bincount(text_of_block, minlength=n_texts) / tokens
        means = probing.pool(features.numpy(), values.numpy(), text_of_block, n_texts, sae.stack.features)
        weighted = sparse.csr_array(sparse.diags_array(shares) @ means)
        total = weighted if total is None else total + weighted
    assert total is not None
    return sparse.csr_array(total)
