"""Absorption on planted hierarchies: dictionaries built by hand whose rate, fraction and absorbers are known.
The L1 probe by the conditions of its optimum; split features on classes whose features are known.
The first-letter task on planted words: dictionaries that absorb nothing, everything, or a known share.
"""

from string import ascii_lowercase

import numpy as np
import pytest
import torch
from scipy import sparse

from unbraid.metrics.absorption import (
    L1_PENALTY,
    SHARE,
    Families,
    Words,
    absorption_by_letter,
    count_absorption,
    l1_probe,
    probe_letters,
    rank_positive,
    split_features,
    word_absorption,
)
from unbraid.metrics.recovery import cosines, match

PARENTS = torch.tensor([-1, -1, -1, 0, 0, 1])
"""Features 3 and 4 are children of 0, feature 5 of 1; feature 2 is alone."""
TRUTH = torch.eye(8)[:6]
SAMPLES = [
    {0: 0.5, 3: 1.0},
    {0: 0.8, 4: 0.6},
    {0: 0.4, 3: 0.9, 4: 0.3},
    {1: 1.0, 5: 0.2, 2: 0.7},
    {0: 0.3},
    {2: 0.9},
    {},
]


def slots(samples, width=4):
    features, strengths = torch.zeros(len(samples), width, dtype=torch.long), torch.zeros(len(samples), width)
    for row, sample in enumerate(samples):
        for slot, (feature, strength) in enumerate(sample.items()):
            features[row, slot], strengths[row, slot] = feature, strength
    return features, strengths


def counted(directions, code, samples=SAMPLES, truth=TRUTH, parents=PARENTS):
    """`code` gives the learned values of a sample, entry i being matched with true feature i."""
    matched = torch.arange(len(truth))[None]
    families = Families.of(truth, directions[None], matched, parents)
    features, strengths = slots(samples)
    values = torch.zeros(1, *features.shape)
    for row, sample in enumerate(samples):
        for slot, feature in enumerate(sample):
            values[0, row, slot] = code(sample)[feature]
    return count_absorption(families, features, strengths, values)


def truthful(sample):
    return [sample.get(feature, 0.0) for feature in range(6)]


def absorbing(sample):
    """The parent is silent whenever a child fires."""
    values = truthful(sample)
    for child, parent in enumerate(PARENTS.tolist()):
        if child in sample and parent >= 0:
            values[parent] = 0.0
    return values


def mixed(weight):
    """Children's entries that write `weight` of their parent for one of themselves, of length one."""
    rows = TRUTH.clone()
    rows[3:] += weight * TRUTH[PARENTS[3:]]
    return torch.nn.functional.normalize(rows, dim=-1)


def test_the_truth_itself_absorbs_nothing():
    found = counted(TRUTH, truthful)
    assert found.rate().item() == 0
    assert found.mean_fraction().item() == 0
    assert found.fired.tolist() == [[0, 0, 0, 2, 2, 1]]
    assert found.with_child.tolist() == [[3, 1, 0, 0, 0, 0]]


def test_a_dictionary_whose_children_write_their_parents_absorbs_all():
    samples = [{0: 0.5, 3: 0.5}, {0: 0.8, 4: 0.8}, {1: 1.0, 5: 1.0, 2: 0.7}, {0: 0.3}]
    scaled = [{k: v * 2**0.5 if k > 2 else v for k, v in one.items()} for one in samples]
    codes = {str(a): absorbing(b) for a, b in zip(samples, scaled, strict=True)}
    found = counted(mixed(1.0), lambda sample: codes[str(sample)], samples)
    assert found.rate().item() == 1
    assert found.mean_fraction().item() == 1
    np.testing.assert_allclose(found.by_child()[0].numpy(), [np.nan, np.nan, np.nan, 1, 1, 1])


def test_it_says_which_child_absorbs():
    """Child 3 alone writes its parent: of the samples it fires in, it absorbs all, and 4 and 5 none."""
    rows = TRUTH.clone()
    rows[3] = mixed(1.0)[3]
    found = counted(rows, absorbing)
    np.testing.assert_allclose(found.by_child()[0, 3:].numpy(), [1, 0, 0])
    assert found.rate().item() == pytest.approx(1 / 3)


def test_a_parent_that_fires_is_not_absorbed_and_one_missed_but_not_written_is_not_either():
    assert counted(mixed(1.0), truthful).rate().item() == 0
    assert counted(TRUTH, absorbing).rate().item() == 0


