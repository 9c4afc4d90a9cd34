"""Scores of planted connections and of shared factors: values by hand, an independent AUROC, and chance."""

import doctest

import pytest
import torch
from sklearn.metrics import roc_auc_score

from unbraid.dictionaries import Dictionary, Stack
from unbraid.dictionaries.stack import Target
from unbraid.evaluation.dictionaries import score
from unbraid.metrics import circuits
from unbraid.worlds import PlantedMap, PlantedPair


def test_the_example_runs():
    assert doctest.testmod(circuits).failed == 0


def test_auroc_is_scikit_learns_with_ties():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 6, (3, 50), generator=generator).double()
    positive = torch.rand(50, generator=generator) < 0.3
    expected = [roc_auc_score(positive.numpy(), row.numpy()) for row in scores]
    torch.testing.assert_close(circuits.auroc(scores, positive), torch.tensor(expected, dtype=torch.float64))
    assert circuits.auroc(scores, torch.ones(50, dtype=torch.bool)).isnan().all()


def test_edges_by_hand():
    """Feature 1 reads factor 0 and writes target 0; factor 1 is read by feature 0, which writes -(0 and 1) alike."""
    written = torch.tensor([[[-1.0, -1.0, 0.0], [2.0, 0.0, 0.0]]])
    matched = torch.tensor([[1, 0, -1]])
    connection = circuits.connections(written, torch.eye(3), matched)
    half = 2**-0.5
    torch.testing.assert_close(connection, torch.tensor([[[1.0, 0, 0], [half, half, 0], [0.0, 0, 0]]]))
    edges = torch.tensor([[True, False, False], [False, True, False], [False, False, True]])
    assert circuits.edge_f1(connection, edges).item() == pytest.approx(2 / 3)
    # positives 1, .71, 0 against .71 and five 0: 6 + (5 + ½) + 5 · ½ of 18
    assert circuits.edge_auroc(connection, edges).item() == pytest.approx(14 / 18)


def test_shared_by_hand():
    written = torch.tensor([[[1.0, 0, 0, 1], [1, 0, 0, 0], [0, 0, 3, 4.0], [0, 3, 1, 0]]])
    relative = circuits.relative_norm(written, (2, 2))
    torch.testing.assert_close(relative, torch.tensor([[0.5, 0, 1, 0.25]], dtype=torch.float64))
    shared = circuits.sharedness(relative, torch.tensor([[0, 1, 2, 3, -1]]))
    torch.testing.assert_close(shared, torch.tensor([[1, 0, 0, 0.5, 0]], dtype=torch.float64))
    truth = torch.tensor([True, False, False, False, True])  # one shared called so, one missed; two of three singles
    assert circuits.shared_accuracy(shared, truth).item() == pytest.approx((1 / 2 + 2 / 3) / 2)


MAP = PlantedMap(dimensions=24, n_features=24, d_out=24, n_targets=24, fan_out=2, active=2.0)


def test_a_transcoder_that_is_the_planted_map_is_found_to_be_it_and_a_random_one_not():
    stack = Stack.start(Dictionary(d_sae=24), 24, [0], target=Target(24))
    truth = {"encoder": MAP.directions[None], "decoder": (MAP.circuit.edges @ MAP.circuit.directions)[None]}
    scores, chance = score(stack.with_parameters(truth), MAP, 512), score(stack, MAP, 512)
    assert scores.values["mmcs"].item() == pytest.approx(1, abs=1e-5)
    assert scores.values["edge_auroc"] > 0.97
    assert scores.values["edge_f1"] == pytest.approx(scores.ceiling["edge_f1"])
    assert 0.4 < chance.values["edge_auroc"] < 0.6
    assert 0.4 < scores.chance["edge_auroc"] < 0.6
    assert scores.chance["edge_f1"] < 0.2  # 2 of 24 pairs are edges


def test_the_ceiling_knows_the_circuit_with_all_that_is_not_linear_in_it():
    world = PlantedMap(**{**MAP.to_dict(), "inhibitory": 0.5, "threshold": 0.1})
    scores = score(Stack.start(Dictionary(d_sae=24), 24, [0], target=Target(24)), world, 512)
    assert scores.ceiling["explained_variance"] == pytest.approx(1, abs=1e-6)


def test_a_perfect_skip_path_explains_a_linear_map():
    """Without a threshold and with positive edges the target is linear in x, where factors are orthogonal."""
    stack = Stack.start(Dictionary(d_sae=4, skip=True), 24, [0], target=Target(24))
    inverse = torch.linalg.pinv(MAP.directions)
    linear = {"skip": (inverse @ MAP.circuit.edges @ MAP.circuit.directions)[None], "encoder": 0 * stack.encoder}
    scores = score(stack.with_parameters(linear), MAP, 512)
    assert scores.values["explained_variance"].item() == pytest.approx(1, abs=1e-4)


def test_a_crosscoder_that_is_the_planted_pair_knows_what_is_shared_and_a_random_one_does_not():
    world = PlantedPair(dimensions=32, n_features=40, active=2.0)
    stack = Stack.start(Dictionary(d_sae=40), 32, [0], target=Target(sites=world.sites))
    truth = {"encoder": world.directions[None], "decoder": world.directions[None]}
    scores, chance = score(stack.with_parameters(truth), world, 512), score(stack, world, 512)
    assert scores.values["shared_auroc"].item() == scores.values["shared_accuracy"].item() == 1
    assert 0.3 < chance.values["shared_auroc"] < 0.7
    assert chance.values["shared_accuracy"] == 0.5  # random rows are in both alike
