import numpy as np
import pytest
import torch

from unbraid.codes import Codes
from unbraid.dictionaries import Dictionary, Stack
from unbraid.dictionaries.mechanisms import Forward, Signals, Sparsity
from unbraid.members import stack_configs


@pytest.mark.parametrize("layout", ["dense", "slots"])
@pytest.mark.parametrize(("form", "divisor"), [("per_sample", 1), ("published", 6)])
def test_the_cost_is_the_weighted_mean_of_the_l1_norm(form, divisor, layout, rng):
    values = np.maximum(rng.standard_normal((2, 5, 6)), 0)
    codes = Codes.dense(torch.from_numpy(values))
    if layout == "slots":
        codes = Codes(torch.arange(6).expand(2, 5, 6), torch.from_numpy(values), 6)
    stack = Stack.start(Dictionary(d_sae=6), 4, [0, 1])
    forward = Forward(torch.zeros(5, 4), codes, torch.zeros(2, 5, 4))
    weights, factors = [0.25, 2.0], [3.0, 0.5]
    mechanism = stack_configs([Sparsity(weight=weight, form=form) for weight in weights])
    cost = mechanism.penalty(forward, {}, stack, Signals(l1=torch.tensor(factors)))
    expected = [
        w * s * sum(map(sum, member)) / 5 / divisor for w, s, member in zip(weights, factors, values, strict=True)
    ]
    np.testing.assert_allclose(cost.numpy(), expected, rtol=1e-6)
