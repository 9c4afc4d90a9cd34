"""What every baseline promises, over the registry: list a kind here and it is tested."""

import tomllib

import numpy as np
import pytest
import torch

from unbraid.codes import Codes
from unbraid.config import check, to_toml
from unbraid.dictionaries.baselines import BASELINES
from unbraid.errors import UserError
from unbraid.worlds import Superposition

FEATURES, DIMENSIONS = 10, 12
WORLD = Superposition(dimensions=DIMENSIONS, n_features=20, active=1.5, decay=0.9)
EXAMPLES = {
    "kmeans": [{}, {"minibatch_above": 0}, {"form": "published"}],
    "kmedoids": [{}],
    "pca": [{}],
    "ica": [{}, {"form": "published"}],
    "nmf": [{}],
    "random": [{}, {"slots": 3}],
    "oracle": [{"world": WORLD}, {"world": WORLD, "slots": 3}],
}
CASES = [(kind, settings) for kind in EXAMPLES for settings in EXAMPLES[kind]]


@pytest.fixture(params=CASES, ids=lambda case: "-".join([case[0], *case[1]]))
def baseline(request):
    kind, settings = request.param
    return BASELINES[kind](n_components=FEATURES, seed=3, **settings)


@pytest.fixture(scope="module")
def x():
    return WORLD.batch(0, 300).x


@pytest.fixture
def fitted(baseline, x):
    return baseline.fit(x)


def test_every_registered_kind_has_an_example():
    assert set(EXAMPLES) == set(BASELINES)


def test_its_settings_survive_toml(baseline):
    assert check(type(baseline), tomllib.loads(to_toml(baseline.to_dict())), "here") == baseline


def test_one_face(fitted, x):
    codes = fitted.encode(x[:9])
    assert isinstance(codes, Codes)
    assert codes.width == fitted.features == FEATURES
    assert codes.to_dense().shape == (1, 9, FEATURES)
    assert fitted.decode(codes).shape == (1, 9, DIMENSIONS)
    assert fitted.directions.shape == (fitted.members, FEATURES, DIMENSIONS) == (1, FEATURES, DIMENSIONS)
    assert codes.values.isfinite().all()
    assert (codes.l0() > 0).any()


def test_directions_have_length_one_and_are_distinct(fitted):
    np.testing.assert_allclose(fitted.directions.norm(dim=-1).numpy(), 1, rtol=1e-6)
    assert (fitted.directions[0] @ fitted.directions[0].T).fill_diagonal_(0).max() < 1 - 1e-5


def test_decoding_is_an_explicit_sum_about_the_centre(fitted, x):
    codes = fitted.encode(x[:9])
    dense, rows = codes.to_dense()[0].numpy(), fitted.directions[0].numpy()
    expected = np.tile(fitted.centre.numpy().astype(float), (9, 1))
    for b, f in np.ndindex(dense.shape):
        expected[b] += dense[b, f] * rows[f]
    np.testing.assert_allclose(fitted.decode(codes)[0].numpy(), expected, atol=1e-5)


def test_scikit_learns_names_mean_the_same(fitted, x):
    codes = fitted.transform(x.numpy())
    assert np.array_equal(fitted.components_, fitted.directions[0].numpy())
    assert np.array_equal(codes, fitted.encode(x).to_dense()[0].numpy())
    np.testing.assert_allclose(fitted.inverse_transform(codes), fitted.decode(fitted.encode(x))[0].numpy(), atol=1e-5)


def test_the_same_seed_gives_the_same_end(baseline, fitted, x):
    again = baseline.fit(x.clone())
    assert torch.equal(again.directions, fitted.directions)
    assert torch.equal(again.encode(x).to_dense(), fitted.encode(x).to_dense())


@pytest.mark.parametrize("kind", ["kmeans", "kmedoids", "random"])
def test_another_seed_gives_another_end(kind, x):
    one, two = (BASELINES[kind](n_components=40, seed=seed).fit(x).directions[0] for seed in (0, 1))
    assert (one @ two.T).amax(1).min() < 0.999


