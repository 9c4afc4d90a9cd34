"""The first-letter task on planted words: dictionaries that absorb nothing, everything, or a known share."""

from string import ascii_lowercase

import numpy as np
import pytest
from scipy import sparse

from unbraid.metrics.first_letter import Words, absorption_by_letter, probe_letters, word_absorption

LETTERS, EACH = 5, 40
DIMENSIONS = LETTERS + LETTERS * EACH
"""A direction for every letter, then one for every word; activations are letter + word."""


@pytest.fixture(scope="module")
def words():
    letters = np.repeat(np.arange(LETTERS), EACH)
    rows = np.zeros((len(letters), DIMENSIONS), np.float32)
    rows[np.arange(len(letters)), letters] = 1
    rows[np.arange(len(letters)), LETTERS + np.arange(len(letters))] = 0.3
    return Words(rows, letters, np.arange(len(letters)) % 2 == 0)


@pytest.fixture(scope="module")
def probes(words):
    return probe_letters(words)


def dictionary(words, absorbing):
    """True directions and codes; but the entries of absorbing words write letter and word, and silence the letter's."""
    directions, codes = np.eye(DIMENSIONS, dtype=np.float32), words.activations.copy()
    for word in np.flatnonzero(absorbing):
        row = words.activations[word]
        directions[LETTERS + word] = row / np.linalg.norm(row)
        codes[word] = 0
        codes[word, LETTERS + word] = np.linalg.norm(row)
    return sparse.csr_array(codes), directions


def test_the_probes_find_the_letters(words, probes):
    assert [probe.letter for probe in probes] == list(range(LETTERS))
    for probe in probes:
        assert probe.f1 == 1
        assert probe.direction[probe.letter] > 0.8
        assert probe.words.tolist() == np.flatnonzero((words.letters == probe.letter) & ~words.train).tolist()


def test_a_dictionary_of_letters_and_words_absorbs_nothing(words, probes):
    found = absorption_by_letter(words, probes, *dictionary(words, np.zeros(len(words.letters), bool)))
    assert [one.letter for one in found] == list(ascii_lowercase[:LETTERS])
    assert [one.split for one in found] == [(letter,) for letter in range(LETTERS)]
    assert all((one.full, one.fraction) == (0, 0) for one in found)


def test_words_that_stand_in_for_their_letter_are_counted(words, probes):
    """Of the twenty test words of letter i, 2·i absorb it."""
    absorbing = np.zeros(len(words.letters), bool)
    for letter in range(LETTERS):
        absorbing[np.flatnonzero((words.letters == letter) & ~words.train)[: 2 * letter]] = True
    found = absorption_by_letter(words, probes, *dictionary(words, absorbing))
    assert [one.full for one in found] == pytest.approx([letter / 10 for letter in range(LETTERS)])
    assert [one.fraction for one in found] == pytest.approx([letter / 10 for letter in range(LETTERS)])
    assert [one.words for one in found] == [20] * LETTERS


def test_a_letter_in_two_features_is_split_not_absorbed(words, probes):
    """Letter 0's words fire one entry or another, turn about; the probe of codes takes both."""
    codes, directions = (part.copy() for part in dictionary(words, np.zeros(len(words.letters), bool)))
    dense, half = codes.toarray(), np.flatnonzero(words.letters == 0)[np.arange(EACH) % 4 < 2]
    dense = np.c_[dense, np.zeros(len(dense), np.float32)]
    dense[half, -1], dense[half, 0] = dense[half, 0], 0
    found = absorption_by_letter(words, probes, sparse.csr_array(dense), np.r_[directions, directions[:1]])
    assert sorted(found[0].split) == [0, DIMENSIONS]
    assert all((one.full, one.fraction) == (0, 0) for one in found)


def naive(codes, cosines, main, whole):
    """SAEBench's rules for one word, written out on a dense row."""
    written = codes * cosines
    top = int(np.argmax(written))
    full = all(abs(codes[f]) < 1e-8 for f in main) and cosines[top] >= 0.025 and whole > 0
    full = bool(full and written[top] / whole >= 0.4)
    kept = sum(written[f] for f in main)
    rest = [written[f] for f in range(len(codes)) if f not in main and cosines[f] >= 0.1 and written[f] > 0]
    absorbed = sum(sorted(rest, reverse=True)[:3])
    if whole <= 0 or kept >= whole or absorbed / whole < 0.4:
        return full, 0.0
    if kept <= 0:
        return full, 1.0
    missing = min(absorbed, whole - kept)
    return full, missing / (missing + kept)


def test_the_rules_are_saebenchs_on_random_words(rng):
    codes = rng.random((400, 12)) * (rng.random((400, 12)) < 0.4)
    cosines, main = rng.uniform(-0.3, 0.6, 12), np.array([2, 7])
    whole = rng.uniform(-0.2, 0.8, 400)
    full, fraction = word_absorption(sparse.csr_array(codes), cosines, main, whole)
    expected = [naive(row, cosines, main.tolist(), float(one)) for row, one in zip(codes, whole, strict=True)]
    assert full.tolist() == [one for one, _ in expected]
    np.testing.assert_allclose(fraction, [one for _, one in expected])
    assert 0.05 < full.mean() < 0.95
    assert ((fraction > 0) & (fraction < 1)).any()


def test_letters_with_few_words_or_a_poor_probe_are_left_out(rng):
    letters = np.r_[np.repeat([0, 1], 40), np.full(10, 2)]
    rows = rng.standard_normal((90, 6)).astype(np.float32)
    rows[letters == 0, 0] += 8
    rows[letters == 2, 2] += 8
    probes = probe_letters(Words(rows, letters, np.arange(90) % 2 == 0))
    assert 0 in [probe.letter for probe in probes]
    assert 2 not in [probe.letter for probe in probes]


def test_without_letters_nothing_is_said(words):
    assert absorption_by_letter(words, [], *dictionary(words, np.zeros(len(words.letters), bool))) == []
