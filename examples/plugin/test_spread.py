"""Its cost on paper, and that it lowers what it is about."""

import torch
from unbraid_spread import DecoderSpread

import unbraid as ub


def test_its_cost_is_that_on_paper():
    """Two rows at a right angle: each is 45° from their mean, so cos² is a half."""
    stack = ub.Stack.start(ub.Dictionary(d_sae=2), 2, [0])
    stack = stack.with_parameters({**stack.parameters(), "decoder": torch.eye(2)[None]})
    cost = DecoderSpread(weight=3.0).penalty(None, {}, stack, None)
    torch.testing.assert_close(cost, torch.tensor([1.5]))


def test_it_lowers_what_rows_have_in_common():
    world = ub.Superposition(dimensions=16, n_features=24, active=2.0)
    training = ub.Training(steps=40, batch=64, learning_rate=1e-2)
    mean_length = [
        ub.fit(world, ub.Dictionary(d_sae=24), [DecoderSpread(weight=weight)], training, seeds=[0, 1])
        .directions.mean(1)
        .norm(dim=-1)
        for weight in (0.0, 5.0)
    ]
    assert (mean_length[1] < mean_length[0]).all()
