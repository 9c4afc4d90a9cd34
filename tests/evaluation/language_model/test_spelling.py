"""First letters on a model whose embeddings hold them: the true letters absorb nothing, words that stand in do."""

import numpy as np
import pytest
import torch

from unbraid.activations.sites import find_site
from unbraid.dictionaries import Stack, TopK
from unbraid.evaluation.language_model.sae import SAE
from unbraid.evaluation.language_model.spelling import absorption, read_words, vocabulary_words
from unbraid.metrics.absorption import Words, probe_letters


@pytest.fixture(scope="module")
def words(model):
    return read_words(model, find_site(model, "model.embed_tokens"))


def test_words_are_the_whole_words_of_the_vocabulary(model, words):
    named = vocabulary_words(model)
    assert len(named) == 600
    assert all(word.isalpha() for word in named)
    assert np.bincount(words.letters).tolist() == [120] * 5
    assert 0.7 < words.train.mean() < 0.9


def test_activations_are_those_of_the_words(model, words):
    table = model.model.model.embed_tokens.weight.detach().numpy()
    rows = {tuple(np.round(row, 5)) for row in table}
    assert all(tuple(np.round(row, 5)) in rows for row in words.activations[:50])


@pytest.mark.parametrize("marker", ["▁", "Ġ"])
def test_pieces_with_a_space_are_words_and_others_parts(model, marker):
    class Marked:
        def get_vocab(self):
            marked = [f"{marker}{word}" for word in ("cat", "Cat", "at", "the", "")]
            return {piece: place for place, piece in enumerate([*marked, "dog", "Ġ", "▁"])}

    found = vocabulary_words(type(model)(model.model, Marked(), "marked"))
    assert [word.strip() for word in found] == ["cat", "the"]
    assert all(word.startswith(" ") == (marker == "Ġ") for word in found)


def letters_of(words, absorbing):
    """Of all entries one fires: that of the first letter; but the words given have their own, which fires alone."""
    letter = torch.eye(5, words.activations.shape[1])
    own = torch.from_numpy(words.activations[absorbing])
    unit = torch.nn.functional.normalize(own, dim=-1)
    bias = torch.cat([torch.zeros(5), -(2000 - 1.5) * own.norm(dim=1)])
    rows = torch.cat([letter, 2000 * unit])
    return SAE(Stack(rows[None], bias[None], torch.cat([letter, unit])[None], None, TopK(k=1)))


def test_a_dictionary_of_the_letters_absorbs_nothing(words):
    probes = probe_letters(words)
    assert [probe.letter for probe in probes] == [0, 1, 2, 3, 4]
    sae = letters_of(words, np.zeros(0, int))
    found = absorption(words, probes, {"it": sae})["it"]
    assert [one.split for one in found] == [(0,), (1,), (2,), (3,), (4,)]
    assert [one.full for one in found] == [0] * 5
    assert [one.fraction for one in found] == [0] * 5


def test_words_that_stand_in_for_their_letter_absorb_it(words):
    """Of the test words a probe is right about, every other one has an entry of its own; words are of one length."""
    length = np.linalg.norm(words.activations, axis=1, keepdims=True)
    words = Words(words.activations / length, words.letters, words.train)
    probes = probe_letters(words)
    sae = letters_of(words, np.concatenate([probe.words[::2] for probe in probes]))
    found = absorption(words, probes, {"it": sae})["it"]
    assert [one.split for one in found] == [(0,), (1,), (2,), (3,), (4,)]
    expected = [-(-len(probe.words) // 2) / len(probe.words) for probe in probes]
    assert [one.full for one in found] == pytest.approx(expected)
    assert [one.fraction for one in found] == pytest.approx(expected)


def test_a_model_without_words_has_no_letters(model):
    class Wordless:
        def get_vocab(self):
            return {"a": 0, "##b": 1}

    empty = read_words(type(model)(model.model, Wordless(), "wordless"), find_site(model, "model.embed_tokens"))
    assert len(empty.letters) == 0
    assert probe_letters(empty) == []
