"""Dictionaries against factors that are planted by hand in activations: who says what, and what chance would."""

import numpy as np
import pytest
import torch

from unbraid.activations.shards import Manifest, Origin, write_shard
from unbraid.codes import Codes
from unbraid.dictionaries import Dictionary, Stack
from unbraid.evaluation.factors import Concepts, codes_to_rows, from_chance, score_factors
from unbraid.evaluation.feature_pages import FeaturePages, correlations
from unbraid.randomness import stream
from unbraid.worlds.activations import Activations

FACTORS = {"person": ("mary", "john"), "place": ("garden", "office", "kitchen")}
LENGTH, STORIES = 8, 600


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Each concept has a dimension of its own; a person is known in all tokens, a place in the second half."""
    folder, rng = tmp_path_factory.mktemp("planted") / "kept", np.random.default_rng(0)
    who, where = (np.repeat(rng.integers(0, len(values), STORIES), LENGTH) for values in FACTORS.values())
    positions = np.tile(np.arange(LENGTH), STORIES)
    where = np.where(positions >= LENGTH // 2, where, -1)
    x = np.zeros((STORIES * LENGTH, 5), np.float32)
    x[np.arange(len(x)), who] = 1
    x[where >= 0, 2 + where[where >= 0]] = 1
    columns = {"tokens": 1 + positions % 4, "positions": positions, "documents": np.repeat(np.arange(STORIES), LENGTH)}
    columns |= {"factor.person": who, "factor.place": where}
    tensors = {name: torch.from_numpy(column.astype(np.int32)) for name, column in columns.items()}
    shard = write_shard(folder, 0, {"activations": torch.from_numpy(x), **tensors})
    origin = {"model": "m", "weights": "w", "tokenizer": "t", "site": "s", "text": "x", "text_sha256": "y"}
    sizes = {"width": 5, "dtype": "float32", "context": LENGTH, "batch": 1, "tokens": len(x), "shard_tokens": len(x)}
    Manifest(origin=Origin(**origin, **sizes, factors=FACTORS), shards=(shard,)).write(folder)
    return Activations.model_validate({"path": str(folder), "normalize": "none"})


def stack_of(rows: torch.Tensor, bias: float) -> Stack:
    """A relu dictionary that fires where one of these directions exceeds a threshold."""
    start = Stack.start(Dictionary(d_sae=len(rows)), rows.shape[1], [0])
    tensors = {name: torch.zeros_like(p) for name, p in start.tensors().items()}
    tensors["encoder"], tensors["decoder"] = rows[None].clone(), rows[None].clone()
    tensors["encoder_bias"] += bias
    return Stack.of(tensors, start.activation)


def test_concepts_are_the_values_of_factors(world):
    concepts = Concepts.of(world, 10**6)
    assert [concepts.label(c) for c in range(5)] == [
        f"{name} = {v}" for name, values in FACTORS.items() for v in values
    ]
    np.testing.assert_array_equal(concepts.active, concepts.rows.x.numpy() > 0.5)
    assert 0.4 < concepts.fit.mean() < 0.6
    assert not set(concepts.rows.documents[concepts.fit]) & set(concepts.rows.documents[~concepts.fit])


def test_the_planted_directions_recover_everything(world):
    found = score_factors(stack_of(torch.eye(5), -0.5), world, 10**6)
    one = {name: values[0] for name, values in found.values.items()}
    assert one["phi"] == one["phi_share"] == one["phi_person"] == one["phi_place"] == 1
    assert one["factors_recovered"] == one["features_match"] == 1
    assert found.ceiling["phi"] == found.ceiling["phi_k_features"] == pytest.approx(1)
    assert one["phi_k_features"] == found.ceiling["factors_recovered"] == 1
    assert one["dci_disentanglement"] > 0.95
    assert one["dci_informativeness"] > 0.99
    assert found.chance["phi"][0] < 0.9
    assert found.chance["dci_informativeness"][0] == pytest.approx((1 / 2 + 1 / 3) / 2, abs=0.1)


def test_shares_add_up_for_every_member_and_for_chance(world):
    start = Stack.start(Dictionary(d_sae=7), 5, [0, 1])
    found = score_factors(start, world, 1000)
    for side in (found.values, found.chance):
        for kind in ("factors_", "features_"):
            shares = np.array([values for name, values in side.items() if name.startswith(kind)])
            assert shares.shape == (5, 2)
            np.testing.assert_allclose(shares.sum(0), 1)


def test_chance_is_the_mean_of_three_random_dictionaries(world):
    """Each scored as a dictionary is; the probe is of the activations and has no chance."""
    start = Stack.start(Dictionary(d_sae=7), 5, [0, 1])
    found = score_factors(start, world, 1000)
    seeds = stream(0, "chance of factors").integers(0, 1 << 32, 3).tolist()
    drawn = score_factors(Stack.start(Dictionary(d_sae=7), 5, seeds), world, 1000)
    assert len(set(drawn.values["phi"])) > 1
    for name in ("phi", "phi_person", "phi_k_features", "factors_missed", "features_spurious"):
        assert found.chance[name] == pytest.approx([np.mean(drawn.values[name])] * 2)
    assert "probe" not in found.chance
    way = (np.array(found.values["phi"]) - found.chance["phi"]) / (1 - found.chance["phi"][0])
    assert found.ceiling["phi"] == pytest.approx(1)
    assert found.values["phi_share"] == pytest.approx(way.tolist())
    assert found.chance["phi_share"] == [0, 0]


def test_phi_lies_between_chance_and_the_probe():
    assert from_chance(0.5, 0.2, 0.8) == pytest.approx(0.5)
    assert from_chance(0.2, 0.2, 0.8) == 0
    assert from_chance(0.1, 0.2, 0.8) < 0
    assert np.isnan(from_chance(0.5, 0.2, 0.2))


def test_a_dictionary_that_knows_one_factor_is_told_from_one_that_knows_the_other(world):
    person, place = (score_factors(stack_of(torch.eye(5)[rows], -0.5), world, 10**6) for rows in ([0, 1], [2, 3, 4]))
    assert person.values["phi_person"] == [1.0]
    assert place.values["phi_place"] == [1.0]
    assert person.values["phi_place"][0] < 0.3 > place.values["phi_person"][0]
    assert person.values["factors_missed"] == pytest.approx([3 / 5])
    assert place.values["factors_missed"] == pytest.approx([2 / 5])


def test_codes_as_lists_and_dense_are_the_same_rows():
    listed = Codes(torch.tensor([[[0, 2], [1, 1]]]), torch.tensor([[[1.0, -2.0], [3.0, 0.0]]]), 4)
    np.testing.assert_array_equal(codes_to_rows(listed).toarray(), listed.to_dense()[0].numpy())
    np.testing.assert_array_equal(codes_to_rows(Codes.dense(listed.to_dense())).toarray(), listed.to_dense()[0].numpy())


def test_pages_show_the_best_match_of_each_factor_with_its_stories(world):
    directions = torch.cat([torch.eye(5), torch.eye(5)[:1]])
    found = score_factors(stack_of(directions, -0.5), world, 10**6)
    card = FeaturePages.of(found, 0, ("", "a", "b", "c", "d"), directions.numpy()).summary()
    assert [one["verdict"] for one in card["concepts"]] == ["recovered"] * 5
    matches = {page["concepts"][0].split(" = ")[0] for page in card["pages"] if page["verdict"] == "match"}
    assert matches == set(FACTORS)
    assert [page["verdict"] for page in card["pages"][2:]] == ["duplicate"]
    page = next(page for page in card["pages"] if page["feature"] in (0, 5))
    twin = page["neighbours"][0]
    assert [twin["cosine"], twin["correlation"]] == pytest.approx([1, 1])
    assert sum(page["histogram"]["counts"]) == round(page["fires"] * len(found.concepts.fit))
    for context in page["contexts"]:
        assert context["words"] == ["a", "b", "c", "d"] * 2
        assert context["values"] == [0.5] * LENGTH


def test_correlations_are_pearsons(rng):
    from scipy import sparse

    dense = np.maximum(rng.standard_normal((50, 4)), 0)
    dense[:, 3] = 0
    found = correlations(sparse.csr_array(dense), 1)
    np.testing.assert_allclose(found[:3], np.corrcoef(dense[:, :3].T)[1])
    assert found[3] == 0
