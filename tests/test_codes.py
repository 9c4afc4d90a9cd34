"""Both layouts against loops in plain Python, and against each other."""

import numpy as np
import pytest
import torch

from unbraid.codes import Codes

MEMBERS, SAMPLES, WIDTH, DIMENSIONS = 3, 7, 11, 5


@pytest.fixture
def values(rng):
    """What fired, dense: signed values, some samples with nothing, one with everything."""
    values = rng.standard_normal((MEMBERS, SAMPLES, WIDTH)) * (rng.random((MEMBERS, SAMPLES, WIDTH)) < 0.3)
    values[0, 0], values[1, 2] = 0, rng.standard_normal(WIDTH)
    return values


@pytest.fixture
def rows(rng):
    return rng.standard_normal((MEMBERS, WIDTH, DIMENSIONS))


def as_dense(values):
    return Codes.dense(torch.tensor(values))


def as_slots(values):
    """The same as slots in shuffled order, unused ones pointing anywhere with value 0."""
    rng = np.random.default_rng(1)
    features = np.zeros(values.shape, int)
    slot_values = np.zeros(values.shape)
    for m, b in np.ndindex(values.shape[:2]):
        order = rng.permutation(values.shape[2])
        features[m, b], slot_values[m, b] = order, values[m, b, order]
        unused = slot_values[m, b] == 0
        features[m, b, unused] = rng.integers(0, values.shape[2], unused.sum())
    return Codes(torch.tensor(features), torch.tensor(slot_values), values.shape[2])


layouts = pytest.mark.parametrize("layout", [as_dense, as_slots])


@layouts
def test_to_dense_has_each_value_at_its_feature(layout, values):
    assert np.array_equal(layout(values).to_dense().numpy(), values)


@layouts
def test_decode_is_the_sum_of_rows_times_values(layout, values, rows):
    expected = np.zeros((MEMBERS, SAMPLES, DIMENSIONS))
    for m, b, f in np.ndindex(values.shape):
        expected[m, b] += values[m, b, f] * rows[m, f]
    np.testing.assert_allclose(layout(values).decode(torch.tensor(rows)).numpy(), expected, rtol=1e-12, atol=1e-14)


@layouts
def test_counts_say_in_how_many_samples_each_feature_fired(layout, values):
    expected = [[sum(values[m, b, f] != 0 for b in range(SAMPLES)) for f in range(WIDTH)] for m in range(MEMBERS)]
    assert layout(values).counts().tolist() == expected


@layouts
def test_l0_and_l1_count_and_add_up_what_fired(layout, values):
    codes = layout(values)
    expected_l0 = [[sum(v != 0 for v in sample) for sample in member] for member in values]
    expected_l1 = [[sum(abs(v) for v in sample) for sample in member] for member in values]
    assert codes.l0().tolist() == expected_l0
    np.testing.assert_allclose(codes.l1().numpy(), expected_l1, rtol=1e-12)


@layouts
@pytest.mark.parametrize("face", ["to_dense", "decode", "l1"])
def test_gradients_are_those_of_finite_differences(layout, face, values, rows):
    codes = layout(values[:, :2])
    used = torch.where(codes.values == 0, 1.0, codes.values).requires_grad_()  # |v| has no derivative at 0
    table = torch.tensor(rows, requires_grad=True)

    def value(used, table):
        part = Codes(codes.features, used, WIDTH)
        return {"to_dense": part.to_dense, "l1": part.l1, "decode": lambda: part.decode(table)}[face]()

    assert torch.autograd.gradcheck(value, (used, table))


def test_both_layouts_send_the_same_gradient_to_the_rows(values, rows):
    gradients = []
    for layout in (as_dense, as_slots):
        table = torch.tensor(rows, requires_grad=True)
        decoded = layout(values).decode(table)
        gradients.append(torch.autograd.grad(decoded.square().sum(), table)[0])
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-12, atol=1e-12)


def test_members_do_not_read_one_anothers_rows(values, rows):
    rows[1:] = np.nan
    assert as_slots(values).decode(torch.tensor(rows))[0].isfinite().all()


@layouts
def test_at_gives_the_values_of_the_features_asked_for(layout, values, rng):
    asked = rng.integers(0, WIDTH, (MEMBERS, SAMPLES, 4))
    expected = [[values[m, b, asked[m, b]] for b in range(SAMPLES)] for m in range(MEMBERS)]
    assert np.array_equal(layout(values).at(torch.tensor(asked)).numpy(), np.array(expected))


def test_samples_after_one_another_are_those_of_all_parts():
    short = Codes(torch.tensor([[[2], [0]]]), torch.tensor([[[1.5], [0.5]]]), 4)
    long = Codes(torch.tensor([[[1, 3, 0]]]), torch.tensor([[[1.0, 2.0, 0.0]]]), 4)
    dense = Codes.dense(torch.tensor([[[0.0, 0.0, 0.0, 9.0]]]))
    lists = Codes.concatenate([short, long])
    assert lists.features is not None
    assert lists.to_dense().tolist() == [[[0, 0, 1.5, 0], [0.5, 0, 0, 0], [0, 1, 0, 2]]]
    assert Codes.concatenate([long, dense]).to_dense().tolist() == [[[0, 1, 0, 2], [0, 0, 0, 9]]]
