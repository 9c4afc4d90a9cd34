"""SynthSAEBench's world against plain loops over every feature, against closed forms, and through SAELens' files."""

import json
import math
import random
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from unbraid.config import check
from unbraid.errors import UserError
from unbraid.worlds import Synth
from unbraid.worlds.synth import planted
from unbraid.worlds.synth.sampler import _chosen

SMALL: dict[str, Any] = {
    "dimensions": 16,
    "n_features": 40,
    "roots": 3,
    "branching": 3,
    "depth": 2,
    "orthogonal_steps": 0,
}
LOUD = Synth(**SMALL, rank=3, correlation_scale=0.45, exclusive=0.6, deviation_mean=2.5, min_probability=0.02)
SAMPLES = 60_000


def dense(world, samples=SAMPLES):
    return world.batch(0, samples).truth.to_dense()[0].numpy()


def by_loops(world, samples, seed=0):
    """The definition: draw every feature of every sample, then walk each tree from its root."""
    plan, rng = world._planted, np.random.default_rng(seed)
    n, rank = plan.factors.shape
    thresholds = [-stats.norm.ppf(p) for p in plan.drawn]
    values = np.zeros((samples, n))
    latents = rng.standard_normal((samples, rank)) @ plan.factors.T + plan.own * rng.standard_normal((samples, n))
    magnitudes = np.maximum(plan.mean + plan.std * rng.standard_normal((samples, n)), 0)
    for sample in range(samples):
        raw = [m if z > t else 0.0 for m, z, t in zip(magnitudes[sample], latents[sample], thresholds, strict=True)]
        for feature in np.flatnonzero(plan.forest.parents < 0):
            walk(plan, int(feature), raw[feature], raw, values[sample], rng)
    return values


def walk(plan, feature, value, raw, out, rng):
    out[feature] = value
    if value == 0:
        return
    children = [c for c in range(len(raw)) if plan.forest.parents[c] == feature]
    on = [c for c in children if raw[c] > 0]
    if plan.forest.exclusive[feature] and len(on) > 1:
        on = [int(rng.choice(on))]
    scale = value / plan.mean[feature] if plan.forest.scaling[feature] else 1.0
    for child in on:
        walk(plan, child, raw[child] * scale, raw, out, rng)


@pytest.fixture(scope="module")
def both():
    return dense(LOUD), by_loops(LOUD, 20_000)


def alike(ours, theirs):
    """Two means of samples, column by column, within what chance leaves of their difference."""
    error = np.sqrt(ours.var(0) / len(ours) + theirs.var(0) / len(theirs)) + 1e-4
    return (np.abs(ours.mean(0) - theirs.mean(0)) < 4.5 * error).all()


def test_rates_and_magnitudes_are_those_of_plain_loops(both):
    ours, theirs = both
    assert alike((ours > 0).astype(float), (theirs > 0).astype(float))
    assert alike(ours, theirs)
    assert alike(ours**2, theirs**2)


def test_pairs_fire_together_as_in_plain_loops(both):
    ours, theirs = (values > 0 for values in both)
    pairs = [(i, j) for i in range(40) for j in range(i)]
    together = [np.stack([fired[:, i] & fired[:, j] for i, j in pairs], 1).astype(float) for fired in (ours, theirs)]
    assert alike(together[0], together[1])
    assert alike((ours.sum(1)[:, None] ** 2).astype(float), (theirs.sum(1)[:, None] ** 2).astype(float))


def test_the_parentless_have_exactly_the_pairs_of_the_copula():
    """P(both) is a normal orthant, times the chances that magnitudes are positive."""
    world = Synth(**{**SMALL, "roots": 0, "min_probability": 0.1}, rank=2, correlation_scale=0.6, deviation_std=0.0)
    fired, plan = dense(world) > 0, world._planted
    for i, j in [(0, 1), (2, 9), (5, 30), (38, 39)]:
        r = float(plan.factors[i] @ plan.factors[j])
        corner = stats.multivariate_normal(cov=np.array([[1, r], [r, 1]])).cdf(stats.norm.ppf(plan.drawn[[i, j]]))
        low, high = stats.binom.interval(1 - 1e-4, SAMPLES, corner)
        assert low <= (fired[:, i] & fired[:, j]).sum() <= high


