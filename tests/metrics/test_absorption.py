"""Absorption on planted hierarchies: dictionaries built by hand whose rate, fraction and absorbers are known."""

import numpy as np
import pytest
import torch

from unbraid.metrics.absorption import SHARE, Families, count_absorption
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
