"""Stacks take arrays of any type and shape, and give codes dense, sparse or as lists."""

import copy

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from unbraid.config import check
from unbraid.dictionaries import Dictionary, Stack, TopK
from unbraid.dictionaries.stack import Target
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.fit import fit
from unbraid.errors import UserError

ROWS = np.random.default_rng(5).standard_normal((12, 3, 6)).astype(np.float32)
FORMS = {
    "numpy": lambda x: x.numpy(),
    "float64": lambda x: x.double().numpy(),
    "double tensor": lambda x: x.double(),
    "bfloat16": lambda x: x.bfloat16(),
    "float16": lambda x: x.half().numpy(),
    "sparse": lambda x: csr_array(x.numpy()),
}


@pytest.fixture(params=["relu", "topk", "batchtopk", "gated"])
def used(request):
    rule = {"kind": request.param, **({"k": 2} if "topk" in request.param else {})}
    return Stack.start(check(Dictionary, {"d_sae": 16, "activation": rule, "pre_bias": True}, "x"), 6, [0, 1])


@pytest.mark.parametrize("form", FORMS)
def test_rows_of_any_form_are_encoded_as_the_same_float32_tensor(used, form):
    plain = torch.from_numpy(ROWS[:, 0]).bfloat16().float()  # what every type holds exactly
    given = FORMS[form](plain)
    codes = used.encode(given)
    torch.testing.assert_close(codes.to_dense(), used.encode(plain).to_dense(), atol=1e-5, rtol=0)
    torch.testing.assert_close(used(given), used.decode(used.encode(plain)), atol=1e-5, rtol=0)


@pytest.mark.parametrize("make", [torch.from_numpy, np.asarray], ids=["tensor", "numpy"])
def test_sequences_keep_their_axes(used, make):
    codes, flat = used.encode(make(ROWS)), used.encode(torch.from_numpy(ROWS).flatten(0, 1))
    dense = flat.to_dense().view(2, 12, 3, 16)
    torch.testing.assert_close(codes.to_dense(), dense, atol=1e-5, rtol=0)
    assert torch.equal(codes.l0(), (dense != 0).sum(-1))
    assert torch.equal(codes.counts(), (dense != 0).sum((1, 2)))
    assert torch.equal(codes.lists().to_dense(), codes.to_dense())
    wanted = used.decode(flat).view(2, 12, 3, 6)
    for given in (codes, codes.lists(), dense, dense.numpy(), dense.double()):
        torch.testing.assert_close(used.decode(given), wanted, atol=1e-5, rtol=0)
    torch.testing.assert_close(used(make(ROWS)), wanted, atol=1e-5, rtol=0)


def test_sparse_codes_go_both_ways(used):
    codes = used.encode(ROWS)
    sparse = [codes.to_sparse(member) for member in range(2)]
    for member in range(2):
        np.testing.assert_array_equal(sparse[member].toarray(), codes.to_dense()[member].flatten(0, 1))
    torch.testing.assert_close(used.decode(sparse).view(2, 12, 3, 6), used(ROWS), atol=1e-5, rtol=0)
    alone = used.member(1)
    torch.testing.assert_close(alone.decode(sparse[1]), used.decode(sparse)[1:], atol=1e-5, rtol=0)


def test_many_rows_are_encoded_in_batches_and_only_what_fires_is_kept(monkeypatch):
    monkeypatch.setattr("unbraid.dictionaries.stack.BLOCK", 5)
    stack = Stack.start(Dictionary(d_sae=16, activation=TopK(k=2)), 6, [0, 1])
    many, seen = ROWS.reshape(-1, 6), []
    monkeypatch.setattr(
        "unbraid.dictionaries.stack.read_rows",
        lambda x, numbers: seen.append(len(numbers)) or torch.from_numpy(x[numbers]),
    )
    codes = stack.encode(many)
    assert seen == [5] * 7 + [1]
    assert codes.values.shape == (2, 36, 2)
    torch.testing.assert_close(codes.to_dense(), stack.encode(torch.from_numpy(many)).to_dense(), atol=1e-5, rtol=0)


def test_gradients_flow_through_sequences_and_other_types():
    stack = Stack.start(Dictionary(d_sae=16, activation=TopK(k=2)), 6, [0])
    x = torch.from_numpy(ROWS).double().requires_grad_()
    stack(x).square().sum().backward()
    flat = torch.from_numpy(ROWS).flatten(0, 1).requires_grad_()
    stack.decode(stack.encode(flat)).square().sum().backward()
    torch.testing.assert_close(x.grad.flatten(0, 1).float(), flat.grad)


def test_a_skip_transcoder_reads_any_rows():
    target = Target(4)
    stack = Stack.start(Dictionary(d_sae=16, skip=True), 6, [0, 1], target=target)
    stack.skip[:] = torch.arange(24.0).view(6, 4)
    wanted = stack.decode(stack.encode(torch.from_numpy(ROWS[:, 0])), torch.from_numpy(ROWS[:, 0]))
    torch.testing.assert_close(stack(ROWS)[:, :, 0], wanted)
    torch.testing.assert_close(stack.decode(stack.encode(ROWS), ROWS)[:, :, 0], wanted)


def test_rows_and_codes_of_another_size_are_refused(used):
    with pytest.raises(UserError, match="6 dimensions"):
        used.encode(np.ones((3, 5)))
    with pytest.raises(UserError, match="shape \\(6,\\)"):
        used.encode(np.ones(6))
    with pytest.raises(UserError, match="2 of 16"):
        used.decode(np.ones((1, 3, 16)))
    with pytest.raises(UserError, match="str"):
        used.decode("codes")


def test_a_feature_is_known_with_where_it_fires():
    stack = Stack.start(Dictionary(d_sae=5), 4, [0, 1])
    stack.decoder[0, 3] = stack.decoder[0, 1]
    feature = stack.feature(3, torch.cat([torch.zeros(2, 4), stack.encoder[0, 3:4], 2 * stack.encoder[0, 3:4]]), top=2)
    of_first = feature.top[feature.top["member"] == 0]
    assert of_first["row"].tolist() == [3, 2]
    np.testing.assert_allclose(of_first["code"], [2, 1], rtol=1e-5)
    assert feature.density[0] == 0.5
    assert feature.mean[0] == pytest.approx(1.5)
    nearest = feature.nearest[feature.nearest["member"] == 0]
    assert nearest["feature"].iloc[0] == 1
    assert nearest["cosine"].iloc[0] == pytest.approx(1)
    assert 3 not in nearest["feature"].tolist()
    with pytest.raises(UserError, match="0 to 4"):
        stack.feature(5)


def test_a_copy_is_without_the_training():
    stack = fit(np.ones((4, 3)) + np.eye(4, 3), Dictionary(d_sae=4, activation=TopK(k=1)), training=Training(steps=2))
    assert stack.training is not None
    assert copy.deepcopy(stack).training is None
    assert torch.equal(copy.deepcopy(stack).encoder, stack.encoder)
