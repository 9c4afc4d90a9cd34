"""The feature index: by hand, and held against plain loops on codes of real dictionaries."""

import numpy as np
import pytest
import torch
from scipy import sparse

import unbraid as ub
from unbraid.evaluation.factors import codes_to_rows, encode_rows
from unbraid.evaluation.feature_index import Rows, index_features, index_members, neighbours, planted_rows
from unbraid.storage.feature_index import AROUND, WHICH, FeatureIndex, write_index

WORDS = ["the", "cat", "sat", "mat"]


def text_rows(tokens, documents, truth, names):
    x = torch.zeros(len(tokens), 2)
    return Rows(x, sparse.csr_array(np.array(truth, dtype=float)), names, np.array(tokens), np.array(documents), WORDS)


@pytest.fixture
def by_hand(tmp_path):
    """Feature 0 fires on "cat" (token 1) with the concept but once, feature 1 never, feature 2 on everything."""
    tokens, documents = [0, 1, 2, 0, 1, 3], [0, 0, 0, 1, 1, 1]
    truth = [[0, 1], [1, 1], [0, 1], [1, 1], [1, 1], [0, 1]]
    codes = np.zeros((6, 3))
    codes[[1, 4, 5], 0] = [2.0, 3.0, 0.5]
    codes[:, 2] = [1, 2, 3, 4, 5, 6]
    rows = text_rows(tokens, documents, truth, ["animal", "always"])
    own = index_features(sparse.csr_array(codes), rows) | neighbours(torch.tensor([[1.0, 0], [0, 1.0], [1.0, 1.0]]))
    write_index(tmp_path, {0: own}, rows.arrays())
    index = FeatureIndex.open(tmp_path)
    assert index is not None
    return index


def test_numbers_by_hand(by_hand):
    record = by_hand.feature(0, 0)
    assert record.numbers["rate"] == pytest.approx(0.5)
    assert record.numbers["mean"] == pytest.approx(5.5 / 3)
    assert record.numbers["largest"] == 3
    # fires and concept: 2 both, 1 alone each: φ = (6·2 − 3·3)/√(3·3·3·3)
    assert record.concept == "animal"
    assert record.numbers["phi"] == pytest.approx((6 * 2 - 9) / 9)
    assert record.numbers["precision"] == pytest.approx(2 / 3)
    assert record.numbers["recall"] == pytest.approx(2 / 3)
    assert record.tokens == [("cat", 2), ("mat", 1)]
    assert sum(count for *_, count in record.histogram) == 3
    assert record.histogram[0][0] == 0.5
    assert record.histogram[-1][1] == 3.0
    assert [neighbour for neighbour, _ in record.neighbours] == [2, 1]
    assert record.neighbours[0][1] == pytest.approx(0.5**0.5, abs=1e-3)


def test_contexts_by_hand(by_hand):
    contexts = by_hand.feature(0, 0).contexts
    strongest = contexts["strongest"]
    assert [(context.row, context.value) for context in strongest] == [(4, 3.0), (1, 2.0), (5, 0.5)]
    assert strongest[0].tokens == ["the", "cat", "mat"]
    assert strongest[0].position == 1
    assert strongest[0].values == [0.0, 3.0, 0.5]
    assert [[name for name, _ in token] for token in strongest[0].truth] == [["animal", "always"]] * 2 + [["always"]]
    assert [context.row for context in contexts["even"]] == [5, 1, 4]
    assert [context.row for context in contexts["agree"]] == [4, 1]
    assert [context.row for context in contexts["without_concept"]] == [5]
    assert [context.row for context in contexts["without_feature"]] == [3]


def test_a_dead_feature_has_an_empty_record(by_hand):
    record = by_hand.feature(0, 1)
    assert record.numbers["rate"] == 0
    assert record.concept is None
    assert all(not record.contexts[which] for which in WHICH)
    assert record.tokens == []


def test_search_finds_tokens_and_concepts(by_hand):
    assert by_hand.search(0, "CAT").tolist() == [0, 2]
    assert by_hand.search(0, "anim").tolist() == [0]
    assert by_hand.search(0, "nothing").tolist() == []


