"""Random directions and true ones: the floor and the ceiling."""

import pytest
import torch

from unbraid.dictionaries import Dictionary, Stack
from unbraid.dictionaries.baselines import Oracle, Random
from unbraid.errors import UserError
from unbraid.metrics.recovery import cosines, mmcs
from unbraid.worlds import Superposition

WORLD = Superposition(dimensions=64, n_features=32, active=1.5, decay=0.9)


@pytest.mark.parametrize(("features", "floor", "ceiling"), [(128, 0.162, 0.371), (256, 0.176, 0.587), (512, 0.188, 1)])
def test_they_score_the_published_floor_and_ceiling(features, floor, ceiling):
    """Measured independently for d = 256 and 512 features: see the seed's facts, section 002."""
    world = Superposition()
    x = world.batch(0, 4).x
    bounds = Random(n_components=features).fit(x), Oracle(world=world, n_components=features).fit(x)
    found = [mmcs(cosines(world.directions, fitted.directions)).item() for fitted in bounds]
    assert found == pytest.approx([floor, ceiling], abs=0.01)


def test_random_directions_are_those_of_an_untrained_dictionary_with_the_same_seed():
    expected = Stack.start(Dictionary(d_sae=9), 64, [5]).directions
    assert torch.equal(Random(n_components=9, seed=5).fit(torch.ones(2, 64)).directions, expected)


def test_a_small_oracle_knows_the_most_frequent_features():
    known = Oracle(world=WORLD, n_components=3).fit(torch.ones(2, 64)).directions[0]
    assert torch.equal(known, WORLD.directions[:3])


def test_an_oracle_with_slots_enough_rebuilds_the_world():
    batch = WORLD.batch(0, 500)
    fitted = Oracle(world=WORLD, slots=12).fit(batch.x)
    left = (fitted.decode(fitted.encode(batch.x))[0] - batch.x).square().sum()
    assert left < 0.01 * batch.x.square().sum()
    alone = (batch.truth.to_dense()[0] != 0).sum(1) == 1
    torch.testing.assert_close(fitted.encode(batch.x).to_dense()[0][alone], batch.truth.to_dense()[0][alone])


def test_an_oracle_of_another_world_is_refused():
    with pytest.raises(UserError, match="world has 64 dimensions, and it was given rows of 12; accepted: rows of 64"):
        Oracle(world=WORLD).fit(torch.ones(2, 12))
