"""Edits inside a model whose answer is a known function of planted directions, and inside a small trained one.

The hand-made model holds at every word of a line one direction for the person and one for the place read so far. It
answers with the place at the full stop of the last statement whose person is the one at the question mark.
"""

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
import torch

from unbraid.activations.normalization import Normalization
from unbraid.dictionaries import Dictionary, Stack
from unbraid.dictionaries.baselines import Pca
from unbraid.evaluation.causal import (
    SCORES,
    CausalBounds,
    CausalScores,
    EditableModel,
    FactorTest,
    Handles,
    MatchedDictionary,
    class_mean_directions,
    factor_tests,
    random_features,
    score_causal,
    usual_levels,
)
from unbraid.evaluation.factors import Concepts
from unbraid.models import Transformer
from unbraid.models.attention import AttentionMask
from unbraid.models.config import ModelTraining
from unbraid.models.models import ForwardOutput, Models, token_rows
from unbraid.models.training import ModelState, train_model
from unbraid.randomness import stream
from unbraid.worlds.activations import LabelledRows
from unbraid.worlds.stories import Stories

WORLD = Stories.model_validate({"task": "one_fact", "people": 3, "places": 4, "rounds": 2})
SHORT = WORLD.model_copy(update={"rounds": 1})
PEOPLE, PLACES = (len(WORLD.factors[name]) for name in ("person", "place"))
PLANTED, NOISE, SHARPNESS = PEOPLE + PLACES, 3, 5.0
"""The first dimensions are planted, one a value; the others hold what no answer depends on."""
SITE = "blocks.1.hook_resid_post"


@cache
def held_at(words: tuple[int, ...]) -> torch.Tensor:
    """What the words of a story hold, one row a word."""
    rows, held = torch.zeros(len(words), PLANTED + NOISE), torch.zeros(PLANTED)
    for place, number in enumerate(words):
        word = WORLD.vocabulary[number]
        for first, names in ((0, WORLD.factors["person"]), (PEOPLE, WORLD.factors["place"])):
            if word in names:
                held[first + names.index(word)] = 1
        rows[place, :PLANTED] = held
        rows[place, PLANTED + number % NOISE] = 1
        if word in (".", "?"):
            held = torch.zeros(PLANTED)
    return rows


@dataclass(frozen=True)
class HandMade(Models):
    """A model by rules that can be read."""

    def run(self, tokens, recorder, head_masks, step):
        rows = recorder.keep(SITE, torch.stack([held_at(tuple(story)) for story in tokens.tolist()])[None])
        return ForwardOutput(rows, AttentionMask(True, tokens != 0), {SITE: rows, "tokens": tokens}, {})

    @property
    def words(self):
        return len(WORLD.vocabulary)

    def read(self, output, asked):
        rows, stops = output.resid[0], output.recorded["tokens"] == WORLD.vocabulary.index(".")
        places, who = torch.arange(rows.shape[1]), rows[..., :PEOPLE].argmax(-1)
        theirs = stops[:, None] & (places < asked[..., None]) & (who[:, None] == who.gather(1, asked)[..., None])
        last = (theirs * places).max(-1).values  # none: the first word, which holds no place
        index = last[..., None].expand(-1, -1, PLACES)
        return SHARPNESS * rows[..., PEOPLE:PLANTED].gather(1, index)[None]


def concepts_of(model: EditableModel, world: Stories, stories: int) -> Concepts:
    """What a capture of these activations would be."""
    batch = world.batch(0, stories, "captured")
    _, x = model.read(batch)
    documents, positions = (index.numpy() for index in batch.mask.nonzero(as_tuple=True))
    factors = {name: values[batch.mask].numpy() for name, values in batch.factors.items()}
    rows = LabelledRows(x[batch.mask], batch.tokens[batch.mask].numpy(), positions, documents, factors)
    pairs = [(name, index, value) for name, values in world.factors.items() for index, value in enumerate(values)]
    names, _, values = zip(*pairs, strict=True)
    active = np.stack([factors[name] == index for name, index, _ in pairs], 1)
    return Concepts(rows, names, values, active, documents % 2 == 0)


def stack_of(directions: torch.Tensor, bias: float = -0.5) -> Stack:
    """A relu dictionary that fires where one of these directions exceeds a threshold."""
    start = Stack.start(Dictionary(d_sae=len(directions)), directions.shape[1], [0])
    tensors = {name: torch.zeros_like(p) for name, p in start.tensors().items()}
    tensors["encoder"], tensors["decoder"] = directions[None].clone(), directions[None].clone()
    tensors["encoder_bias"] += bias
    return Stack.of(tensors, start.activation)


