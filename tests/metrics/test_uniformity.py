"""How uniform heads are: the seed's figures, rows of known sharpness, and what a causal mask alone gives."""

import numpy as np
import pytest
import torch

from unbraid.metrics.attention import allowed
from unbraid.metrics.uniformity import (
    classify,
    effective_keys,
    is_self_masked,
    most_row_std,
    query_variation,
    row_std,
    sharpness,
    uniform,
    uniform_row_std,
    without_self,
)

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
    found = row_std(uniform(causal(tokens, self_masked)))
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
    assert [classify(most_row_std(tokens)) for tokens in (97, 98)] == ["SHARP", "MEDIUM"]
    assert [classify(most_row_std(tokens)) for tokens in (397, 398)] == ["MEDIUM", "UNIFORM"]


def test_row_std_does_not_see_attention_to_oneself():
    own = torch.eye(64, dtype=torch.float64).expand(1, 1, 1, 64, 64)
    assert row_std(own).item() == 0
    assert sharpness(own, causal(64)).item() == 1


def test_row_std_is_numpys_nanstd_of_the_first_sequence_without_its_diagonal(rng):
    pattern = np.tril(rng.dirichlet([0.4] * 7, (2, 3, 4, 7)))  # m b h t s
    bare = np.where(np.eye(7, dtype=bool), np.nan, pattern[:, 0])
    np.testing.assert_allclose(row_std(torch.from_numpy(pattern)), np.nanstd(bare, axis=-1).mean(-1), rtol=1e-12)


def test_classes_are_the_seeds():
    """Its three printed heads, and the thresholds themselves, which are not above."""
    assert [classify(value) for value in (0.0243, 0.0343, 0.0684)] == ["UNIFORM", "UNIFORM", "MEDIUM"]
    assert [classify(value) for value in (0.05, 0.1, 0.100001)] == ["UNIFORM", "MEDIUM", "SHARP"]


def test_the_class_of_uniform_attention_depends_on_the_length():
    assert classify(uniform_row_std(64, self_masked=True)) == "UNIFORM"
    assert classify(uniform_row_std(24, self_masked=True)) == "MEDIUM"
    assert classify(uniform_row_std(9, self_masked=True)) == "SHARP"


@pytest.mark.parametrize("self_masked", [False, True])
@pytest.mark.parametrize("tokens", [3, 24, 64])
def test_sharpness_runs_from_uniform_to_one_key_at_any_length(tokens, self_masked):
    keys = causal(tokens, self_masked, sequences=2)
    first = torch.zeros(1, 2, 1, tokens, tokens, dtype=torch.float64)
    first[..., 0] = 1
    assert sharpness(uniform(keys), keys).item() == pytest.approx(0, abs=1e-12)
    assert sharpness(first, keys).item() == 1
    assert effective_keys(first, keys).item() == 1


def test_sharpness_and_effective_keys_of_known_rows():
    """Three queries have a choice, of 2, 3 and 4 keys; two keys alike of so many."""
    keys = causal(4)
    rows = torch.tensor([[1.0, 0, 0, 0], [0.5, 0.5, 0, 0], [0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]])
    pattern = rows.expand(1, 1, 1, 4, 4)
    assert effective_keys(pattern, keys).item() == pytest.approx(2)
    assert sharpness(pattern, keys).item() == pytest.approx((0 + 1 / 2 + 2 / 3) / 3)


def test_sharpness_of_padded_sequences_asks_only_for_keys_that_are_there():
    keys = allowed(torch.tensor([[True, True, True, False]]), causal=True)
    assert sharpness(uniform(keys), keys).item() == pytest.approx(0, abs=1e-12)


def test_a_token_without_another_keeps_itself():
    keys = causal(3, self_masked=True)[0].tolist()
    assert keys == [[True, False, False], [True, False, False], [True, True, False]]
    assert is_self_masked(uniform(causal(3, self_masked=True)))
    assert not is_self_masked(uniform(causal(3)))


def test_the_published_query_variation_is_that_of_the_causal_mask():
    """The author reports 0.501 for a sentence of 12 tokens as content; uniform attention has as much."""
    assert query_variation(uniform(causal(12, self_masked=True))).item() == pytest.approx(0.5003, abs=6e-5)


def test_query_variation_is_of_the_first_twenty_rows(rng):
    pattern = torch.from_numpy(np.tril(rng.dirichlet([0.4] * 25, (1, 2, 1, 25))))
    rows = pattern[0, 0, 0, :20].numpy()
    apart = [np.linalg.norm(rows[i] - rows[j]) for i in range(20) for j in range(i)]
    assert query_variation(pattern).item() == pytest.approx(np.mean(apart), rel=1e-12)
