"""The published diversity block: its exact text, and every number against loops.
The theory of how divergences spread, against closed forms and drawn beliefs.
"""

import math
from itertools import permutations

import numpy as np
import pytest
import torch

from unbraid.metrics.attention import row_std, sharpness, uniform_row_std, without_self
from unbraid.metrics.gaussians import (
    Diversity,
    Spread,
    Statistics,
    causal_spread,
    diversity,
    expected_row_std,
    expected_sharpness,
    kl_mean,
    kl_std,
    mean_deviation,
    mean_distance,
    smallest_sharp,
    temperature,
    tensor_share,
    transport_effect,
)
from unbraid.models.gauge.frames import turns
from unbraid.models.gauge.pairwise import transports

PUBLISHED = """\
[DIVERSITY] μ_dist: 0.4962 | φ_std: 0.4827 | KL_std: 0.0134
            KL range: [0.0002, 0.0896] | mean: 0.0192
            σ range: [0.002629, 6.713892] | mean: 1.005399"""
"""At step 20000, as the seed prints it."""


def test_the_text_is_the_seeds():
    found = Diversity(
        mean_distance=0.49623,
        frame_deviation=0.48271,
        kl=Spread(least=0.00021, most=0.08961, mean=0.01921, std=0.01342),
        causal_kl=Spread(0.0, 0.0, 0.0, 0.0),
        variance_least=0.0026291,
        variance_most=6.7138921,
        variance_mean=1.0053991,
    )
    assert str(found) == PUBLISHED


@pytest.fixture
def beliefs(rng):
    """Five tokens in four dimensions, two heads."""
    mean, variance, frame = rng.normal(size=(5, 4)), rng.gamma(2, size=(5, 4)), rng.normal(size=(5, 3))
    return [torch.from_numpy(each) for each in (mean, variance, frame, rng.gamma(1, size=(2, 5, 5)))]


def test_distances_frames_and_variances_are_what_loops_find(beliefs):
    found = diversity(*beliefs)
    mean, variance, frame, _ = (each.numpy() for each in beliefs)
    pairs = list(permutations(range(5), 2))
    assert found.mean_distance == pytest.approx(np.mean([np.linalg.norm(mean[i] - mean[j]) for i, j in pairs]))
    assert found.frame_deviation == pytest.approx(np.mean([np.std(frame[:, axis], ddof=1) for axis in range(3)]))
    assert (found.variance_least, found.variance_most) == (variance.min(), variance.max())
    assert found.variance_mean == pytest.approx(variance.mean())


@pytest.mark.parametrize("width", [1, 3, 5, 19])
def test_drawn_means_are_as_far_apart_as_chi_says_and_deviate_alike_at_any_width(rng, width):
    """|μ_i - μ_j| = √2·s·χ_K, of mean 2s·Γ((K+1)/2)/Γ(K/2); a deviation knows nothing of K."""
    means = torch.from_numpy(rng.normal(scale=0.3, size=(4000, width)))
    expected = 2 * 0.3 * math.exp(math.lgamma((width + 1) / 2) - math.lgamma(width / 2))
    assert mean_distance(means) == pytest.approx(expected, rel=0.03)
    assert mean_deviation(means) == pytest.approx(0.3, rel=0.03)


def test_a_deviation_is_half_the_mean_square_distance_in_a_dimension(rng):
    means = rng.normal(size=(6, 3))
    squares = [np.sum((means[i] - means[j]) ** 2) for i, j in permutations(range(6), 2)]
    assert mean_deviation(torch.from_numpy(means)) == pytest.approx(math.sqrt(np.mean(squares) / 2 / 3))


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_what_transport_moves_is_what_the_form_over_pairs_moves(rng, degree):
    """Ω_ij μ_j - μ_j by the specification, `models/gauge/pairwise.py`; scalars are never moved."""
    frames = torch.from_numpy(rng.normal(size=(7, 3)))
    means = torch.from_numpy(rng.normal(size=(7, 2, 2 * degree + 1)))
    omega = transports(frames[None, None], degree, "exact")[0, 0].numpy()
    found = transport_effect(means, turns(frames, {degree})[degree])
    for head in range(2):
        own = means[:, head].numpy()
        moved = np.mean([np.sum((omega[i, j] @ own[j] - own[j]) ** 2) for i, j in permutations(range(7), 2)])
        assert found[head].item() == pytest.approx(math.sqrt(moved / np.mean(np.sum(own**2, 1))), abs=1e-12)
    assert (found == 0).all() if degree == 0 else (found > 0.3).all()