class Planted(NamedTuple):
    model: EditableModel
    tests: list[FactorTest]
    concepts: Concepts
    bounds: CausalBounds

    def scores(self, dictionaries) -> CausalScores:
        return score_causal(dictionaries, self.tests, self.concepts, self.bounds)

    def oracle(self) -> Stack:
        """The planted directions; a row is (1 - .1) / scale along one that it holds, and -.1 / scale along others."""
        return stack_of(torch.eye(PLANTED + NOISE), bias=0.1 / self.model.normalization.scale)


@pytest.fixture(scope="module", params=[1.0, 3.0], ids=["scale 1", "scale 3"])
def hand_made(request):
    """Model, tests and concepts; what dictionaries see may be in other units."""
    normalization = Normalization(torch.full((PLANTED + NOISE,), 0.1), request.param)
    model = EditableModel(
        HandMade(Transformer(), WORLD.length, (0,), {"answer.weight": torch.zeros(1)}), SITE, normalization
    )
    tests, concepts = factor_tests(model, WORLD, 24), concepts_of(model, WORLD, 150)
    return Planted(model, tests, concepts, CausalBounds.of(tests, concepts))


def test_every_factor_that_answers_depend_on_is_tested(hand_made):
    tests = hand_made.tests
    assert [test.factor for test in tests] == [name for name in WORLD.factors if name != "line"]
    for test in tests:
        assert test.targeted.sum() >= 24
        assert test.others.sum() > 5
        assert not (test.targeted & test.others).any()
        assert test.accuracy() == 1
        assert (test.values[:, 0] != test.values[:, 1]).all()


def test_the_planted_directions_control_answers_wholly_and_nothing_else(hand_made):
    scores = hand_made.scores(hand_made.oracle())
    for factor in ("person", "place"):
        assert scores.values[f"causal_{factor}"] == [1.0]
        assert scores.values[f"causal_side_{factor}"] == [0.0]
        assert scores.values[f"causal_reconstruction_{factor}"] == [1.0]
        assert scores.ceiling[f"causal_{factor}"] == 1
        assert scores.values[f"causal_probe_{factor}"][0] > 0.9
        assert scores.chance[f"causal_{factor}"][0] <= 0.1
    assert scores.values["spliced_accuracy"] == [1.0]
    assert scores.ceiling["spliced_accuracy"] == 1
    assert scores.chance["spliced_accuracy"][0] < 0.5


def test_without_a_place_every_answer_is_as_likely(hand_made):
    """p(right) falls from e⁵ / (e⁵ + 3) to 1/4 where the place is ablated, and nowhere else."""
    scores = hand_made.scores(hand_made.oracle())
    fall = math.exp(SHARPNESS) / (math.exp(SHARPNESS) + PLACES - 1) - 1 / PLACES
    assert scores.values["causal_ablation_place"][0] == pytest.approx(fall, abs=1e-5)
    (effects,) = scores.effects
    assert effects["feature ablated"]["place"].side_drop == pytest.approx(0, abs=1e-6)
    assert effects["feature doubled"]["place"].swapped == 1


def test_directions_that_no_answer_depends_on_change_nothing(hand_made):
    noise = torch.eye(PLANTED + NOISE)[PLANTED:]
    scores = hand_made.scores(stack_of(noise, bias=0.1 / hand_made.model.normalization.scale))
    assert {values[0] for name, values in scores.values.items() if name.startswith(("causal_person", "causal_pl"))} == {
        0
    }
    assert scores.values["causal_ablation"][0] == pytest.approx(0, abs=1e-6)
    assert scores.values["causal_side"] == [0.0]
    assert scores.values["spliced_accuracy"][0] < 0.6
    assert scores.ceiling["causal_person"] == 1


def test_a_feature_for_the_wrong_value_does_not_swap_answers(hand_made):
    """Places whose decoder rows are one place on: the encoder tells them, and the model is told another."""
    wrong = hand_made.oracle()
    order = [*range(PEOPLE), *(PEOPLE + (place + 1) % PLACES for place in range(PLACES)), *range(PLANTED, PLANTED + 3)]
    wrong = replace(wrong, decoder=wrong.decoder[:, order])
    values = hand_made.scores(wrong).values
    assert values["causal_place"][0] < 0.5
    assert values["causal_person"] == [1.0]


def test_one_feature_for_two_values_swaps_nothing(hand_made):
    eye = torch.eye(PLANTED + NOISE)
    both = torch.cat([eye[:PEOPLE], eye[PEOPLE:PLANTED].sum(0, keepdim=True) / PLACES**0.5])
    scores = hand_made.scores(stack_of(both, 0.0))
    assert scores.values["causal_place"] == [0.0]


