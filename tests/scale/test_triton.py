"""Every Triton kernel, in Triton's interpreter, against plain torch, and whole steps against the readable one.

The interpreter runs a kernel's programs one by one in numpy: it knows their arithmetic, their masks and their places in
memory, and nothing of compiling for a GPU, of its memory, or of programs that run at once.
"""

import os
import subprocess
import sys

import pytest
import torch

from unbraid.dictionaries import BatchTopK, Dictionary, Gated, JumpRelu, Relu, TopK, operations
from unbraid.dictionaries.auxk import AuxK
from unbraid.dictionaries.lists import Inputs, Lists
from unbraid.dictionaries.mechanisms import Matryoshka, Sparsity
from unbraid.dictionaries.operations import cuda
from unbraid.dictionaries.operations.contract import Rates, Rows, Sums
from unbraid.dictionaries.operations.cuda import Cuda
from unbraid.dictionaries.operations.plain import Plain, listed
from unbraid.dictionaries.stack import Stack
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.sparse_step import sparse_step
from unbraid.dictionaries.training.step import State, step
from unbraid.members import stack_configs
from unbraid.worlds import Superposition

pytestmark = pytest.mark.scale
M, B, F, D, K = 2, 6, 11, 5, 4
"""Nothing is a power of two, so that every mask is at work."""
KERNELS, PLAIN = Cuda(), Plain()
SMALL = Superposition(dimensions=D, n_features=7, active=2.0)
RULES = {
    "relu": Relu(),
    "topk dying": TopK(k=3, auxk=AuxK(k=2)),
    "batchtopk": BatchTopK(k=3),
    "jumprelu": JumpRelu(threshold=0.3, bandwidth=0.2),
    "gated": Gated(),
}


@pytest.fixture
def drawn():
    """Lists of some samples, one of them empty and one full; and a generator."""
    rng = torch.Generator().manual_seed(0)
    counts = torch.tensor([[0, K, 2, 1, 3, K], [K, 1, 0, 2, 2, 3]])
    order = torch.rand(M, B, F, generator=rng).argsort(-1)[..., :K]
    used = torch.arange(K) < counts[..., None]
    features = torch.where(used, order, F).sort(-1).values
    features = torch.where(used, features, 0).int()
    values = torch.where(used, torch.rand(M, B, K, generator=rng) + 0.1, 0)
    return Lists(features, values, counts, F), rng


def same(found, expected):
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rule", RULES)
def test_select(rule):
    stack = Stack.start(Dictionary(d_sae=F, activation=RULES[rule]), D, [0, 1])
    x = SMALL.batch(0, 7).x
    pre = stack.pre_activations(x)
    kept = listed(stack, pre)
    slots = int(kept.sum(-1).max())
    places = torch.where(kept, kept.cumsum(-1) - 1, slots)
    same(KERNELS.compact(pre, places, slots), PLAIN.compact(pre, places, slots))


@pytest.mark.parametrize("edges", [[F], [3, 3, 8, F]])
def test_sparse_decode_and_gradients_of_codes(edges, drawn):
    lists, rng = drawn
    rows = torch.randn(M, F, D, generator=rng)
    edges = torch.tensor(edges)
    same(
        [KERNELS.partial_sums(lists.features, lists.values, edges, rows)],
        [PLAIN.partial_sums(lists.features, lists.values, edges, rows)],
    )
    errors = torch.randn(M, len(edges), B, D, generator=rng)
    segments = torch.bucketize(lists.features, edges, right=True)
    given = lists.features, segments, errors, rows
    same([KERNELS.slot_products(*given)], [PLAIN.slot_products(*given)])


@pytest.mark.parametrize("dimensions", [D, 300])
@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("dead", [0, 3])
def test_sums_by_feature(centred, dead, dimensions, drawn):
    lists, rng = drawn
    events = PLAIN.sort_by_feature(lists, lists.values.square())
    places = torch.full((M, F), -1, dtype=torch.int32)
    places[:, :dead] = torch.arange(M * dead, dtype=torch.int32).view(M, dead)

    def draw(*shape):
        return torch.randn(*shape, generator=rng)

    sums = Sums(
        events,
        draw(B, dimensions),
        draw(M, 2, B, dimensions),
        torch.arange(F) // 6,
        draw(M, dimensions if centred else 0),
        places,
        draw(M * dead, dimensions + 1),
        draw(M * dead, dimensions),
    )
    same(KERNELS.row_gradients(sums), PLAIN.row_gradients(sums))


def test_adam_rows(drawn):
    _, rng = drawn

    def draw():
        return torch.rand(M, F, D, generator=rng)

    tensors = [draw() for _ in range(6)]
    both = [Rows(*(tensor.clone() for tensor in tensors)) for _ in range(2)]
    gradients, rates = (draw(), draw()), Rates(torch.rand(M, F, generator=rng), torch.rand(M, F, generator=rng))
    for one, rows in zip((KERNELS, PLAIN), both, strict=True):
        one.adam_rows(*gradients, rates, rows)
    same(both[0].tensors(), both[1].tensors())
    torch.testing.assert_close(both[0].decoder.norm(dim=-1), torch.ones(M, F))


def step_by(way, rule, clip, mechanisms, steps=2):
    """The tensors after some steps of a small dictionary, of which something is dead."""
    dictionary = Dictionary(d_sae=F, activation=RULES[rule], pre_bias=True)
    state = State.start(dictionary, D, mechanisms, [0, 1])
    if rule == "topk dying":
        state.since_fired[:, :5] = 10**6  # pyright: ignore[reportOptionalSubscript]
    settings = stack_configs([Training(batch=B, learning_rate=1e-2, clip=clip)] * M)
    for position in range(steps):
        x = SMALL.batch(position, B).x
        assert way(state, Inputs(x) if way is sparse_step else x, settings, mechanisms) is not None
    return state.tensors()


@pytest.mark.parametrize("clip", [None, 0.05])
@pytest.mark.parametrize("rule", RULES)
def test_a_step_by_kernels_is_the_readable_one(rule, clip, monkeypatch):
    monkeypatch.setattr(operations, "of", lambda tensor: KERNELS)
    monkeypatch.setattr("unbraid.dictionaries.operations.plain.DENSE_SHARE", 1.0)
    mechanisms = {"sparsity": stack_configs([Sparsity()] * M)}
    mechanisms |= {"matryoshka": stack_configs([Matryoshka(prefixes=[0.3])] * M)} if rule == "batchtopk" else {}
    found, expected = (step_by(way, rule, clip, mechanisms) for way in (sparse_step, step))
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=1e-5, msg=name)


def test_the_same_bits_however_often(monkeypatch):
    monkeypatch.setattr(operations, "of", lambda tensor: KERNELS)
    once, again = (step_by(sparse_step, "topk dying", None, {}) for _ in range(2))
    assert all(torch.equal(tensor, again[name]) for name, tensor in once.items())


def test_every_kernel_compiles_for_gpus_without_one():
    """To machine code of two generations, without an instruction by which programs add to one place."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-W", "ignore", "-m", "tests.scale.compile_kernels"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    kernels = {name for name, value in vars(cuda).items() if isinstance(value, type(cuda._select))}
    assert set(done.stdout.split()) == kernels
