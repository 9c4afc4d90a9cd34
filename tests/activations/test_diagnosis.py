"""A diagnosis finds what was planted in the rows, and its rule for dead features holds where it should."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from unbraid import Dictionary, Sparsity, Training, fit
from unbraid.activations.diagnosis import count_firing, diagnose, expected_dead
from unbraid.activations.shards import Shards
from unbraid.errors import UserError
from unbraid.evaluation.dictionaries import score
from unbraid.worlds import Activations


def normal(rows, dimensions, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((rows, dimensions))).float()


def test_centered_rows_of_length_root_d_need_nothing():
    found = diagnose(normal(20_000, 30))
    assert found.suggested == "none"
    assert found.offset < 0.05
    assert found.outliers == {}
    assert found.participation == pytest.approx(30, rel=0.01)
    assert found.entropy_rank == pytest.approx(30, rel=0.01)
    assert found.lengths[0.5] == pytest.approx(stats.chi(30).median(), rel=0.01)
    assert found.counted.never == found.counted.always == 0


@pytest.mark.parametrize(
    ("mean", "size", "suggested"), [(3.0, 1.0, "center"), (0.0, 5.0, "scale"), (9.0, 4.0, "center_and_scale")]
)
def test_what_is_suggested_is_what_is_wrong(mean, size, suggested):
    assert diagnose(size * normal(5000, 30) + mean).suggested == suggested


def test_the_offset_is_the_length_of_the_mean_over_that_of_a_row():
    found = diagnose(normal(20_000, 16) + 3 * torch.eye(16)[2])
    assert found.offset == pytest.approx(3 / math.sqrt(9 + 16), rel=0.02)
    assert found.ratio == pytest.approx(3 / 4, rel=0.02)


def test_the_effective_rank_is_that_of_the_spectrum():
    """Eigenvalues 4, 1, 1: (Σλ)²/Σλ² = 36/18, and the entropy of (2/3, 1/6, 1/6)."""
    found = diagnose(normal(50_000, 3) * torch.tensor([2.0, 1.0, 1.0]))
    assert found.participation == pytest.approx(2, rel=0.02)
    assert found.entropy_rank == pytest.approx(math.exp(stats.entropy([2 / 3, 1 / 6, 1 / 6])), rel=0.02)


def test_outliers_are_found_with_their_share_of_the_variance():
    sizes = torch.ones(40)
    sizes[[7, 21]] = torch.tensor([10.0, 20.0])
    found = diagnose(normal(20_000, 40) * sizes)
    assert list(found.outliers) == [21, 7]
    assert found.outliers[21] == pytest.approx(400 / 538, rel=0.03)


@pytest.mark.parametrize(("ratio", "samples"), [(0.5, 10), (2.0, 100), (10.0, 1000)])
def test_the_rule_is_its_integral(ratio, samples):
    def share(z):
        return stats.norm.pdf(z) * stats.norm.cdf(-ratio * z) ** samples

    truth = sum(integrate.quad(share, low, low + 2, epsabs=1e-10)[0] for low in range(-12, 12, 2))
    assert expected_dead(ratio, samples) == pytest.approx(truth, abs=1e-6)


@pytest.mark.parametrize("ratio", [0.5, 2.0, 5.0, 20.0])
def test_the_rule_says_how_many_random_features_never_fire(ratio):
    """Rows around a long mean, against counting; within four binomial deviations."""
    dimensions, rows = 64, 2000
    offset = torch.full((dimensions,), ratio)  # |mean| = ratio · √d, and the spread is √d
    counted, expected = count_firing(normal(rows, dimensions) + offset), expected_dead(ratio, rows)
    allowed = 4 * math.sqrt(expected * (1 - expected) / 1024) + 1e-3
    assert counted.never == pytest.approx(expected, abs=allowed)
    assert counted.always == pytest.approx(expected, abs=allowed)


def test_nothing_is_silent_without_an_offset_and_half_is_with_a_huge_one():
    assert expected_dead(0.0, 100) == pytest.approx(2.0**-100)
    assert expected_dead(1e5, 100) == pytest.approx(0.5, abs=0.01)


def test_what_is_predicted_dead_is_dead_after_training_and_centring_saves_it(tmp_path, keep_as_shards):
    """Features silent at the start never learn; with the suggested normalization there are none."""
    rows = 0.3 * normal(4000, 24) + 10 * torch.nn.functional.normalize(normal(1, 24, seed=1), dim=1)
    folder = keep_as_shards(tmp_path / "offset", rows, shard_tokens=2000)
    found = diagnose(Shards.open(folder))
    assert found.suggested == "center_and_scale"
    assert found.counted.never > 0.15
    assert found.after.never == 0
    dead = {}
    for normalize in ("none", found.suggested):
        world = Activations(path=str(folder), normalize=normalize)
        settings = Training(steps=200, batch=64, learning_rate=1e-3)
        stack = fit(world, Dictionary(d_sae=200), [Sparsity(weight=0.02)], settings, seeds=range(5))
        dead[normalize] = score(stack, world, 300).values["dead"] / 200
    assert (dead["none"] > found.counted.never - 0.1).all()
    assert (dead[found.suggested] < 0.02).all()


def test_a_damaged_shard_is_found(tmp_path, keep_as_shards):
    folder = keep_as_shards(tmp_path / "out", normal(1000, 5), shard_tokens=300)
    path = folder / "00002.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\x07")
    with pytest.raises(UserError, match=r"00002.safetensors is damaged"):
        diagnose(Shards.open(folder))


def test_rows_that_are_all_alike_are_described():
    found = diagnose(torch.ones(50, 4))
    assert found.offset == pytest.approx(1)
    assert found.suggested == "center_and_scale"
    assert all(math.isfinite(value) for value in (found.participation, found.entropy_rank, found.ratio))
