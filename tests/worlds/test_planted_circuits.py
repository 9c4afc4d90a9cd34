"""Planted maps and pairs: what the battery of worlds cannot know."""

import numpy as np
import pytest
import torch

from unbraid.worlds import PlantedMap, PlantedPair

MAP = PlantedMap(
    dimensions=16, n_features=24, active=3.0, d_out=10, n_targets=20, fan_out=3, inhibitory=0.4, threshold=0.1
)


def test_targets_are_what_the_circuit_makes_of_what_fired():
    batch = MAP.batch(2, 40)
    strengths, edges = batch.truth.to_dense()[0].numpy(), MAP.circuit.edges.numpy()
    expected = np.zeros((40, 10))
    for sample, j in np.ndindex(40, 20):
        drive = sum(strengths[sample, i] * edges[i, j] for i in range(24))
        expected[sample] += max(0, drive - 0.1) * MAP.circuit.directions[j].numpy()
    np.testing.assert_allclose(batch.target.numpy(), expected, atol=1e-5)


def test_edges_are_as_many_and_as_negative_as_asked():
    circuit = PlantedMap(n_features=2000, n_targets=50, fan_out=4, inhibitory=0.25).circuit
    assert ((circuit.edges != 0).sum(1) == 4).all()
    sizes = circuit.edges[circuit.edges != 0]
    assert 0.22 < (sizes < 0).double().mean() < 0.28  # 8,000 draws: ± 6 standard errors
    assert sizes.abs().min() >= 0.5
    assert sizes.abs().max() <= 1
    torch.testing.assert_close(circuit.directions.norm(dim=1), torch.ones(50))


def test_another_seed_plants_another_circuit():
    other = PlantedMap(**{**MAP.to_dict(), "seed": 1})
    assert not torch.equal(MAP.circuit.edges, other.circuit.edges)


def test_more_edges_than_targets_are_refused():
    with pytest.raises(ValueError, match="fan_out is 9; accepted: at most n_targets, 8"):
        PlantedMap(n_targets=8, fan_out=9)


def test_factors_are_in_the_models_that_presence_says():
    world = PlantedPair(dimensions=32, n_features=101, shared=0.4, imbalance=0.5)
    norms = torch.stack([part.norm(dim=1) for part in world.directions.split(world.sites, dim=1)], 1)
    assert torch.equal(norms > 0, world.presence)
    assert world.presence.sum(0).tolist() == [71, 70]  # 40 in both, 31 and 30 in one
    angles = torch.rad2deg(torch.atan2(norms[:, 1], norms[:, 0]))[world.presence.all(1)]
    assert 22.5 <= angles.min() < 28
    assert 62 < angles.max() <= 67.5


def test_a_pair_needs_an_even_width():
    with pytest.raises(ValueError, match="accepted: an even number"):
        PlantedPair(dimensions=7)
