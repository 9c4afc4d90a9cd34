"""Sparse probing on a model: run labelled texts once, pool every dictionary's codes over each, and train probes."""

from collections.abc import Mapping

import numpy as np
import torch
from scipy import sparse

from unbraid.activations.huggingface import HuggingFaceModel
from unbraid.activations.sites import Site
from unbraid.axes import Int
from unbraid.errors import UserError
from unbraid.evaluation.language_model.labelled import SPLITS, LabelledTexts, can_probe
from unbraid.evaluation.language_model.sae import BLOCK, SAE, active_features, first_windows, read_rows, token_batches
from unbraid.metrics import probing
from unbraid.metrics.probing import FEWEST_TEXTS, Accuracies, Labelled, Rows
from unbraid.progress import ReportShare, ignore_share
from unbraid.randomness import stream

BATCH_TOKENS = 8192
"""Tokens that run at a time: no logits are made."""
RAW = "raw"


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
    rows = [(data.names[label], SPLITS[not side]) for label, side in zip(classes, train, strict=True)]
    if not can_probe(rows, data.names):
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
