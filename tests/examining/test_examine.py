"""What an examination says of models made to be known."""

import pytest
import torch

from unbraid.examining import Examining, examine
from unbraid.examining.examine import fresh
from unbraid.metrics.attention import between_heads
from unbraid.metrics.heads import expected_cosine

SETTINGS = Examining(stories=70, heads=40)


def test_a_model_that_always_says_one_answer_has_the_share_of_it(make, world):
    models = make(members=2)
    for name in ("answer.weight", "answer.bias"):
        models.weights[name][:] = 0
    models.weights["answer.bias"][0, 2] = 1
    models.weights["answer.bias"][1, 1] = 1
    found = examine(models, world, SETTINGS)
    answers = torch.cat([batch.answers.flatten() for batch in fresh(world, 70)])
    shares = [(answers == answer).double().mean().item() for answer in (2, 1)]
    assert found.values["accuracy"].tolist() == pytest.approx(shares)
    assert found.values["importance_most"].tolist() == [0, 0]
    assert found.values["idle"].tolist() == [1, 1]


def test_of_untaught_models_every_score_is_its_own_chance(make, world):
    """They are what chance is where it is the same model before it was taught."""
    found = examine(make(members=2), world, SETTINGS)
    for name in ("support_best", "specialisation", "head_cka", "separation"):
        torch.testing.assert_close(found.values[name], found.chance[name], equal_nan=True)
    torch.testing.assert_close(found.tables["support"], found.tables["support_untaught"])
    assert found.chance["accuracy"].tolist() == pytest.approx([world.shortcuts()["chance"]] * 2)
    assert found.chance["head_cosine"].tolist() == pytest.approx([expected_cosine(8)] * 2)
    assert found.chance["spread"].tolist() == [1, 1]


def test_members_are_examined_as_if_alone(make, world):
    models = make(members=3)
    together, alone = examine(models, world, SETTINGS), examine(models.member(1), world, SETTINGS)
    for part in ("values", "chance", "tables"):
        for name, value in getattr(alone, part).items():
            torch.testing.assert_close(getattr(together, part)[name][1:2], value, equal_nan=True, rtol=0, atol=0)


def test_scores_are_of_the_last_layer_or_of_the_best_head(make, world):
    found = examine(make(), world, SETTINGS)
    assert found.values["support_best"].item() == found.tables["support"].max().item()
    assert found.values["support_mass"].item() == pytest.approx(found.tables["support"][0, 1].mean().item())
    assert found.values["head_cka"].item() == pytest.approx(between_heads(found.tables["cka"][:, 1]).item())
    quietest = int(found.tables["activity"][0, 1].argmin())
    assert found.values["quiet_drop"].item() == found.tables["largest_drop"][0, 1, quietest].item()


def test_fresh_stories_are_the_same_whatever_their_number(world):
    few, many = fresh(world, 10), fresh(world, 100)
    tokens = few[0].tokens
    assert (many[0].tokens[:10, : tokens.shape[1]] == tokens[:, : many[0].tokens.shape[1]]).all()
    assert sum(len(batch.tokens) for batch in many) == 100
