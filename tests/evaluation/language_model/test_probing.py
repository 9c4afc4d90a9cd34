"""Labelled texts are read, pooled over their words alone, and probed: classes told by words, or by nothing."""

import json

import numpy as np
import pytest
import torch

from unbraid.activations.sites import find_site, read_site
from unbraid.errors import UserError
from unbraid.evaluation.language_model.labelled import read_labelled
from unbraid.evaluation.language_model.probing import RAW, pool_texts, probe_texts
from unbraid.metrics.probing import CHANCE


def test_as_many_texts_of_each_class_and_four_of_five_to_train(labelled):
    data = read_labelled(labelled / "untold.jsonl", 150)
    assert data.names == ("x", "y", "z")
    assert np.bincount(data.classes).tolist() == [50, 50, 50]
    assert data.train.sum() == 120
    assert len(set(data.texts)) == 150


def test_rows_are_means_over_words_without_special_tokens(model, middle, labelled, perfect):
    data = read_labelled(labelled / "told.jsonl", 100)
    order, pooled = pool_texts(model, middle, data, {"it": perfect}, 16)
    assert sorted(order.tolist()) == list(range(100))
    for row, text in enumerate(order.tolist()):
        ids = torch.tensor(model.tokenizer(data.texts[text])["input_ids"])[None]
        x = read_site(model, middle, ids)[0, 1:-1]
        np.testing.assert_allclose(pooled[RAW][row], x.mean(0), rtol=1e-4, atol=1e-5)
        codes = perfect.encode(x).to_dense()[0].mean(0)
        np.testing.assert_allclose(pooled["it"][[row]].toarray()[0], codes, rtol=1e-4, atol=1e-5)


def test_a_text_longer_than_the_context_is_its_beginning(model, middle, labelled, perfect):
    data = read_labelled(labelled / "told.jsonl", 100)
    order, pooled = pool_texts(model, middle, data, {}, 5)
    ids = torch.tensor(model.tokenizer(data.texts[order[0]])["input_ids"])[None, :4]
    np.testing.assert_allclose(pooled[RAW][0], read_site(model, middle, ids)[0, 1:].mean(0), rtol=1e-4, atol=1e-5)


def test_classes_told_by_their_words_are_told_and_others_are_at_chance(model, labelled, perfect, mute):
    """At the embedding, feature i is the i-th first letter; a dictionary that never fires knows nothing."""
    first = find_site(model, "model.embed_tokens")
    saes = {"perfect": perfect, "mute": mute}
    told = probe_texts(model, first, read_labelled(labelled / "told.jsonl", 400), saes, 16)
    assert told["perfect"]["1"].value == 1
    assert told[RAW]["1"].value == 1
    assert told["mute"]["1"].value == CHANCE
    untold = probe_texts(model, first, read_labelled(labelled / "untold.jsonl", 600), saes, 16)
    for found in untold.values():
        assert found["5"].value == pytest.approx(CHANCE, abs=4 * found["5"].error)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ('{"text": "a", "label": "x", "split": "train"}\n', "has 1 labels"),
        ('{"text": "a", "label": "x"}\n', "line 1 of .* is not a labelled text"),
        ('{"text": "a", "label": "x", "split": "train"}\n[]\n', "line 2 of"),
        ('{"text": " ", "label": "x", "split": "train"}\n', "line 1 of"),
        ('{"text": "a", "label": "x", "split": "dev"}\n', "train or test"),
        ("", "has 0 labels"),
        (b"\xff\xfe\xfd", "is not UTF-8"),
    ],
)
def test_what_is_not_labelled_text_is_refused(tmp_path, content, sentence):
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=sentence):
        read_labelled(path, 100)


def labels(path, amounts):
    """So many texts, by class and split."""
    rows = [{"text": "a", "label": label, "split": split} for (label, split), n in amounts.items() for _ in range(n)]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_a_set_of_which_no_class_can_be_probed_is_refused(tmp_path):
    """Five classes of a hundred texts are four test texts each; ten are needed."""
    five = labels(tmp_path / "five.jsonl", {(label, split): 80 for label in "vwxyz" for split in ("train", "test")})
    with pytest.raises(UserError, match=r"five.jsonl none has 10 .* among the 100 asked for; .* 250 or more"):
        read_labelled(five, 100)
    assert (~read_labelled(five, 250).train).sum() == 50
    untested = labels(tmp_path / "untested.jsonl", {("x", "train"): 80, ("y", "train"): 80})
    with pytest.raises(UserError, match=r"untested.jsonl none has 10 training and 10 test texts"):
        read_labelled(untested, 100)
    alone = labels(tmp_path / "alone.jsonl", {("x", "train"): 80, ("x", "test"): 80, ("y", "train"): 80})
    with pytest.raises(UserError, match=r"alone.jsonl none has"):
        read_labelled(alone, 100)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(UserError, match="cannot read"):
        read_labelled(tmp_path / "none.jsonl", 100)