def test_the_caller_is_left_alone(baseline, x):
    before, state = x.clone(), np.random.get_state()[1].copy()
    baseline.fit(x)
    assert torch.equal(x, before)
    assert np.array_equal(np.random.get_state()[1], state)


def test_chance_has_random_directions_of_the_same_number_that_fire_by_the_same_rule(fitted, x):
    chance = fitted.at_random([5, 6, 7])
    assert chance.directions.shape == (3, FEATURES, DIMENSIONS)
    assert type(chance.rule) is type(fitted.rule)
    np.testing.assert_allclose(chance.directions.norm(dim=-1).numpy(), 1, rtol=1e-6)
    codes = chance.encode(x)
    assert chance.decode(codes).shape == (3, 300, DIMENSIONS)
    for member, seed in enumerate([5, 6, 7]):
        alone = fitted.at_random([seed])
        assert torch.equal(alone.directions[0], chance.directions[member])
        torch.testing.assert_close(alone.encode(x).to_dense()[0], codes.to_dense()[member], atol=1e-5, rtol=1e-4)


def test_zero_and_equal_rows_break_nothing(baseline, x):
    rows = torch.cat([x[:100], x[:100], torch.zeros(150, DIMENSIONS), -torch.zeros(50, DIMENSIONS)])
    fitted = baseline.fit(rows)
    np.testing.assert_allclose(fitted.directions.norm(dim=-1).numpy(), 1, rtol=1e-6)
    assert fitted.decode(fitted.encode(rows)).isfinite().all()


@pytest.mark.parametrize("kind", ["kmeans", "kmedoids", "nmf", "random", "oracle"])
def test_a_zero_row_encodes_to_nothing(kind, x):
    fitted = BASELINES[kind](n_components=FEATURES, **EXAMPLES[kind][0]).fit(x)
    codes = fitted.encode(torch.zeros(2, DIMENSIONS))
    assert not codes.l0().any()
    assert not fitted.decode(codes).any()


@pytest.mark.parametrize("rows", [torch.zeros(7, DIMENSIONS), torch.zeros(0, DIMENSIONS)])
def test_data_that_are_all_zero_are_refused_in_one_sentence(baseline, rows):
    with pytest.raises(
        UserError, match=rf"was given {len(rows)} rows without a value other than 0; accepted: at least"
    ):
        baseline.fit(rows)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_data_that_are_not_finite_are_refused(baseline, x, bad):
    rows = x.clone()
    rows[3, 4] = bad
    with pytest.raises(UserError, match="infinite or missing values; accepted: finite"):
        baseline.fit(rows)


def test_there_are_no_more_directions_than_the_data_allow():
    """Five distinct rows in three dimensions: five clusters, three principal axes; six parts, of which five at most."""
    rows = torch.from_numpy(np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)).repeat(4, 1)
    rows = torch.cat([rows, torch.zeros(3, 3)])
    kinds = ("kmeans", "kmedoids", "pca", "ica", "nmf", "random")
    found = {kind: BASELINES[kind](n_components=50).fit(rows).features for kind in kinds}
    assert found == {"kmeans": 5, "kmedoids": 5, "pca": 3, "ica": 3, "nmf": 5, "random": 50}
    assert BASELINES["oracle"](world=WORLD, n_components=50).fit(torch.ones(1, DIMENSIONS)).features == 20


@pytest.mark.parametrize("kind", ["kmeans", "kmedoids", "pca", "ica", "nmf"])
def test_above_its_points_it_looks_at_that_many_drawn_by_its_seed(kind, x):
    def at(points, seed):
        return BASELINES[kind](n_components=4, points=points, seed=seed).fit(x)

    assert at(60, 0).points == 60
    assert at(None, 0).points == (300 if kind in ("pca", "ica") else int(x.any(1).sum()))
    assert torch.equal(at(60, 0).directions, at(60, 0).directions)
    assert not torch.allclose(at(60, 0).directions, at(60, 1).directions, atol=1e-3)
