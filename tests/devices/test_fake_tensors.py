"""Under torch's own `FakeTensorMode`: shapes, types and devices, of what looks at no value.

On a fake cuda, where torch was built for CUDA. In one that was built for CPUs products on it fail and autograd aborts,
for want of a device guard; there the fake device is called "lazy", which has one. It is of dictionaries in use, and of
metrics: the rest looks at values.
"""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.devices.test_metrics import CASES
from unbraid.dictionaries import BatchTopK, Gated, JumpRelu, Relu, Stack, TopK
from unbraid.dictionaries.variational import Variational

RULES = [Relu(), TopK(k=4), BatchTopK(k=4), JumpRelu(), Gated(), Variational()]
FAKE = "cuda" if torch.backends.cuda.is_built() else "lazy"
BY_VALUES = {"match", "concept_fates", "redundancy"}
"""Metrics that look at values."""


@pytest.fixture
def fake():
    with FakeTensorMode(), torch.no_grad():
        yield


def stack_of(rule, precision):
    with torch.device(FAKE):
        rows, numbers = torch.zeros(2, 24, 8), torch.zeros(2, 24)
        own = {name: torch.zeros(2, 24) for name in rule.parameters(2, 24)}
        memory = {name: torch.zeros(2, dtype=torch.float64) for name in rule.memory([0, 1])}
        return Stack(rows, numbers, rows.clone(), torch.zeros(2, 8), rule, own, memory, precision=precision)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_a_dictionary_in_use(rule, precision, fake):
    stack, x = stack_of(rule, precision), torch.zeros(5, 8, device=FAKE)
    codes = stack.encode(x)
    made = stack.decode(codes, x)
    assert made.shape == (2, 5, 8)
    found = [codes.values, made, codes.counts(), codes.l0(), codes.l1(), codes.to_dense(), stack.probabilities(x)]
    assert {tensor.device.type for tensor in found} == {FAKE}
    assert {codes.values.dtype, made.dtype} == {torch.float32}
    if codes.features is not None:
        assert codes.values.shape[-1] == 4  # lists of bounded room


def test_it_refuses_what_a_gpu_refuses(fake):
    stack = stack_of(Relu(), "float32")
    with pytest.raises(RuntimeError, match=r"device"):
        stack.pre_activations(torch.zeros(5, 8))
    with pytest.raises(RuntimeError, match=r"numpy"):
        stack.encoder.numpy()
    assert stack.encode(torch.zeros(5, 8)).values.device.type == "cpu"  # it answers where it is asked


@pytest.mark.parametrize("name", sorted(CASES.keys() - BY_VALUES))
def test_metrics(name, fake):
    metric, *given = CASES[name]
    found = metric(*(torch.zeros(tensor.shape, dtype=tensor.dtype, device=FAKE) for tensor in given))
    assert found.device.type == FAKE