def test_rare_features_with_strong_factors_keep_their_rates():
    """Where F·ε is beyond the candidates' bound a rare feature is an exception: a sixth of the rate here."""
    world = Synth(dimensions=4, n_features=40, roots=0, rank=3, correlation_scale=0.45, orthogonal_steps=0,
                  max_probability=0.03, min_probability=0.02)  # fmt: skip
    counts = (dense(world, 100_000) > 0).sum(0)
    low, high = stats.binom.interval(1 - 1e-5, 100_000, world.probabilities.numpy())
    assert ((low <= counts) & (counts <= high)).all()


def test_probabilities_are_those_of_a_long_draw():
    counts = sum(LOUD.batch(position, 50_000).truth.counts()[0].numpy() for position in range(8))
    expected = LOUD.probabilities.numpy()
    np.testing.assert_allclose(counts / 400_000, expected, rtol=0.02, atol=5 * math.sqrt(0.25 / 400_000))


def test_the_chance_to_be_chosen_is_the_sum_over_all_sets_of_siblings():
    drawn = np.array([[0.3, 0.8, 0.5, 0.9, 0.2]])
    above = np.array([4, 4, 4, 7, 7])
    for c in range(5):
        others = [j for j in range(5) if j != c and above[j] == above[c]]
        total = 0.0
        for chosen in range(1 << len(others)):
            on = [bool(chosen >> at & 1) for at in range(len(others))]
            odds = math.prod(drawn[0, j] if up else 1 - drawn[0, j] for j, up in zip(others, on, strict=True))
            total += odds / (1 + sum(on))
        assert _chosen(drawn, above)[0, c] == pytest.approx(total, abs=1e-12)


def test_no_child_without_its_parent_and_no_two_exclusive_siblings():
    fired, parents = dense(LOUD) > 0, LOUD.parents.numpy()
    exclusive = LOUD._planted.forest.exclusive
    assert 0 < exclusive.sum() < (LOUD._planted.forest.sizes > 1).sum()
    for parent in np.unique(parents[parents >= 0]):
        children = fired[:, parents == parent]
        assert not (children.any(1) & ~fired[:, parent]).any()
        assert (children.sum(1).max() <= 1) == exclusive[parent]


def test_a_childs_strength_follows_its_parents():
    world = Synth(**SMALL, deviation_mean=0.0, deviation_std=0.0, first_magnitude=2.0, last_magnitude=2.0)
    assert set(np.unique(dense(world, 500))) == {0.0, 2.0}
    values = dense(Synth(**{**SMALL, "exclusive": 0.0}, deviation_mean=0.5, deviation_std=0.0))
    child = values[:, 3] > 0
    assert np.corrcoef(values[child, 0], values[child, 3])[0, 1] > 0.5
    values = dense(Synth(**{**SMALL, "exclusive": 0.0}, deviation_mean=0.5, deviation_std=0.0, scale_children=False))
    assert abs(np.corrcoef(values[values[:, 3] > 0][:, [0, 3]].T)[0, 1]) < 0.05


def test_the_benchmarks_own_sizes():
    """The published model: 10,880 of 16,384 in the forest, rates .4 to .0005, 34 active, magnitudes 5 to 4."""
    world = Synth(orthogonal_steps=0)
    forest, plan = world._planted.forest, world._planted
    assert [len(level) for level in forest.levels] == [128 + 5504, 512, 2048, 8192]
    assert forest.exclusive.sum() == (forest.sizes == 4).sum() == 128 + 512 + 2048
    base = planted.zipf_rates(16_384, 0.5, 0.4, 5e-4)
    assert base[[0, -1]].tolist() == [0.4, 5e-4]
    assert base[3] == pytest.approx(5e-4 + 0.3995 * (0.5 - 1 / 128) / (1 - 1 / 128))
    assert plan.mean[[0, -1]].tolist() == [5, 4]
    assert 34 < float(world.probabilities.sum()) < 35
    assert float(world.bias_vector.norm()) == pytest.approx(0.5)
    assert world.batch(0, 500).truth.l0().float().mean() == pytest.approx(34.5, abs=2)


