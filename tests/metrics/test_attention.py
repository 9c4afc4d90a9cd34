"""Where heads look: rows of known entropy, pairs of known distance, and what uniform heads would give."""

import math

import pytest
import torch
from scipy.spatial.distance import jensenshannon

from unbraid.metrics.attention import (
    allowed,
    between_heads,
    effective_keys,
    entropy,
    head_distances,
    over_queries,
    rows_of,
    spread,
    support_mass,
    uniform_mass,
)

MASK = torch.tensor([[True, True, True, True], [True, True, True, False]])


def uniform(keys: torch.Tensor, heads: int = 2) -> torch.Tensor:
    """One member whose heads look at every allowed key alike."""
    rows = keys / keys.sum(-1, keepdim=True)
    return rows[None, :, None].expand(1, -1, heads, -1, -1)


def test_the_keys_of_a_query_are_neither_padding_nor_after_it_if_causal():
    assert allowed(MASK, causal=True)[0].tolist() == torch.ones(4, 4).tril().bool().tolist()
    assert allowed(MASK, causal=True)[1, 3].tolist() == [True, True, True, False]
    assert allowed(MASK, causal=False)[1].tolist() == [[True, True, True, False]] * 4


def test_entropy_and_effective_keys_of_known_rows():
    rows = torch.tensor([[0.25] * 4, [1.0, 0, 0, 0], [0.5, 0.25, 0.25, 0]])
    torch.testing.assert_close(entropy(rows), torch.tensor([math.log(4), 0, 1.5 * math.log(2)]))
    torch.testing.assert_close(effective_keys(rows), torch.tensor([4, 1, 2**1.5]))


@pytest.mark.parametrize("causal", [True, False])
def test_the_spread_of_a_uniform_head_is_one_under_any_mask(causal):
    keys = allowed(MASK, causal)
    torch.testing.assert_close(spread(uniform(keys), keys), torch.ones(1, 2, 2, 4))


def test_the_spread_of_a_single_key_is_one_over_those_allowed():
    keys = allowed(MASK, causal=True)
    pattern = torch.eye(4).expand(1, 2, 1, 4, 4)
    expected = torch.tensor([[1, 1 / 2, 1 / 3, 1 / 4], [1, 1 / 2, 1 / 3, 1 / 3]])
    torch.testing.assert_close(spread(pattern, keys)[0, :, 0], expected)
    mean = over_queries(spread(pattern, keys), MASK[None, :, None])
    assert mean.item() == pytest.approx((2 * (1 + 1 / 2 + 1 / 3) + 1 / 4) / 7)  # the padded query is not asked


def test_the_distance_of_heads_is_the_jensen_shannon_distance_in_bits(rng):
    rows = torch.from_numpy(rng.dirichlet([0.3] * 5, (2, 3, 4, 5)))  # m b h t s
    queries = torch.ones(3, 5, dtype=torch.bool)
    queries[0, :2] = False
    found = head_distances(rows, queries[None, :, None])
    for one, other in ((0, 1), (0, 3), (2, 1)):
        asked = [(b, t) for b in range(3) for t in range(5) if queries[b, t]]
        apart = [jensenshannon(rows[1, b, one, t], rows[1, b, other, t], base=2) for b, t in asked]
        assert found[1, one, other].item() == pytest.approx(sum(apart) / len(apart))


def test_specialisation_is_nothing_for_heads_alike_and_one_for_heads_apart():
    keys = torch.ones(1, 3, 3, dtype=torch.bool)
    queries = torch.ones(1, 1, 1, 3, dtype=torch.bool)
    assert between_heads(head_distances(uniform(keys, 3), queries)).item() == 0
    apart = torch.eye(3)[None, None, :, None].expand(1, 1, 3, 3, 3)
    assert between_heads(head_distances(apart, queries)).item() == pytest.approx(1)
    half = torch.tensor([[1.0, 0, 0], [0.5, 0.5, 0]])[None, None, :, None].expand(1, 1, 2, 3, 3)
    divergence = -0.75 * math.log2(0.75) - 0.25 * math.log2(0.25) - 0.5
    assert between_heads(head_distances(half, queries)).item() == pytest.approx(math.sqrt(divergence))
    assert between_heads(head_distances(apart[:, :, :1], queries)).isnan().all()


def test_support_mass_is_read_at_the_token_that_asks():
    pattern = torch.zeros(1, 1, 2, 4, 4)
    pattern[0, 0, 0, 3] = torch.tensor([0.1, 0.6, 0.1, 0.2])
    pattern[0, 0, 0, 1] = torch.tensor([0.9, 0.1, 0, 0])
    pattern[0, 0, 1, (1, 3), 0] = 1
    asked = torch.tensor([[3, 1]])
    support = torch.tensor([[[False, True, True, False], [True, False, False, False]]])
    rows = rows_of(pattern, asked)
    torch.testing.assert_close(rows[0, 0, 0], pattern[0, 0, 0, [3, 1]])
    torch.testing.assert_close(support_mass(rows, support), torch.tensor([[(0.7 + 0.9) / 2, (0 + 1) / 2]]))


@pytest.mark.parametrize("causal", [True, False])
def test_a_uniform_head_has_the_uniform_mass(causal, rng):
    keys = allowed(MASK, causal)
    asked = torch.tensor([[3, 1], [2, 2]])
    support = torch.from_numpy(rng.random((2, 2, 4)) < 0.5) & keys[torch.arange(2)[:, None], asked]
    found = support_mass(rows_of(uniform(keys), asked), support)
    torch.testing.assert_close(found, uniform_mass(keys, asked, support).expand(1, 2))


def test_the_uniform_mass_of_a_known_case():
    """Two of four keys support the first question, one of two the second."""
    keys, asked = allowed(MASK[:1], causal=True), torch.tensor([[3, 1]])
    support = torch.tensor([[[True, True, False, False], [False, True, False, False]]])
    assert uniform_mass(keys, asked, support).item() == pytest.approx(0.5)


def test_heads_are_compared_where_both_are_asked_and_averaged_where_each_is(rng):
    rows = torch.from_numpy(rng.dirichlet([0.3] * 5, (2, 3, 2, 5)))
    queries = torch.from_numpy(rng.random((2, 3, 2, 5)) < 0.6)
    both = (queries[1, :, 0] & queries[1, :, 1]).nonzero().tolist()
    apart = [jensenshannon(rows[1, b, 0, t], rows[1, b, 1, t], base=2) for b, t in both]
    assert head_distances(rows, queries)[1, 0, 1].item() == pytest.approx(sum(apart) / len(apart))
    own = rows[1, :, 1, :, 0][queries[1, :, 1]]
    assert over_queries(rows[..., 0], queries)[1, 1].item() == pytest.approx(own.mean().item())


def test_heads_that_no_query_takes_together_are_neither_alike_nor_apart():
    """Three heads: the first two are never taken at one token, the third at all."""
    pattern = torch.eye(3)[None, None, :, None].expand(1, 1, 3, 4, 3)
    queries = torch.tensor([[1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 1, 1]]).bool()[None, None]
    found = head_distances(pattern, queries)
    assert found[0, 0, 1].isnan()
    assert between_heads(found).item() == pytest.approx(1)
    nobody = torch.zeros_like(queries)
    assert over_queries(torch.ones(1, 1, 3, 4), nobody).isnan().all()
