"""Sparse probing on a model: read labelled texts once, pool every dictionary's codes over each, probe them alike."""

from collections.abc import Mapping

import numpy as np
import torch
from scipy import sparse

from unbraid.axes import Int
from unbraid.capture.models import Model
from unbraid.capture.sites import Site
from unbraid.judging.labelled import LabelledTexts
from unbraid.judging.lens import BLOCK, Lens, slots
from unbraid.judging.passage import first_windows, passages, rows
from unbraid.metrics import probing
from unbraid.metrics.probing import Accuracies, Labelled, Rows
from unbraid.progress import Told, unwatched
from unbraid.randomness import stream

TOGETHER = 8192
"""So many tokens run at a time: no logits are made."""
RAW = "raw"


def probe_texts(
    model: Model,
    site: Site,
    data: LabelledTexts,
    lenses: Mapping[str, Lens],
    context: int,
    told: Told = unwatched,
) -> dict[str, Accuracies]:
    """The accuracy of sparse probes on the codes of each dictionary, and on the activations themselves as `raw`."""
    order, pooled = pool_texts(model, site, data, lenses, context, lambda share: told(share / 2))
    classes, train = data.classes[order], data.train[order]
    found: dict[str, Accuracies] = {}
    for name, part in pooled.items():
        found[name] = probing.probe(Labelled(part, classes, train), stream(0, "against", data.name))
        told((1 + len(found) / len(pooled)) / 2)
    return found


def pool_texts(
    model: Model,
    site: Site,
    data: LabelledTexts,
    lenses: Mapping[str, Lens],
    context: int,
    told: Told = unwatched,
) -> tuple[Int[np.ndarray, "b"], dict[str, Rows]]:
    """Which texts have a row, and the rows: means over the tokens that are text, of the first window of each."""
    chosen = first_windows(model, data.texts, context)
    order: list[int] = []
    raw: list[np.ndarray] = []
    codes: dict[str, list[sparse.csr_array]] = {name: [] for name in lenses}
    for passage in passages(model, chosen, TOGETHER):
        x, text = rows(model, site, passage), passage.kept.nonzero()[:, 0]
        order += [chosen[place].document for place in passage.places]
        total = torch.zeros(len(passage.places), x.shape[1]).index_add_(0, text, x)
        raw.append((total / passage.kept.sum(1, keepdim=True)).numpy())
        for name, lens in lenses.items():
            codes[name].append(_pooled(lens, x, text.numpy(), len(passage.places)))
        told(len(order) / len(chosen))
    pooled = {name: sparse.csr_array(sparse.vstack(parts)) for name, parts in codes.items()}
    return np.array(order), {RAW: np.concatenate(raw), **pooled}


def _pooled(lens: Lens, x: torch.Tensor, text: np.ndarray, texts: int) -> sparse.csr_array:
    """A block of tokens at a time, each weighing what its text's share of tokens in the block is."""
    tokens, total = np.bincount(text, minlength=texts), None
    for start in range(0, len(x), BLOCK):
        features, values = slots(lens.encode(x[start : start + BLOCK]))
        some = text[start : start + BLOCK]
        here = np.bincount(some, minlength=texts) / tokens
        part = probing.pool(features.numpy(), values.numpy(), some, texts, lens.stack.features)
        weighed = sparse.csr_array(sparse.diags_array(here) @ part)
        total = weighed if total is None else total + weighed
    assert total is not None
    return sparse.csr_array(total)
