"""Where heads look: rows of known entropy, pairs of known distance, and what uniform heads would give.
How uniform heads are: the published figures, rows of known sharpness, and what a causal mask alone gives.
Importance of heads from answers counted by hand, and the luck of the largest of many groups.
"""

import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon

from unbraid.metrics.attention import (
    FEWEST_QUESTIONS,
    allowed,
    attention_entropy,
    between_heads,
    chance_of_largest_drop,
    effective_keys,
    entropy,
    head_distances,
    importance,
    importance_by_group,
    is_self_masked,
    largest_drop,
    mean_effective_keys,
    most_row_std,
    needed,
    over_queries,
    query_variation,
    row_std,
    rows_of,
    sharpness,
    support_mass,
    uniform_attention,
    uniform_mass,
    uniform_row_std,
    without_self,
)
from unbraid.metrics.catalog import classify_row_std

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
    torch.testing.assert_close(attention_entropy(uniform(keys), keys), torch.ones(1, 2, 2, 4))


def test_the_spread_of_a_single_key_is_one_over_those_allowed():
    keys = allowed(MASK, causal=True)
    pattern = torch.eye(4).expand(1, 2, 1, 4, 4)
    expected = torch.tensor([[1, 1 / 2, 1 / 3, 1 / 4], [1, 1 / 2, 1 / 3, 1 / 3]])
    torch.testing.assert_close(attention_entropy(pattern, keys)[0, :, 0], expected)
    mean = over_queries(attention_entropy(pattern, keys), MASK[None, :, None])
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


LENGTHS = (24, 32, 50, 64, 94, 128)
FLOORS = {
    False: (0.0416, 0.0333, 0.0231, 0.0187, 0.0134, 0.0102),
    True: (0.0527, 0.0409, 0.0272, 0.0217, 0.0151, 0.0113),
}
"""Measured with the source's own code on exactly uniform attention."""


def causal(tokens: int, self_masked: bool = False, sequences: int = 1) -> torch.Tensor:
    keys = allowed(torch.ones(sequences, tokens, dtype=torch.bool), causal=True)
    return without_self(keys) if self_masked else keys


@pytest.mark.parametrize("self_masked", [False, True])
@pytest.mark.parametrize("place", range(len(LENGTHS)))
def test_the_floor_is_what_the_source_measures(place, self_masked):
    assert uniform_row_std(LENGTHS[place], self_masked) == pytest.approx(FLOORS[self_masked][place], abs=6e-5)


@pytest.mark.parametrize("self_masked", [False, True])
@pytest.mark.parametrize("tokens", [2, 3, 24, 64])
def test_the_floor_is_the_row_std_of_uniform_attention(tokens, self_masked):
    found = row_std(uniform_attention(causal(tokens, self_masked)))
    assert found.item() == pytest.approx(uniform_row_std(tokens, self_masked), abs=1e-9)


def test_a_single_token_has_neither_floor_nor_most():
    assert np.isnan(uniform_row_std(1, self_masked=False))
    assert np.isnan(most_row_std(1))


@pytest.mark.parametrize("tokens", [3, 24, 64])
def test_the_most_is_attention_to_a_single_other_token(tokens):
    first = torch.zeros(1, 1, 1, tokens, tokens, dtype=torch.float64)
    first[..., 0] = 1
    assert row_std(first).item() == pytest.approx(most_row_std(tokens), abs=1e-9)


def test_long_contexts_have_no_sharp_heads():
    assert [classify_row_std(most_row_std(tokens)) for tokens in (97, 98)] == ["SHARP", "MEDIUM"]
    assert [classify_row_std(most_row_std(tokens)) for tokens in (397, 398)] == ["MEDIUM", "UNIFORM"]


def test_row_std_does_not_see_attention_to_oneself():
    own = torch.eye(64, dtype=torch.float64).expand(1, 1, 1, 64, 64)
    assert row_std(own).item() == 0
    assert sharpness(own, causal(64)).item() == 1


def test_row_std_is_numpys_nanstd_of_the_first_sequence_without_its_diagonal(rng):
    pattern = np.tril(rng.dirichlet([0.4] * 7, (2, 3, 4, 7)))  # m b h t s
    bare = np.where(np.eye(7, dtype=bool), np.nan, pattern[:, 0])
    np.testing.assert_allclose(row_std(torch.from_numpy(pattern)), np.nanstd(bare, axis=-1).mean(-1), rtol=1e-12)


def test_classes_are_those_of_the_gauge_study():
    """Its three printed heads, and the thresholds themselves, which are not above."""
    assert [classify_row_std(value) for value in (0.0243, 0.0343, 0.0684)] == ["UNIFORM", "UNIFORM", "MEDIUM"]
    assert [classify_row_std(value) for value in (0.05, 0.1, 0.100001)] == ["UNIFORM", "MEDIUM", "SHARP"]


def test_the_class_of_uniform_attention_depends_on_the_length():
    assert classify_row_std(uniform_row_std(64, self_masked=True)) == "UNIFORM"
    assert classify_row_std(uniform_row_std(24, self_masked=True)) == "MEDIUM"
    assert classify_row_std(uniform_row_std(9, self_masked=True)) == "SHARP"