def test_against_plain_loops(tmp_path):
    world = ub.Superposition(dimensions=12, n_features=20, active=3.0)
    stack = ub.fit(world, ub.Dictionary(d_sae=24), [ub.Sparsity(weight=0.1)], ub.Training(steps=60), seeds=[0, 1])
    rows = planted_rows(world, 700)
    members, contexts = index_members(stack, rows)
    write_index(tmp_path, members, contexts)
    index = FeatureIndex.open(tmp_path)
    assert index is not None
    assert not index.has_tokens
    batch = world.batch(0, 700, split="evaluation")
    on = batch.truth.to_dense()[0].numpy() != 0
    for member in (0, 1):
        values = codes_to_rows(encode_rows(stack.member(member), batch.x)).toarray()
        for feature in range(24):
            record, column = index.feature(member, feature), values[:, feature]
            fires = column != 0
            assert record.numbers["rate"] == pytest.approx(fires.mean())
            best = np.sort(column[fires])[::-1][:8]
            np.testing.assert_allclose([c.value for c in record.contexts["strongest"]], best, rtol=1e-6)
            drawn = [c.value for c in record.contexts["even"]]
            assert drawn == sorted(drawn)
            assert len(drawn) == min(8, fires.sum())
            if fires.any() and not fires.all():
                phis = [np.corrcoef(fires, on[:, concept])[0, 1] for concept in range(20)]
                assert record.numbers["phi"] == pytest.approx(np.nanmax(phis), abs=1e-5)
                concept = record.concept_number
                assert all(on[c.row, concept] and fires[c.row] for c in record.contexts["agree"])
                assert all(fires[c.row] and not on[c.row, concept] for c in record.contexts["without_concept"])
                assert all(on[c.row, concept] and not fires[c.row] for c in record.contexts["without_feature"])
                assert len(record.contexts["without_concept"]) == min(4, (fires & ~on[:, concept]).sum())
                assert len(record.contexts["without_feature"]) == min(4, (on[:, concept] & ~fires).sum())
                assert len(record.contexts["agree"]) == min(4, (fires & on[:, concept]).sum())
                first = record.contexts["strongest"][0]
                names = {name for name, _ in first.truth[0]}
                assert names == {f"concept {number}" for number in np.flatnonzero(on[first.row])}
        cosine = stack.directions[member] @ stack.directions[member].T
        cosine.fill_diagonal_(-2)
        assert [n for n, _ in index.feature(member, 5).neighbours] == cosine[5].topk(5).indices.tolist()


def test_a_rare_silence_is_found():
    """The concept is on at 1,500 rows, and the feature silent at two of them, which evenly drawn rows pass by."""
    truth, codes = np.zeros((2000, 1)), np.zeros((2000, 1))
    truth[:1500] = codes[:1500] = 1
    codes[[701, 1003]] = 0
    rows = text_rows(np.zeros(2000, int), np.zeros(2000, int), truth, ["on"])
    own = index_features(sparse.csr_array(codes), rows)
    assert own["without_feature"].tolist() == [[701, 1003, -1, -1]]


def test_bytes_are_those_of_the_formula():
    """1,322 a feature with tokens and concepts, 850 without concepts, 306 of samples."""
    generator = np.random.default_rng(0)
    codes = sparse.csr_array(sparse.random_array((300, 40), density=0.05, rng=generator))
    truth, nothing = np.eye(300, 5), sparse.csr_array((300, 0))
    tokens, documents = generator.integers(0, 4, 300), np.arange(300) // 20
    named = text_rows(tokens, documents, truth, list("abcde"))
    unnamed = Rows(torch.zeros(300, 2), nothing, [], tokens, documents, WORDS)
    samples = Rows(torch.zeros(300, 2), sparse.csr_array(truth), list("abcde"))
    for rows, expected in ((named, 1322), (unnamed, 850), (samples, 306)):
        own = index_features(codes, rows) | neighbours(torch.randn(40, 16))
        assert sum(part.nbytes for part in own.values()) / 40 == expected


def test_a_feature_takes_less_than_two_kilobytes():
    generator = np.random.default_rng(0)
    codes = sparse.csr_array(sparse.random_array((2000, 400), density=0.02, rng=generator))
    truth = sparse.csr_array(sparse.random_array((2000, 50), density=0.05, rng=generator))
    rows = Rows(
        torch.zeros(2000, 2),
        truth,
        [str(number) for number in range(50)],
        generator.integers(0, 4, 2000),
        np.repeat(np.arange(100), 20),
        WORDS,
    )
    own = index_features(codes, rows) | neighbours(torch.randn(400, 16))
    assert sum(part.nbytes for part in own.values()) / 400 < 2000
    assert own["strongest_around"].shape == (400, 8, 2 * AROUND + 1)
