import numpy as np
import pytest
import torch

from unbraid.codes import Codes
from unbraid.config import check
from unbraid.dictionaries import Dictionary, Stack
from unbraid.dictionaries.mechanisms import Forward, Matryoshka, Signals
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.fit import fit
from unbraid.errors import UserError
from unbraid.members import stack_configs
from unbraid.worlds import Superposition


@pytest.mark.parametrize("layout", ["dense", "slots"])
@pytest.mark.parametrize("pre_bias", [False, True])
def test_the_cost_is_the_error_of_every_prefix_alone(layout, pre_bias, rng):
    values, x = np.maximum(rng.standard_normal((2, 5, 7)), 0), rng.standard_normal((5, 4))
    codes = Codes.dense(torch.from_numpy(values))
    if layout == "slots":
        order = rng.permutation(7)
        codes = Codes(torch.from_numpy(order).expand(2, 5, 7), torch.from_numpy(values[..., order]), 7)
    start = Stack.start(Dictionary(d_sae=7, pre_bias=pre_bias), 4, [0, 1])
    stack = start.with_parameters(
        {name: torch.from_numpy(rng.standard_normal(p.shape)) for name, p in start.parameters().items()}
    )
    forward = Forward(torch.from_numpy(x), codes, stack.decode(codes))
    weights = [0.5, 2.0]
    cost = stack_configs([Matryoshka(weight=weight, prefixes=[0.1, 0.5]) for weight in weights])
    centre = stack.pre_bias.numpy() if pre_bias else np.zeros((2, 4))
    expected = [
        weight * sum(((values[m, :, :n] @ stack.decoder[m, :n].numpy() + centre[m] - x) ** 2).sum() / 5 for n in (1, 4))
        for m, weight in enumerate(weights)
    ]
    np.testing.assert_allclose(cost.penalty(forward, {}, stack, Signals()).numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("prefixes", [[], [0.0], [0.5, 1.0]])
def test_prefixes_are_shares_of_the_features(prefixes):
    with pytest.raises(UserError, match="prefixes"):
        check(Matryoshka, {"prefixes": prefixes}, "here")


def test_the_first_features_explain_more_than_they_would():
    world = Superposition(dimensions=8, n_features=12, active=2.0)
    training = Training(steps=60, batch=32, learning_rate=0.02)
    explained = []
    for mechanisms in ([], [Matryoshka(prefixes=[0.25])]):
        stack = fit(world, Dictionary(d_sae=12), mechanisms, training, seeds=[0])
        batch = world.batch(0, 512, split="evaluation").x
        first = stack.encode(batch).to_dense()[..., :3] @ stack.decoder[:, :3]
        explained.append(float(1 - (first[0] - batch).square().sum() / batch.square().sum()))
    assert explained[1] > explained[0] + 0.1