def test_members_and_baselines_are_scored_one_by_one(hand_made):
    scores = hand_made.scores([Pca(n_components=size).fit(hand_made.concepts.rows.x) for size in (4, 6)])
    assert {len(values) for values in (*scores.values.values(), *scores.chance.values())} == {2}
    assert set(scores.chance) == {
        name for name in scores.values if not name.startswith(("causal_probe", "causal_reconstruction"))
    }
    assert set(scores.ceiling) == {name for name in scores.values if not name.startswith("causal_side")}
    assert {name for name in scores.values if name in SCORES} == set(SCORES)


def test_bounds_are_read_as_they_were_written(hand_made):
    assert CausalBounds.from_dict(hand_made.bounds.to_dict()) == hand_made.bounds


def test_handles_set_codes_to_their_levels():
    """By hand: two values with one dimension each; off at 0, on at 2 and 3."""
    handles = Handles(np.array([4, 7]), np.eye(2), off=np.zeros(2), on=np.array([2.0, 3.0]))
    codes = np.array([[2.5, 0.0], [0.0, 1.0], [0.5, 0.0]])
    values = np.array([[0, 1], [1, -1], [-1, 0]])
    assert handles.change(codes, values, 1.0).tolist() == [[-2.5, 3.0], [0.0, -1.0], [1.5, 0.0]]
    assert handles.change(codes, values, 0.0).tolist() == [[-2.5, 0.0], [0.0, -1.0], [-0.5, 0.0]]
    assert handles.change(codes, values, 2.0).tolist() == [[-2.5, 6.0], [0.0, -1.0], [3.5, 0.0]]
    one = replace(handles, features=np.array([4, 4]))
    assert one.change(codes, values, 1.0)[0].tolist() == [0.0, 0.0]


def test_levels_are_the_usual_codes():
    codes = np.array([[0.0], [0.0], [0.1], [2.0], [3.0], [9.0]])
    assert [levels.tolist() for levels in usual_levels(codes, codes > 1)] == [[0.0], [3.0]]
    assert [levels.tolist() for levels in usual_levels(codes, codes > 99)] == [[1.05], [0.0]]


def test_directions_of_class_means_point_from_the_others_to_a_class():
    x = np.array([[0.0, 0.0], [0.0, 0.0], [3.0, 4.0], [3.0, 4.0]])
    active = np.array([[False, True, False], [False, True, False], [True, False, False], [True, False, False]])
    found = class_mean_directions(x, active)
    np.testing.assert_allclose(found, [[0.6, 0.8], [-0.6, -0.8], [0, 0]])


def test_random_features_are_others_that_fire_as_often():
    rates = np.concatenate([np.full(20, 0.5), np.full(20, 0.01), [0.0]])
    chosen = random_features(np.array([3, 25]), rates, stream(0, "here"))
    assert chosen[0] < 20
    assert 20 <= chosen[1] < 40
    assert not set(chosen) & {3, 25}


@pytest.fixture(scope="module")
def trained() -> Models:
    """A small transformer that answers nearly every question of the world right."""
    settings = Transformer(d_model=64, heads=4, layers=2, d_ff=64)
    state = ModelState.start(settings, SHORT, [0])
    training = ModelTraining(steps=200, batch=64, learning_rate=3e-3, warmup_share=0.15, decay_share=0.4)
    for _ in train_model(state, SHORT, training, {}):
        pass
    return state.models


def test_in_a_trained_model_class_means_come_near_the_ceiling_and_random_directions_near_nothing(trained):
    site = "blocks.0.hook_resid_pre"
    rows = token_rows(trained.forward(SHORT.batch(0, 100, "scale").tokens, [site]).recorded[site])[0]
    model = EditableModel(trained, site, Normalization.of(rows.flatten(0, 1), "center_and_scale"))
    tests, concepts = factor_tests(model, SHORT, 32), concepts_of(model, SHORT, 300)
    bounds = CausalBounds.of(tests, concepts)
    assert bounds.accuracy > 0.95
    assert bounds.effects["patch"]["place"].control > 0.9
    x, fit = concepts.rows.x.double().numpy(), concepts.fit
    active = concepts.active[:, concepts.of_factor("place")]
    planted = torch.from_numpy(class_mean_directions(x[fit], active[fit])).float()
    drawn = torch.from_numpy(stream(0, "directions").standard_normal(planted.shape)).float()
    drawn /= drawn.norm(dim=1, keepdim=True)
    control = {
        name: MatchedDictionary.of(stack_of(directions, 0.0), concepts).effects(tests, concepts, 0)["feature"]["place"]
        for name, directions in (("planted", planted), ("drawn", drawn))
    }
    assert control["planted"].control > 0.75 * bounds.effects["patch"]["place"].control
    assert control["drawn"].control < 0.25
