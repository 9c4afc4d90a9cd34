"""Both ways answer as one FᵀF written out by hand does; gradients, ties, layouts and blocks included."""

import numba
import numpy as np
import pytest
import torch

from unbraid.codes import Codes
from unbraid.dictionaries.coactivation import blocked, find_pairs
from unbraid.dictionaries.coactivation.blocked import Blocked
from unbraid.dictionaries.coactivation.listed import Listed

KINDS = ["raw", "cosine", "pearson"]
MEMBERS, SAMPLES, WIDTH = 2, 40, 24


def sparse_values(rng, shift=1.0, shape=(MEMBERS, SAMPLES, WIDTH)):
    return np.maximum(rng.standard_normal(shape) - shift, 0).astype(np.float32)


def slots(values, rng):
    """The same codes as lists in no order, with slots to spare."""
    order = np.stack([[rng.permutation(values.shape[2]) for _ in member] for member in values])
    return Codes(torch.from_numpy(order), torch.from_numpy(np.take_along_axis(values, order, -1)), values.shape[2])


def scores(values, kind):
    """All scores of one member: those above the diagonal that fired together, and 0."""
    f = values.astype(np.float64)
    sums = f.T @ f
    if kind == "pearson":
        with np.errstate(invalid="ignore", divide="ignore"):
            found = np.nan_to_num(np.corrcoef(f.T))
    else:
        lengths = np.where(f.any(0), np.linalg.norm(f, axis=0), 1)
        found = sums / np.outer(lengths, lengths) if kind == "cosine" else sums
    return np.triu(np.where(sums != 0, found, 0), 1)


def ways(values, rng):
    """Both ways, in both layouts."""
    return [
        way.of(codes)
        for way in (Listed, Blocked)
        for codes in (Codes.dense(torch.from_numpy(values)), slots(values, rng))
    ]


def as_matrices(chosen, what):
    found = np.zeros((MEMBERS, WIDTH, WIDTH))
    found[chosen.member, chosen.first, chosen.second] = what
    return found


@pytest.fixture(params=[1 << 22, 5 * WIDTH, 1], ids=["one block", "blocks", "rows"])
def block(request, monkeypatch):
    monkeypatch.setattr(blocked, "BLOCK", request.param)


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_those_of_the_whole_matrix(kind, rng, block):
    values = sparse_values(rng)
    expected = np.stack([scores(member, kind) for member in values])
    sizes = np.abs(expected)
    for pairs in ways(values, rng):
        chosen = pairs.exceeding(kind, [0.0, 0.3])
        floors = np.array([0.0, 0.3])[:, None, None]
        np.testing.assert_allclose(as_matrices(chosen, chosen.score), np.where(sizes > floors, expected, 0), atol=1e-5)
        assert chosen.weight.eq(1).all()
        np.testing.assert_array_equal(pairs.above(kind, [0.1, 0.3]), [(sizes[0] > 0.1).sum(), (sizes[1] > 0.3).sum()])
        for found, power in zip(pairs.moments(kind), (0, 1, 2), strict=True):
            np.testing.assert_allclose(found, [(s[s > 0] ** power).sum() for s in sizes], rtol=1e-5)
        np.testing.assert_allclose(pairs.sizes(), values.sum(1), rtol=1e-5)


@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("count", [1, 7, 30, 10_000])
@pytest.mark.parametrize("kind", KINDS)
def test_the_top_is_that_of_a_sort(kind, count, copies, rng, block):
    values = sparse_values(rng)
    for pairs in ways(values, rng):
        chosen = pairs.top(kind, [count, count + 3], copies)
        for m, n in enumerate((count, count + 3)):
            expected = np.sort(np.repeat(np.abs(scores(values[m], kind)).ravel(), copies))[::-1][:n].sum()
            mine = chosen.member == m
            assert float((chosen.weight * chosen.score.abs())[mine].sum()) == pytest.approx(expected, rel=1e-5)


def test_pairs_that_tie_for_the_last_places_share_them(rng, block):
    """Sums 6, 2, 2, 2 and then 1: three pairs share one place of the top two, or of four with each pair there twice."""
    values = np.zeros((1, 5, 6), np.float32)
    values[0, 0, [0, 1]] = 2, 3
    for sample, pair in enumerate([[2, 3], [0, 4], [1, 5]], start=1):
        values[0, sample, pair] = 1, 2
    values[0, 4, [2, 5]] = 1
    for pairs in ways(values, rng):
        for count, copies in ((2, 1), (4, 2)):
            chosen = pairs.top("raw", [count], copies)
            found = {
                (int(i), int(j)): float(w) for i, j, w in zip(chosen.first, chosen.second, chosen.weight, strict=True)
            }
            third = pytest.approx(copies / 3)
            assert found == {(0, 1): copies, (2, 3): third, (0, 4): third, (1, 5): third}
        assert sorted(pairs.top("raw", [3], 2).weight.tolist()) == pytest.approx([1 / 3, 1 / 3, 1 / 3, 2])