def test_a_child_must_write_two_fifths_of_its_parent():
    """A unit of the child's entry writes w/√(1+w²) of the parent: at strength 1 and value 1 that is the share."""
    for weight, expected in [(0.43, 0), (0.44, 1)]:
        assert (weight / (1 + weight**2) ** 0.5 >= SHARE) == expected
        assert counted(mixed(weight), absorbing, [{0: 1.0, 3: 1.0}]).rate().item() == expected


def test_half_kept_and_half_absorbed_is_a_fraction_of_one_half():
    """The parent's entry gives half its strength, the child's writes the other half."""
    rows = TRUTH.clone()
    rows[3] = torch.nn.functional.normalize(TRUTH[3] + 0.5 * TRUTH[0], dim=-1)
    length = 1.25**0.5
    found = counted(rows, lambda s: [0.5, 0, 0, length, 0, 0], [{0: 1.0, 3: 1.0}])
    assert found.mean_fraction().item() == pytest.approx(0.5)
    assert found.rate().item() == 0


def test_a_fraction_counts_three_absorbers_at_most_and_no_more_than_is_missing():
    """Four children write .2 each: the three largest .6 of the parent, whose own entry has .3: .6 / .9."""
    parents, truth = torch.tensor([-1, 0, 0, 0, 0]), torch.eye(5)
    rows = torch.nn.functional.normalize(truth + 0.2 * (parents >= 0)[:, None] * truth[0], dim=-1)
    length = 1.04**0.5
    families = Families.of(truth, rows[None], torch.arange(5)[None], parents)
    features, strengths = torch.arange(5)[None], torch.ones(1, 5)

    def fraction(own):
        values = torch.tensor([[[own, length, length, length, length]]])
        return count_absorption(families, features, strengths, values).mean_fraction().item()

    assert fraction(0.3) == pytest.approx(0.6 / 0.9)
    assert fraction(0.6) == pytest.approx(0.4 / 1.0)
    assert fraction(1.0) == 0
    assert fraction(0.0) == 1


def test_what_a_child_shares_with_its_parent_by_chance_is_not_absorption():
    """A child at cosine .6 to its parent, found exactly, while the weak parent is missed: SAEBench's probe would say
    .6 · 1 / .5 ≥ .4; taking out the child's own direction leaves nothing."""
    truth = torch.tensor([[1.0, 0.0], [0.6, 0.8]])
    found = counted(truth, lambda s: [0.0, 1.0], [{0: 0.5, 1: 1.0}], truth, torch.tensor([-1, 0]))
    assert found.rate().item() == 0
    assert found.mean_fraction().item() == 0
    merged = torch.nn.functional.normalize(truth + torch.tensor([[0.0, 0.0], [0.5, 0.0]]), dim=-1)
    length = float((truth[1] + torch.tensor([0.5, 0.0])).norm())
    found = counted(merged, lambda s: [0.0, length], [{0: 0.5, 1: 1.0}], truth, torch.tensor([-1, 0]))
    assert found.rate().item() == 1


def test_against_a_loop_over_random_dictionaries(rng):
    samples = []
    for _ in range(200):
        on = {f for f in range(3) if rng.random() < 0.6}
        on |= {c for c in range(3, 6) if int(PARENTS[c]) in on and rng.random() < 0.5}
        samples.append({f: float(rng.random()) for f in sorted(on, key=lambda _: rng.random())})
    truth = torch.from_numpy(rng.standard_normal((6, 4)))
    rows = torch.from_numpy(rng.standard_normal((6, 4)))
    codes = {str(s): (rng.random(6) * (rng.random(6) < 0.6) * 2).tolist() for s in samples}
    features, strengths = slots(samples, 6)
    values = torch.zeros(1, *features.shape)
    for row, sample in enumerate(samples):
        for slot, feature in enumerate(sample):
            values[0, row, slot] = codes[str(sample)][feature]
    families = Families.of(truth.float(), rows.float()[None], torch.arange(6)[None], PARENTS)
    found = count_absorption(families, features, strengths, values)
    unit = truth / truth.norm(dim=1, keepdim=True)
    learned = rows / rows.norm(dim=1, keepdim=True)
    rates, fractions = looped(samples, codes, unit.numpy(), learned.numpy())
    np.testing.assert_allclose(found.by_child()[0, 3:].numpy(), rates, atol=1e-9)
    np.testing.assert_allclose(found.by_parent()[0, :2].numpy(), fractions, atol=1e-5)
    assert 0 < found.rate().item() < 1