def test_compensation_by_hand():
    forest = planted.Forest.grow(5, 1, 3, 1)
    forest = planted.Forest(forest.parents, np.array([True] + [False] * 4), np.zeros(5, bool))
    base = np.array([0.5, 0.2, 0.1, 0.1, 0.3])
    drawn = forest.compensated(base)
    np.testing.assert_allclose(drawn, [0.5, 0.4 * 1.4, 0.2 * 1.6, 0.2 * 1.6, 0.3])


def test_exclusive_parents_are_drawn_as_python_draws_them():
    forest = planted.Forest.grow(30, 6, 2, 2)
    chosen = random.Random(9).sample(range(12), 6)
    assert np.flatnonzero(planted.draw_exclusive(forest, 0.5, 9)).tolist() == sorted(chosen)


def test_orthogonalisation_is_adam_on_the_squared_cosines():
    """Against autograd and torch's Adam on the loss as it is written, every pair by itself."""
    rows = torch.nn.functional.normalize(torch.randn(24, 6, generator=torch.Generator().manual_seed(0)), dim=1)
    moving = rows.double().requires_grad_()
    adam = torch.optim.Adam([moving], lr=0.01)
    for _ in range(30):
        adam.zero_grad()
        table = moving @ moving.T
        off = table - torch.diag(table.diagonal())
        (off.square().sum() + 24 * (table.diagonal() - 1).square().sum()).backward()
        adam.step()
    expected = torch.nn.functional.normalize(moving.detach(), dim=1)
    found = planted.orthogonalize(rows, 30, 0.01)
    torch.testing.assert_close(found.double(), expected, atol=1e-6, rtol=0)

    def largest(rows):
        return ((rows @ rows.T).abs() - torch.eye(24)).amax(1).mean()

    assert largest(found) < largest(rows)


def test_what_is_saved_is_read_back(tmp_path):
    LOUD.save(tmp_path / "model")
    again = Synth(path=str(tmp_path / "model"))
    assert (again.n_features, again.dimensions) == (40, 16)
    assert torch.equal(again.directions, LOUD.directions)
    assert torch.equal(again.parents, LOUD.parents)
    assert torch.equal(again.batch(2, 300).x, LOUD.batch(2, 300).x)
    torch.testing.assert_close(again.probabilities, LOUD.probabilities, rtol=1e-6, atol=0)
    assert check(Synth, again.to_dict(), "here") == again


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda f: (f / "synthetic_model.safetensors").write_bytes(b"short"), "accepted: safetensors"),
        (lambda f: (f / "synthetic_model_config.json").write_text("[]"), "accepted: a JSON object"),
        (
            lambda f: (f / "hierarchy.json").write_text('{"roots": [{"feature_index": 99}]}'),
            "accepted: each of 0 to 39",
        ),
        (lambda f: (f / "synthetic_model_config.json").unlink(), "there is no SAELens synthetic model"),
        (lambda f: change(f, "num_features", 41), "accepted: finite, of shape"),
        (lambda f: change(f, "seed", None), "folded_normal with a seed"),
    ],
)
def test_a_damaged_model_is_refused_in_one_sentence(tmp_path, damage, says):
    LOUD.save(tmp_path)
    damage(tmp_path)
    with pytest.raises(UserError, match=says):
        _ = Synth(path=str(tmp_path)).directions


def change(folder, name, value):
    path = folder / "synthetic_model_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))


def test_settings_that_a_path_does_not_read_are_refused(tmp_path):
    LOUD.save(tmp_path)
    with pytest.raises(UserError, match=r"world.path and world.rank were both given"):
        Synth(path=str(tmp_path), rank=3)
    with pytest.raises(UserError, match="n_features 40, and 41 was asked for"):
        Synth(path=str(tmp_path), n_features=41)