def test_transport_does_nothing_without_frames_and_everything_with_unrelated_ones(rng):
    """A turn by φ about an axis moves what is square to it by 2 sin φ/2; unrelated frames move by √2 in the mean."""
    means = torch.from_numpy(rng.normal(size=(400, 1, 5)))
    assert transport_effect(means, torch.eye(5, dtype=torch.float64).expand(400, 5, 5)).item() == 0
    two = torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, 0.8]], dtype=torch.float64)
    across = torch.tensor([[[1.0, 0.0, 0.0]], [[0.0, 2.0, 0.0]]], dtype=torch.float64)  # square to the axis z
    assert transport_effect(across, turns(two, {1})[1]).item() == pytest.approx(2 * math.sin(0.4))
    quaternions = rng.normal(size=(400, 4))
    quaternions /= np.linalg.norm(quaternions, axis=1, keepdims=True)
    angle = 2 * np.arccos(quaternions[:, :1])
    anywhere = torch.from_numpy(angle * quaternions[:, 1:] / np.sin(angle / 2))
    assert transport_effect(means, turns(anywhere, {2})[2]).item() == pytest.approx(math.sqrt(2), rel=0.02)


def test_tensors_are_of_degree_2_and_higher():
    assert [tensor_share(degrees) for degrees in ([0, 0, 1], [0, 1, 2, 3], [2, 2])] == [0, 0.5, 1]


def test_divergences_are_averaged_over_heads_and_published_ones_include_later_keys(beliefs):
    found = diversity(*beliefs)
    kl = beliefs[3].numpy().mean(0)
    every = [kl[i, j] for i, j in permutations(range(5), 2)]
    before = [kl[i, j] for i in range(5) for j in range(i)]
    for spread, values in ((found.kl, every), (found.causal_kl, before)):
        expected = (min(values), max(values), np.mean(values), np.std(values, ddof=1))
        assert (spread.least, spread.most, spread.mean, spread.std) == pytest.approx(expected)


def test_the_spread_of_each_head_is_over_its_own_causal_pairs(rng):
    kl = rng.gamma(1, size=(2, 3, 2, 4, 4))  # m b h t s
    mean, std = causal_spread(torch.from_numpy(kl))
    values = [kl[1, b, 0, i, j] for b in range(3) for i in range(4) for j in range(i)]
    assert mean[1, 0].item() == pytest.approx(np.mean(values))
    assert std[1, 0].item() == pytest.approx(np.std(values, ddof=1))


PLAIN = Statistics(means=0.3, variance=1.5)
UNEVEN = Statistics(means=0.3, variance=1.5, log_deviation=0.4)
TOKENS = 64


def divergences(rng: np.random.Generator, statistics: Statistics, dimension: int, tokens: int) -> np.ndarray:
    """KL of every two of so many beliefs, by its definition."""
    m = rng.normal(0, math.sqrt(statistics.means), (tokens, dimension))
    v = statistics.variance * np.exp(rng.normal(0, statistics.log_deviation, (tokens, dimension)))
    ratio = v[:, None] / v[None]
    return 0.5 * (ratio - 1 - np.log(ratio) + (m[:, None] - m[None]) ** 2 / v[None]).sum(-1)


def drawn_attention(
    rng: np.random.Generator, statistics: Statistics, dimension: int, kappa: float, self_masked: bool, times: int
) -> tuple[torch.Tensor, torch.Tensor]:
    kl = torch.from_numpy(np.stack([divergences(rng, statistics, dimension, TOKENS) for _ in range(times)]))
    keys = torch.ones(times, TOKENS, TOKENS, dtype=torch.bool).tril()
    keys = without_self(keys) if self_masked else keys
    pattern = (-kl / kappa).masked_fill(~keys, -torch.inf).softmax(-1)
    return pattern[None, :, None], keys


def test_without_spread_of_variances_it_is_a_scaled_chi_square():
    for dimension in (1, 3, 9):
        assert kl_mean(PLAIN, dimension) == pytest.approx(0.2 * dimension)
        assert kl_std(PLAIN, dimension) == pytest.approx(0.2 * math.sqrt(2 * dimension))


@pytest.mark.parametrize("statistics", [PLAIN, UNEVEN])
@pytest.mark.parametrize("dimension", [1, 5])
def test_mean_and_deviation_are_those_of_drawn_beliefs(rng, statistics, dimension):
    drawn = [divergences(rng, statistics, dimension, 40)[~np.eye(40, dtype=bool)] for _ in range(400)]
    assert np.mean(drawn) == pytest.approx(kl_mean(statistics, dimension), rel=0.02)
    assert np.std(drawn) == pytest.approx(kl_std(statistics, dimension), rel=0.04)


def test_the_deviation_grows_with_the_dimension_and_only_relative_to_the_mean_it_falls():
    """The seed says that sums concentrate as K grows, and so that attention becomes uniform."""
    few, many = ((kl_mean(UNEVEN, k), kl_std(UNEVEN, k)) for k in (5, 20))
    assert many[1] == pytest.approx(2 * few[1])
    assert many[1] / many[0] == pytest.approx(few[1] / few[0] / 2)


def test_three_quarters_of_the_variance_are_within_rows(rng):
    """(s²/2v)²·2(K + 2λ) with λ = K in the mean, of the (s²/v)²·2K in all."""
    kl = np.stack([divergences(rng, PLAIN, 4, 200) for _ in range(30)])
    rows = np.where(np.eye(200, dtype=bool), np.nan, kl)
    assert np.nanvar(rows, axis=-1).mean() == pytest.approx(0.75 * kl_std(PLAIN, 4) ** 2, rel=0.05)