def looped(samples, codes, truth, learned):
    """Sample by sample; what a child's entry writes of its parent by least squares on the two true directions."""
    hits, fractions = {3: [], 4: [], 5: []}, {0: [], 1: []}
    for sample in samples:
        code = codes[str(sample)]
        written = {}
        for child in sorted(set(sample) & {3, 4, 5}):
            parent = int(PARENTS[child])
            weights = np.linalg.lstsq(truth[[child, parent]].T, learned[child], rcond=None)[0]
            rest = truth[parent] - (truth[parent] @ truth[child]) * truth[child]
            cosine = learned[child] @ rest / np.linalg.norm(rest)
            amount = code[child] * weights[1]
            silent, firing = code[parent] == 0, code[child] > 0
            hits[child].append(silent and firing and cosine >= 0.025 and amount >= 0.4 * sample[parent])
            written.setdefault(parent, []).append(max(amount, 0.0) if cosine >= 0.1 else 0.0)
        for parent, amounts in written.items():
            taken, whole = sum(sorted(amounts)[-3:]), sample[parent]
            kept = code[parent] * (learned[parent] @ truth[parent])
            if kept >= whole or taken < 0.4 * whole:
                fractions[parent].append(0.0)
            elif kept <= 0:
                fractions[parent].append(1.0)
            else:
                taken = min(taken, whole - kept)
                fractions[parent].append(taken / (taken + kept))
    return [np.mean(hits[c]) for c in (3, 4, 5)], [np.mean(fractions[p]) for p in (0, 1)]


def test_a_feature_without_a_match_neither_absorbs_nor_keeps():
    matched = match(cosines(TRUTH, TRUTH[None, [0, 1, 2]]))
    families = Families.of(TRUTH, TRUTH[None, [0, 1, 2]], matched, PARENTS)
    assert families.carried[0, 3:].tolist() == [0, 0, 0]
    assert families.own[0].tolist() == [1, 1, 1, 0, 0, 0]


def test_counts_of_parts_add_up():
    whole = counted(mixed(1.0), absorbing)
    parts = counted(mixed(1.0), absorbing, SAMPLES[:2]) + counted(mixed(1.0), absorbing, SAMPLES[2:])
    for name in ("fired", "absorbed", "with_child", "fraction"):
        torch.testing.assert_close(getattr(parts, name), getattr(whole, name))


def test_the_l1_probe_is_where_no_weight_can_improve(rng):
    """The gradient of the mean log loss is -.01·sign(w) where w is not 0, and within ±.01 where it is."""
    rows = rng.random((300, 20)) * (rng.random((300, 20)) < 0.5)
    known = np.stack([rows[:, 0] + 0.3 * rng.random(300) > 0.5, rows[:, 3] - rows[:, 4] > 0.2], 1)
    weights = l1_probe(sparse.csr_array(rows), known, 5000)
    for column in range(2):
        mine = known[:, column]
        weight = np.where(mine, 0.5 / mine.sum(), 0.5 / (~mine).sum())
        z = rows @ weights[:, column]
        middle = bias_of(z, mine, weight)
        slope = rows.T @ (weight * (1 / (1 + np.exp(-z - middle)) - mine))
        on = weights[:, column] != 0
        assert 0 < on.sum() < 20
        np.testing.assert_allclose(slope[on], -L1_PENALTY * np.sign(weights[on, column]), atol=1e-4)
        assert (np.abs(slope[~on]) <= L1_PENALTY + 1e-4).all()


def bias_of(z, mine, weight):
    """The bias at which the weighted errors cancel, by bisection."""
    low, middle, high = -10.0, 0.0, 10.0
    for _ in range(80):
        middle = (low + high) / 2
        if (weight * (1 / (1 + np.exp(-z - middle)) - mine)).sum() > 0:
            high = middle
        else:
            low = middle
    return middle


def test_features_against_a_class_are_not_ranked_for_it(rng):
    known = rng.random(200) < 0.5
    rows = np.stack([1.0 * ~known, 0.7 * known, 0.0 * known], 1)
    assert rank_positive(sparse.csr_array(rows), known[:, None])[0].tolist() == [1, 2, 0]


def test_split_features_grow_while_the_f1_does(rng):
    """Each of three features covers a third of the class, without error; a fourth covers nothing new."""
    known = np.arange(300) < 90
    columns = np.stack([(np.arange(300) // 30 == third) & known for third in (0, 1, 2, 0)], 1).astype(float)
    assert split_features(columns, known) == 3
    assert split_features(columns[:, [0, 3, 1]], known) == 1


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
