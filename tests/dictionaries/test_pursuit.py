"""Pursuit as an encoder: against scikit-learn's, against least squares, and what both promise."""

import doctest
from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.linear_model import orthogonal_mp

from unbraid.dictionaries import Dictionary, Stack, TopK, pursuit
from unbraid.dictionaries.pursuit import pursue
from unbraid.dictionaries.stack import Target
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.fit import fit
from unbraid.errors import UserError
from unbraid.worlds import Superposition

WORLD = Superposition(dimensions=16, n_features=24, active=2.0)


@pytest.fixture
def stack():
    """Two members in general position, in double precision, with a pre-bias."""
    rng, start = np.random.default_rng(0), Stack.start(Dictionary(d_sae=24, pre_bias=True), 16, [0, 1])
    drawn = {name: torch.from_numpy(rng.standard_normal(p.shape)) for name, p in start.parameters().items()}
    stack = start.with_parameters(drawn)
    stack.normalize()
    return stack


@pytest.fixture
def x():
    return torch.from_numpy(np.random.default_rng(1).standard_normal((20, 16)))


def test_the_example_runs():
    tested = doctest.testmod(pursuit)
    assert tested.attempted > 0
    assert tested.failed == 0


@pytest.mark.parametrize("k", [1, 3, 7])
def test_omp_is_scikit_learns(stack, x, k):
    codes = pursue(stack, x, k, nonnegative=False).to_dense().numpy()
    for member in range(2):
        centred = (x - stack.pre_bias[member]).numpy()
        theirs = orthogonal_mp(stack.decoder[member].numpy().T, centred.T, n_nonzero_coefs=k).T
        np.testing.assert_allclose(codes[member], theirs, atol=1e-8)


@pytest.mark.parametrize("method", ["omp", "gradient"])
def test_more_features_leave_less_over_and_omp_leaves_nothing_along_what_it_chose(stack, x, method):
    errors = []
    for k in range(1, 8):
        codes = pursue(stack, x, k, method, nonnegative=False)
        left = x - stack.decode(codes)
        errors.append(left.norm(dim=-1))
        if method == "omp":
            along = torch.einsum("mbd,mfd->mbf", left, stack.decoder)[codes.to_dense() != 0]
            assert along.abs().max() < 1e-9
    assert all((later <= before + 1e-12).all() for before, later in pairwise(errors))


def test_the_first_gradient_step_is_the_first_of_omp(stack, x):
    for nonnegative in (True, False):
        first, second = (pursue(stack, x, 1, method, nonnegative).to_dense() for method in ("omp", "gradient"))
        torch.testing.assert_close(first, second)


@pytest.mark.parametrize("method", ["omp", "gradient"])
def test_codes_are_not_negative_and_at_most_k_fire(stack, x, method):
    codes = pursue(stack, x, 5, method)
    assert (codes.values >= 0).all()
    assert (codes.l0() <= 5).all()
    assert (codes.to_dense() != 0).sum(-1).eq(codes.l0()).all()


def test_nothing_fires_for_an_input_that_is_the_pre_bias(stack):
    x = stack.pre_bias[0][None]
    assert not pursue(stack, x, 3).to_dense()[0].any()


def test_on_a_trained_dictionary_it_reconstructs_better_than_the_encoder_at_the_same_k():
    stack = fit(WORLD, Dictionary(d_sae=24, activation=TopK(k=3)), training=Training(steps=150, batch=128), seeds=[0])
    x = WORLD.batch(0, 200, "evaluation").x
    encoded = (stack.decode(stack.encode(x)) - x).square().mean()
    omp, gradient = ((stack.decode(pursue(stack, x, 3, method)) - x).square().mean() for method in ("omp", "gradient"))
    assert omp < encoded
    assert gradient < encoded


def test_what_it_cannot_encode_is_refused(stack, x):
    with pytest.raises(UserError, match="k = 25 features; accepted: 1 to 24"):
        pursue(stack, x, 25)
    transcoder = Stack.start(Dictionary(d_sae=4), 16, [0], target=Target(5))
    with pytest.raises(UserError, match="accepted: an autoencoder"):
        pursue(transcoder, x.float(), 2)