def closed_share(a: float) -> float:
    return math.exp(a / (1 + 2 * a)) / math.sqrt((1 + 2 * a) * (1 + 4 * a**2 / (1 + 2 * a) ** 2))


@pytest.mark.parametrize("kappa", [0.05, 0.3, 2.0])
@pytest.mark.parametrize("dimension", [1, 3, 9])
def test_sharpness_is_one_minus_the_share_of_one_dimension_to_the_power_of_all(kappa, dimension):
    """At any number of tokens: of n keys 1 + (n - 1)·r^K are effective."""
    share = closed_share(PLAIN.means / (2 * PLAIN.variance * kappa)) ** dimension
    for tokens in (3, 64):
        assert expected_sharpness(PLAIN, dimension, kappa, tokens) == pytest.approx(1 - share, abs=1e-6)


@pytest.mark.parametrize("self_masked", [True, False])
@pytest.mark.parametrize("statistics", [PLAIN, UNEVEN])
@pytest.mark.parametrize(("dimension", "kappa"), [(1, 0.5), (1, 0.1), (3, 0.3), (5, 0.5), (5, 0.1), (9, 0.2)])
def test_expected_sharpness_and_row_std_are_those_of_drawn_beliefs(rng, statistics, dimension, kappa, self_masked):
    pattern, keys = drawn_attention(rng, statistics, dimension, kappa, self_masked, 40)
    found = sharpness(pattern, keys).item()
    assert expected_sharpness(statistics, dimension, kappa, TOKENS, self_masked) == pytest.approx(found, abs=0.08)
    firsts = [row_std(pattern[:, place : place + 1]).item() for place in range(40)]
    expected = expected_row_std(statistics, dimension, kappa, TOKENS, self_masked)
    assert expected == pytest.approx(np.mean(firsts), rel=0.25, abs=0.005)


def test_where_attention_is_nearly_uniform_the_theory_is_exact(rng):
    pattern, keys = drawn_attention(rng, UNEVEN, 5, 3.0, True, 100)
    assert expected_sharpness(UNEVEN, 5, 3.0, TOKENS) == pytest.approx(sharpness(pattern, keys).item(), rel=0.05)


@pytest.mark.parametrize("self_masked", [True, False])
def test_beliefs_that_do_not_differ_give_the_uniform_floor(self_masked):
    alike = Statistics(means=0.0, variance=1.0)
    assert expected_sharpness(alike, 5, 0.1, TOKENS, self_masked) == pytest.approx(0, abs=1e-12)
    floor = uniform_row_std(TOKENS, self_masked)
    assert expected_row_std(alike, 5, 0.1, TOKENS, self_masked) == pytest.approx(floor, abs=1e-9)


def test_with_self_attention_row_std_falls_as_attention_sharpens():
    """A token is its own nearest: the published measure leaves out the diagonal, and so does not see it."""
    flat, sharp = (expected_row_std(PLAIN, 9, kappa, TOKENS, self_masked=False) for kappa in (5.0, 0.1))
    assert sharp < flat
    assert expected_sharpness(PLAIN, 9, 0.1, TOKENS, self_masked=False) > 0.9


def test_one_temperature_makes_large_heads_sharp_and_one_by_head_hardly_depends_on_them():
    shared = [expected_sharpness(PLAIN, k, temperature(1.0, "shared", k), TOKENS) for k in (1, 5, 25)]
    by_head = [expected_sharpness(PLAIN, k, temperature(1.0, "head", k), TOKENS) for k in (1, 5, 25)]
    assert shared[2] > 4 * shared[1] > 16 * shared[0]
    assert max(by_head) < 1.3 * min(by_head)


def test_the_smallest_sharp_dimension_is_the_first_above_the_threshold():
    """By the closed form: 1 - r^K > threshold first where K > log(1 - threshold) / log r."""
    kappa, share = 0.5, closed_share(0.3 / (2 * 1.5 * 0.5))
    expected = math.floor(math.log(1 - 0.5) / math.log(share)) + 1
    assert smallest_sharp(PLAIN, kappa, "shared", TOKENS, 0.5) == expected
    assert smallest_sharp(PLAIN, kappa, "head", TOKENS, 0.5) is None
    assert smallest_sharp(PLAIN, kappa, "head", TOKENS, 0.05) == 1
    assert smallest_sharp(PLAIN, kappa, "shared", TOKENS, 0.05, "row_std") in range(2, expected + 10)


def test_statistics_are_measured_over_tokens(rng):
    means = torch.from_numpy(rng.normal(3, math.sqrt(0.3), (20_000, 4)))
    variances = torch.from_numpy(1.5 * np.exp(rng.normal(0, 0.4, (20_000, 4))))
    found = Statistics.of(means, variances)
    assert (found.means, found.variance, found.log_deviation) == pytest.approx((0.3, 1.5, 0.4), rel=0.02)