@pytest.mark.parametrize("self_masked", [False, True])
@pytest.mark.parametrize("tokens", [3, 24, 64])
def test_sharpness_runs_from_uniform_to_one_key_at_any_length(tokens, self_masked):
    keys = causal(tokens, self_masked, sequences=2)
    first = torch.zeros(1, 2, 1, tokens, tokens, dtype=torch.float64)
    first[..., 0] = 1
    assert sharpness(uniform_attention(keys), keys).item() == pytest.approx(0, abs=1e-12)
    assert sharpness(first, keys).item() == 1
    assert mean_effective_keys(first, keys).item() == 1


def test_sharpness_and_effective_keys_of_known_rows():
    """Three queries have a choice, of 2, 3 and 4 keys; two keys alike of so many."""
    keys = causal(4)
    rows = torch.tensor([[1.0, 0, 0, 0], [0.5, 0.5, 0, 0], [0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]])
    pattern = rows.expand(1, 1, 1, 4, 4)
    assert mean_effective_keys(pattern, keys).item() == pytest.approx(2)
    assert sharpness(pattern, keys).item() == pytest.approx((0 + 1 / 2 + 2 / 3) / 3)


def test_sharpness_of_padded_sequences_asks_only_for_keys_that_are_there():
    keys = allowed(torch.tensor([[True, True, True, False]]), causal=True)
    assert sharpness(uniform_attention(keys), keys).item() == pytest.approx(0, abs=1e-12)


def test_a_token_without_another_keeps_itself():
    keys = causal(3, self_masked=True)[0].tolist()
    assert keys == [[True, False, False], [True, False, False], [True, True, False]]
    assert is_self_masked(uniform_attention(causal(3, self_masked=True)))
    assert not is_self_masked(uniform_attention(causal(3)))


def test_the_published_query_variation_is_that_of_the_causal_mask():
    """The author reports 0.501 for a sentence of 12 tokens as content; uniform attention has as much."""
    assert query_variation(uniform_attention(causal(12, self_masked=True))).item() == pytest.approx(0.5003, abs=6e-5)


def test_query_variation_is_of_the_first_twenty_rows(rng):
    pattern = torch.from_numpy(np.tril(rng.dirichlet([0.4] * 25, (1, 2, 1, 25))))
    rows = pattern[0, 0, 0, :20].numpy()
    apart = [np.linalg.norm(rows[i] - rows[j]) for i in range(20) for j in range(i)]
    assert query_variation(pattern).item() == pytest.approx(np.mean(apart), rel=1e-12)


def test_importance_is_the_drop_and_needed_counts_only_what_goes_wrong():
    right = torch.tensor([[True, True, True, False]])
    without = torch.tensor([[[True, True, True, False], [False, False, True, True], [False] * 4]])
    torch.testing.assert_close(importance(right, without), torch.tensor([[0, 1 / 4, 3 / 4]]).double())
    torch.testing.assert_close(needed(right, without), torch.tensor([[0, 2 / 4, 3 / 4]]).double())


def test_a_head_may_matter_little_overall_and_wholly_for_one_group():
    """Of a hundred questions the last twenty go wrong without it."""
    right, groups = torch.ones(1, 100, dtype=torch.bool), torch.arange(100) // 20
    without = (groups < 4)[None, None]
    assert importance(right, without).item() == pytest.approx(0.2)
    assert importance_by_group(right, without, groups)[0, 0].tolist() == [0, 0, 0, 0, 1]
    assert largest_drop(right, without, [torch.zeros(100).long(), groups]).item() == 1


def test_small_groups_and_questions_of_no_group_are_left_out():
    right = torch.ones(1, 2 * FEWEST_QUESTIONS, dtype=torch.bool)
    groups = torch.cat([torch.zeros(FEWEST_QUESTIONS), torch.ones(FEWEST_QUESTIONS - 1), torch.tensor([-1.0])]).long()
    without = (groups == 0)[None, None]
    by_group = importance_by_group(right, without, groups)
    assert by_group[0, 0, 0] == 0
    assert by_group[0, 0, 1].isnan()
    assert largest_drop(right, without, [groups]).item() == 0
    assert largest_drop(right, without, [torch.where(groups == 1, 1, -1)]).isnan().all()


def test_chance_of_the_largest_drop_is_that_of_the_largest_of_so_many_normal_means(rng):
    """Each half of 2n is σ/√(2n) from the mean of all (drawn without return), and so the larger half |·|: σ/√(πn)."""
    n = 400
    right, groups = torch.ones(1, 2 * n, dtype=torch.bool), torch.arange(2 * n) % 2
    without = torch.from_numpy(rng.random((1, 30, 2 * n)) < 0.5)
    found = chance_of_largest_drop(right, without, [groups], np.random.default_rng(1))
    above = (found - importance(right, without)).mean().item()
    assert above == pytest.approx(0.5 / math.sqrt(math.pi * n), rel=0.1)


def test_where_groups_do_not_matter_the_largest_drop_over_several_groupings_is_at_its_chance(rng):
    """The largest of all is dealt anew, not the largest of the means: else the score would lie above by luck alone."""
    right, without = torch.ones(1, 600, dtype=torch.bool), torch.from_numpy(rng.random((1, 300, 600)) < 0.5)
    groupings = [torch.arange(600) % count for count in (2, 4, 6)]
    found = largest_drop(right, without, groupings) - chance_of_largest_drop(
        right, without, groupings, np.random.default_rng(1)
    )
    assert abs(found.mean().item()) < 3 * found.std().item() / math.sqrt(300)
