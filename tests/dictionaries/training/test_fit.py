import numpy as np
import pytest
import torch

from unbraid.dictionaries import Dictionary, TopK
from unbraid.dictionaries.mechanisms import Mechanism, Sparsity
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.fit import fit, inputs_of, train
from unbraid.dictionaries.training.step import State, step
from unbraid.errors import UserError
from unbraid.members import stack_configs
from unbraid.worlds import Superposition

WORLD = Superposition(dimensions=6, n_features=9, active=2.0)
DICTIONARY = Dictionary(d_sae=8)
TRAINING = Training(steps=6, batch=24, learning_rate=0.02)
INPUTS = inputs_of(WORLD, TRAINING)


def test_training_goes_batch_by_batch_from_where_the_state_is():
    state = State.start(DICTIONARY, 6, {}, [0])
    state.step = 2
    by_hand = State.start(DICTIONARY, 6, {}, [0])
    by_hand.step = 2
    outcomes = list(train(state, INPUTS, TRAINING, {}))
    for position in range(2, 6):
        step(by_hand, WORLD.batch(position, 24, "train").x, TRAINING, {})
    assert len(outcomes) == 4
    assert state.step == 6
    torch.testing.assert_close(state.stack.encoder, by_hand.stack.encoder, rtol=1e-5, atol=1e-6)


def test_a_finished_training_has_nothing_left_to_do():
    state = State.start(DICTIONARY, 6, {}, [0])
    state.step = 6
    assert list(train(state, INPUTS, TRAINING, {})) == []


def test_whoever_iterates_may_stop_and_go_on():
    whole, parts = (State.start(DICTIONARY, 6, {}, [0, 1]) for _ in range(2))
    list(train(whole, INPUTS, TRAINING, {}))
    for _ in train(parts, INPUTS, TRAINING, {}):
        if parts.step == 3:
            break
    list(train(parts, INPUTS, TRAINING, {}))
    assert torch.equal(whole.stack.decoder, parts.stack.decoder)


def test_fit_trains_one_member_a_seed_and_each_as_it_would_be_alone():
    together = fit(WORLD, DICTIONARY, [Sparsity(weight=0.2)], TRAINING, seeds=[3, 5, 9])
    alone = fit(WORLD, DICTIONARY, [Sparsity(weight=0.2)], TRAINING, seeds=[5])
    assert together.members == 3
    torch.testing.assert_close(together.encoder[1], alone.encoder[0], rtol=0, atol=1e-5)


def test_fit_is_the_loop_over_train():
    mechanisms = {"sparsity": stack_configs([Sparsity(weight=0.2)] * 2)}
    state = State.start(DICTIONARY, 6, mechanisms, [0, 1])
    list(train(state, INPUTS, TRAINING, mechanisms))
    fitted = fit(WORLD, DICTIONARY, [Sparsity(weight=0.2)], TRAINING, seeds=[0, 1])
    assert torch.equal(state.stack.decoder, fitted.decoder)


def test_fit_takes_mechanisms_that_are_not_registered():
    class Own(Mechanism):
        def penalty(self, forward, memory, stack, signals):
            return 100 * stack.encoder.square().sum((1, 2))

    shrunk = fit(WORLD, DICTIONARY, [Own()], TRAINING, seeds=[0])
    plain = fit(WORLD, DICTIONARY, [], TRAINING, seeds=[0])
    assert shrunk.encoder.norm() < plain.encoder.norm()


@pytest.mark.parametrize(
    ("dictionary", "mechanisms"),
    [(Dictionary(d_sae=24), [Sparsity(weight=0.1)]), (Dictionary(d_sae=24, activation=TopK(k=3)), [])],
    ids=["relu", "topk"],
)
def test_an_easy_world_is_unbraided(dictionary, mechanisms):
    """Sixteen sparse features in sixteen dimensions: nearly all are found, where chance finds none."""
    world = Superposition(dimensions=16, n_features=16, decay=1.0, active=1.5)
    training = Training(steps=500, batch=256, learning_rate=0.02, decay_steps=250)
    stack = fit(world, dictionary, mechanisms, training, seeds=[0, 1])
    best = np.array([world.directions.numpy() @ member.T for member in stack.directions.numpy()]).max(-1)
    random = np.random.default_rng(0).standard_normal((24, 16))
    chance = (world.directions.numpy() @ (random / np.linalg.norm(random, axis=1, keepdims=True)).T).max(-1)
    assert (best.mean(-1) > 0.95).all()
    assert chance.mean() < 0.7


def test_no_seeds_and_doubled_mechanisms_are_refused():
    with pytest.raises(UserError, match="no seeds"):
        fit(WORLD, DICTIONARY, seeds=[])
    with pytest.raises(UserError, match="two mechanisms of one kind"):
        fit(WORLD, DICTIONARY, [Sparsity(), Sparsity(weight=0.2)], TRAINING)
