"""Plain torch's operations are numba's: whole steps of every rule, on the CPU and on the device that is not there."""

import pytest
import torch

from tests.dictionaries.training.test_every_rule import BATCH, RULES, WORLD, F, start, training
from unbraid.devices import Hardware
from unbraid.dictionaries import operations
from unbraid.dictionaries.lists import Inputs
from unbraid.dictionaries.mechanisms import LateralInhibition, Matryoshka, Sparsity
from unbraid.dictionaries.operations.plain import Plain
from unbraid.dictionaries.training.dense_step import dense_step
from unbraid.dictionaries.training.sparse_step import sparse_step
from unbraid.dictionaries.training.step import State, step
from unbraid.members import stack_configs

SPARSITY = {"sparsity": stack_configs([Sparsity(weight=weight) for weight in (0.1, 0.2, 0.3)])}
NESTED = {"matryoshka": stack_configs([Matryoshka(weight=w, prefixes=[0.5, 0.1, 0.5]) for w in (1.0, 0.5, 2.0)])}
INHIBITED = {"lateral_inhibition": stack_configs([LateralInhibition(every=1)] * 3)}


def close(found, expected):
    for name, tensor in expected.items():
        here, group = found[name].cpu(), name.partition(".")[0]
        if group in ("stack", "mean", "square"):
            near = torch.isclose(here, tensor, rtol=1e-4, atol=2e-5)
            assert near.double().mean() > 0.999, name
            torch.testing.assert_close(here, tensor, rtol=1e-2, atol=2e-3)
        else:
            torch.testing.assert_close(here, tensor, rtol=1e-4, atol=1e-5)


def compare(rule, settings, mechanisms, way=sparse_step, steps=3, change=lambda state: None):
    fast, slow = start(rule, mechanisms), start(rule, mechanisms)
    for state in (fast, slow):
        change(state)
    for position in range(steps):
        x = WORLD.batch(position, BATCH).x
        given = way(fast, Inputs(x), settings, mechanisms)
        assert given is not None
        expected = step(slow, x, settings, mechanisms)
        torch.testing.assert_close(given.l0, expected.l0)
        for name, cost in expected.terms.items():
            torch.testing.assert_close(given.terms[name].float(), cost.float(), rtol=1e-4, atol=1e-5)
    close(fast.tensors(), slow.tensors())


@pytest.fixture
def plain(monkeypatch):
    monkeypatch.setattr(operations, "of", lambda tensor: operations.PLAIN)


@pytest.mark.parametrize(
    "mechanisms", [SPARSITY, SPARSITY | NESTED, SPARSITY | INHIBITED], ids=["", "nested", "inhibit"]
)
@pytest.mark.parametrize("clip", [None, pytest.param(0.05, marks=pytest.mark.slow)])
@pytest.mark.parametrize("rule", RULES)
def test_a_step_by_plain_operations_is_the_readable_one(rule, clip, mechanisms, plain):
    compare(rule, training(clip=clip), mechanisms)


@pytest.mark.parametrize("loss", ["mean_square", "norm"])
def test_every_loss(loss, plain):
    compare("topk dying", training(reconstruction_loss=loss), NESTED)


@pytest.mark.parametrize("rule", ["relu", "jumprelu", "gated"])
def test_the_dense_way(rule, plain):
    def half(state):
        state.stack.encoder_bias.copy_(torch.tensor([0.6, 0.0, -0.3])[:, None].expand(3, F))

    compare(rule, training(), SPARSITY, dense_step, change=half)


def test_elsewhere_the_fast_step_is_taken(lazy, monkeypatch):
    """With the sums' one order: the same bits as plain torch gives here."""
    monkeypatch.setattr(operations, "CPU", operations.PLAIN)
    ends = []
    for device in ("cpu", lazy):
        state = State.start(*begin("topk", device))
        for position in range(3):
            x = WORLD.batch(position, BATCH).x.to(device)
            assert sparse_step(state, Inputs(x), training(), {}) is not None
        ends.append({name: tensor.cpu() for name, tensor in state.tensors().items()})
    assert all(torch.equal(tensor, ends[1][name]) for name, tensor in ends[0].items())


def begin(rule, device):
    from unbraid.dictionaries import Dictionary

    return (
        Dictionary(d_sae=F, activation=RULES[rule], pre_bias=True),
        32,
        {},
        [0, 1, 2],
        None,
        None,
        None,
        Hardware(device),
    )


def test_what_ties_for_last_is_the_first():
    rows = torch.tensor([[1.0, 2.0, 2.0, 2.0, -1.0], [0.0, 0.0, 0.0, 0.0, 5.0]])
    kept = rows.clone()
    Plain().keep_largest(kept, 2)
    assert kept.tolist() == [[0, 2, 2, 0, 0], [0, 0, 0, 0, 5]]
    assert Plain().largest(rows, 2).tolist() == [[1, 2], [4, -1]]


def test_every_operation_of_planted_directions():
    """Which only the CPU is asked for, where they pay."""
    planted = Inputs(WORLD.batch(0, BATCH).x, WORLD.batch(0, BATCH).truth, WORLD.directions).planted
    assert planted is not None
    products, bias = torch.randn(len(planted.directions), 7), torch.randn(7)
    codes = [torch.empty(BATCH, 7) for _ in range(2)]
    for one, given in zip((operations.CPU, operations.PLAIN), codes, strict=True):
        one.fire_planted(planted, products, bias, given)
    torch.testing.assert_close(*codes)
    sums = [one.add_planted(planted, codes[0]) for one in (operations.CPU, operations.PLAIN)]
    torch.testing.assert_close(*sums)
