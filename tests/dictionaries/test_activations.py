import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from unbraid.dictionaries import Relu, TopK

pre_activations = arrays.arrays(
    np.float64, arrays.array_shapes(min_dims=3, max_dims=3, max_side=6), elements=st.floats(-10, 10)
)


@given(pre_activations)
def test_relu_keeps_what_is_positive(pre):
    codes = Relu().codes(torch.from_numpy(pre))
    assert np.array_equal(codes.to_dense().numpy(), np.where(pre > 0, pre, 0))


@given(pre_activations, st.data())
def test_top_k_keeps_the_k_largest_where_they_are_positive(pre, data):
    k = data.draw(st.integers(1, pre.shape[-1]))
    codes = TopK(k=k).codes(torch.from_numpy(pre))
    kept = codes.to_dense().numpy()
    assert (codes.l0() <= k).all()
    for sample, answer in zip(pre.reshape(-1, pre.shape[-1]), kept.reshape(-1, pre.shape[-1]), strict=True):
        largest = sorted(sample, reverse=True)[:k]
        assert sorted(answer[answer != 0]) == sorted(value for value in largest if value > 0)
        assert np.array_equal(answer[answer != 0], sample[answer != 0])


@pytest.mark.parametrize("k", [1, 3, 8])
def test_top_k_has_k_slots_however_wide_the_dictionary(k):
    assert TopK(k=k).codes(torch.randn(2, 3, 8)).values.shape == (2, 3, k)


def test_top_k_of_everything_is_relu():
    pre = torch.randn(2, 5, 7, generator=torch.Generator().manual_seed(0))
    assert torch.equal(TopK(k=7).codes(pre).to_dense(), Relu().codes(pre).to_dense())
