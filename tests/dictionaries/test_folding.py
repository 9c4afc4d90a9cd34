"""A folded dictionary does for activations what the dictionary does for normalized ones."""

import pytest
import torch
from torch.nn.functional import normalize

from unbraid.activations.normalization import Normalization
from unbraid.dictionaries import Dictionary
from unbraid.dictionaries.folding import fold
from unbraid.dictionaries.stack import ACTIVATIONS, Stack

KINDS = [{"kind": kind, "k": 4} if "topk" in kind else {"kind": kind} for kind in ACTIVATIONS]


def drawn(kind, pre_bias):
    """A stack with every tensor away from where it starts."""
    torch.manual_seed(0)
    stack = Stack.start(Dictionary(d_sae=9, activation=kind, pre_bias=pre_bias), 6, [0, 1])
    tensors = {
        name: t + 0.3 * torch.randn(t.shape) if t.dtype == torch.float32 else t for name, t in stack.tensors().items()
    }
    tensors["decoder"] = normalize(tensors["decoder"], dim=-1)
    if "threshold" in tensors:
        tensors["threshold"] = torch.tensor([0.4, 0.7], dtype=torch.float64)
    return Stack.of(tensors, stack.activation)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind["kind"])
@pytest.mark.parametrize("pre_bias", [False, True])
@pytest.mark.parametrize("scale", [0.05, 7.0])
def test_folding_is_normalizing_first_and_undoing_it_last(kind, pre_bias, scale):
    stack = drawn(kind, pre_bias)
    normalization = Normalization(torch.linspace(-3, 5, 6), scale)
    x = normalization.undo(2 * torch.randn(200, 6))
    folded, y = fold(stack, normalization), normalization.apply(x)
    codes, plain = folded.encode(x).to_dense(), stack.encode(y).to_dense()
    assert (plain != 0).any()
    torch.testing.assert_close(codes, scale * plain, rtol=1e-3, atol=1e-4 * scale)
    torch.testing.assert_close(
        folded.decode(folded.encode(x)), normalization.undo(stack.decode(stack.encode(y))), rtol=1e-3, atol=1e-3 * scale
    )
    torch.testing.assert_close(folded.decoder.norm(dim=-1), torch.ones(2, 9))


def test_folding_nothing_changes_nothing():
    stack = drawn({"kind": "relu"}, False)
    folded = fold(stack, Normalization(torch.zeros(6), 1.0))
    assert all(torch.equal(folded.tensors()[name], tensor) for name, tensor in stack.tensors().items())


def test_a_threshold_that_is_not_there_yet_stays_so():
    stack = Stack.start(Dictionary(d_sae=9, activation={"kind": "batchtopk", "k": 2}), 6, [0])
    assert fold(stack, Normalization(torch.zeros(6), 5.0)).memory["threshold"].tolist() == [-1.0]