@pytest.mark.parametrize("kind", ["raw", "cosine"])
def test_gradients_are_those_of_autograd_through_the_whole_matrix(kind, rng, block):
    values = sparse_values(rng)

    def plain(f):
        unit = f / f.norm(dim=1, keepdim=True).clamp_min(1e-12) if kind == "cosine" else f
        upper = torch.triu(unit.mT @ unit, diagonal=1).flatten(1)
        return upper.topk(30).values.square().sum()

    exact = torch.from_numpy(values).double().requires_grad_()
    (expected,) = torch.autograd.grad(plain(exact), exact)
    expected = torch.where(exact != 0, expected, 0)  # a value of 0 did not fire
    for codes in (Codes.dense(torch.from_numpy(values)), slots(values, rng)):
        for way in (Listed, Blocked):
            leaf = codes.values.clone().requires_grad_()
            pairs = way.of(codes)
            chosen = pairs.top(kind, [30, 30])
            (found,) = torch.autograd.grad(pairs.differentiable(kind, chosen, leaf).square().sum(), leaf)
            wanted = expected if codes.features is None else expected.gather(-1, codes.features)
            scale = float(expected.abs().max())
            torch.testing.assert_close(found.double() / scale, wanted / scale, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["raw", "cosine"])
def test_gradients_are_those_of_finite_differences(kind, rng):
    values = torch.from_numpy(rng.uniform(0.5, 1.5, (2, 6, 5))).requires_grad_()

    def found(values):
        pairs = Blocked.of(Codes.dense(values))
        return pairs.differentiable(kind, pairs.top(kind, [4, 6]), values)

    assert torch.autograd.gradcheck(found, [values])


def test_a_pair_that_is_chosen_once_is_not_asked_for_twice(rng):
    pairs = find_pairs(Codes.dense(torch.from_numpy(sparse_values(rng))))
    assert pairs.top("cosine", [5, 5]) is pairs.top("cosine", [5, 5])
    assert pairs.top("cosine", [5, 5]) is not pairs.top("cosine", [5, 6])


def test_sparse_codes_go_by_lists_and_dense_ones_by_blocks(rng):
    sparse, dense = sparse_values(rng, shift=2.0), sparse_values(rng, shift=-1.0)
    assert isinstance(find_pairs(Codes.dense(torch.from_numpy(sparse))), Listed)
    assert isinstance(find_pairs(slots(sparse, rng)), Listed)
    assert isinstance(find_pairs(Codes.dense(torch.from_numpy(dense))), Blocked)
    assert isinstance(find_pairs(Codes.dense(torch.from_numpy(sparse).double())), Blocked)


def test_no_table_is_longer_than_what_fired_together_and_no_block_than_allowed(rng, monkeypatch):
    monkeypatch.setattr(blocked, "BLOCK", 4096)
    values = sparse_values(rng, shift=2.0, shape=(1, 64, 512))
    fired = (values != 0).sum(-1)
    codes = Codes.dense(torch.from_numpy(values))
    (block,) = Listed.of(codes).blocks("cosine")
    assert len(block.scores) <= (fired * (fired - 1) // 2).sum() < 512 * 511 / 2 / 4
    assert all(len(block.scores) <= 4096 for block in Blocked.of(codes).blocks("cosine"))


@pytest.mark.parametrize("way", [Listed, Blocked])
def test_where_nothing_fires_together_there_are_no_pairs(way):
    for values in (np.zeros((1, 4, 3), np.float32), np.eye(3, dtype=np.float32)[None]):
        pairs = way.of(Codes.dense(torch.from_numpy(values)))
        chosen = pairs.top("cosine", [2])
        assert len(chosen.score) == 0
        assert chosen.sum(chosen.score, 1).tolist() == [0]
        assert [float(found[0]) for found in pairs.moments("pearson")] == [0, 0, 0]


def test_how_many_is_a_share_of_all_pairs_unless_asked(rng):
    pairs = find_pairs(Codes.dense(torch.from_numpy(sparse_values(rng))))
    every = WIDTH * (WIDTH - 1) // 2
    assert pairs.how_many(0.1, None) == [every // 10] * 2
    assert pairs.how_many(torch.tensor([1e-6, 1.0]), None) == [1, every]
    assert pairs.how_many(0.1, torch.tensor([0, 12])) == [every // 10, 12]
    assert pairs.how_many(0.1, torch.tensor([1e9, 12])) == [every, 12]


def test_the_number_of_threads_does_not_change_a_bit(rng):
    values = torch.from_numpy(sparse_values(rng, shift=2.0, shape=(2, 64, 2048)))
    ends, most = [], numba.config.NUMBA_NUM_THREADS
    for threads in (most, 1):
        numba.set_num_threads(threads)
        pairs, leaf = Listed.of(Codes.dense(values)), values.clone().requires_grad_()
        chosen = pairs.top("cosine", [500, 900])
        (found,) = torch.autograd.grad(pairs.differentiable("cosine", chosen, leaf).square().sum(), leaf)
        ends.append([chosen.first, chosen.second, chosen.score, found])
    assert all(torch.equal(a, b) for a, b in zip(*ends, strict=True))
