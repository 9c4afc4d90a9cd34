"""What is said of how uniform heads are, of models made to be known and of gauge models with beliefs."""

import pytest
import torch

from unbraid.evaluation.uniformity import diagnose, lines, track
from unbraid.metrics.attention import sharpness, uniform_row_std
from unbraid.metrics.gaussians import diversity
from unbraid.metrics.text_beliefs import text_sharpness
from unbraid.models import Gauge, Models, Transformer, start_models
from unbraid.models.gauge.pairwise import transports

TOKENS = 24


@pytest.fixture
def model() -> Models:
    settings = Transformer(d_model=8, heads=2, layers=2, d_ff=8, positions="learned")
    return start_models(settings, 12, TOKENS, 12, [0])


@pytest.fixture
def tokens(rng) -> torch.Tensor:
    return torch.from_numpy(rng.integers(1, 12, (3, TOKENS)))


def gauge(**settings) -> Models:
    return start_models(Gauge(irreps="2x0e + 1x1e", kappa=0.5, **settings), 12, TOKENS, 12, [0])


def test_a_model_without_queries_looks_at_every_key_alike(model, tokens):
    """All scores are at their chance, and the floor is that of this length."""
    for layer in range(2):
        model.weights[f"blocks.{layer}.attn.qkv"][:, :8] = 0  # the queries
    found = diagnose(model, tokens)
    assert found.chance["row_std"].item() == pytest.approx(uniform_row_std(TOKENS, self_masked=False), abs=1e-7)
    assert found.values["row_std"].item() == pytest.approx(found.chance["row_std"].item(), abs=1e-6)
    assert found.values["sharpness"].item() == pytest.approx(found.chance["sharpness"].item(), abs=1e-4)
    assert found.values["query_variation"].item() == pytest.approx(found.chance["query_variation"].item(), abs=1e-6)
    assert found.values["sharp_heads"].item() == found.values["medium_heads"].item() == 0
    assert found.tables["effective_keys"].shape == (1, 2, 2)


def test_scores_are_of_the_last_layer_and_lines_name_its_heads(model, tokens):
    found = diagnose(model, tokens)
    assert found.values["row_std"].item() == pytest.approx(found.tables["row_std"][0, 1].mean().item())
    assert found.values["sharpness"].item() == pytest.approx(found.tables["sharpness"][0, 1].mean().item())
    value = found.tables["row_std"][0, 1, 0].item()
    told = lines(model, tokens)
    assert told[0] == f"Head 0 (softmax): row_std={value:.4f} [UNIFORM] (uniform: 0.0416)"
    assert len(told) == 2
    assert "kl_mean" not in found.values


def test_heads_of_each_kind_have_scores_of_their_own(tokens):
    found = diagnose(gauge(), tokens)
    table = found.tables["sharpness"][0, -1]
    assert found.values["sharpness_l0"].item() == pytest.approx(table[:2].mean().item())
    assert found.values["sharpness_l1"].item() == pytest.approx(table[2].item())
    assert found.chance["row_std_l1"].item() == found.tables["row_std_uniform"].item()
    assert found.chance["sharpness_l0"].item() == 0


def test_beliefs_are_told_in_the_seeds_words(tokens):
    model = gauge()
    names = ["embed.hook_mean", "embed.hook_variance", "embed.hook_frame", "blocks.0.attn.hook_kl"]
    recorded = model.forward(tokens, names).recorded
    expected = diversity(*(recorded[name][0, 0] for name in names))
    told = lines(model, tokens)
    assert told[2].startswith("Head 2 (ℓ1): row_std=")
    assert told[3:] == str(expected).split("\n")
    found = diagnose(model, tokens)
    assert found.values["kl_std"].item() == pytest.approx(expected.kl.std)
    assert found.values["kl_std_causal"].item() == pytest.approx(expected.causal_kl.std)
    assert found.values["mean_distance"].item() == pytest.approx(expected.mean_distance)
    assert found.tables["kl_mean"].shape == (1, 1, 3)


def test_a_model_that_does_not_see_itself_has_the_floor_of_one(tokens):
    model = gauge(self_attention=False)
    found, name = diagnose(model, tokens), "blocks.0.attn.hook_pattern"
    assert found.chance["row_std"].item() == pytest.approx(uniform_row_std(TOKENS, self_masked=True), abs=1e-7)
    below = torch.ones(TOKENS, TOKENS).tril(-1).bool()
    below[0, 0] = True
    expected = sharpness(model.forward(tokens, [name]).recorded[name], below.expand(3, TOKENS, TOKENS))
    torch.testing.assert_close(found.tables["sharpness"][:, 0], expected)


def test_random_beliefs_are_about_as_sharp_as_the_theory_says():
    """Before teaching the means of tokens are drawn: the theory's own case, but for positions and so few tokens."""
    settings = Gauge(
        irreps="4x0e + 4x1e + 4x2e", kappa=0.5, positions="none", self_attention=False, frame_deviation=1.0
    )
    model = start_models(settings, 400, 64, 12, [0])
    tokens = torch.randint(1, 400, (16, 64), generator=torch.Generator().manual_seed(0))
    found = diagnose(model, tokens)
    for label in ("l0", "l1", "l2"):
        expected = found.values[f"expected_sharpness_{label}"].item()
        assert found.values[f"sharpness_{label}"].item() == pytest.approx(expected, abs=0.1)
        assert expected > 0.2
    widths = [1, 3, 5]
    sharp = [
        width
        for width, label in zip(widths, ("l0", "l1", "l2"), strict=True)
        if found.values[f"expected_sharpness_{label}"] > 0.5
    ]
    assert found.values["smallest_sharp"].item() <= min(sharp)


def test_means_are_told_by_irrep_as_they_are_and_as_transport_brings_them(tokens):
    """Loops over the pairs of the first window, with transport by the form over pairs."""
    model = gauge(frame_deviation=1.0)
    names = ["embed.hook_mean", "embed.hook_frame"]
    mean, frame = (model.forward(tokens, names).recorded[name][0, 0].double() for name in names)
    omega = transports(frame[None, None], 1, "exact")[0, 0]
    vector, others = mean[:, 2:5], [(i, j) for i in range(TOKENS) for j in range(TOKENS) if i != j]
    apart = [(vector[i] - vector[j]).norm() for i, j in others]
    carried = [(vector[i] - omega[i, j] @ vector[j]).square().sum() for i, j in others]
    moved = [(omega[i, j] @ vector[j] - vector[j]).square().sum() for i, j in others]
    found = {name: value.item() for name, value in diagnose(model, tokens).values.items()}
    assert found["mean_distance_l1"] == pytest.approx(torch.stack(apart).mean().item(), rel=1e-5)
    assert found["mean_deviation_l1"] == pytest.approx((torch.stack(carried).mean() / 6).sqrt().item(), rel=1e-5)
    effect = (torch.stack(moved).mean() / vector.square().sum(-1).mean()).sqrt().item()
    assert found["transport_effect_l1"] == pytest.approx(effect, rel=1e-5)
    assert effect > 0.5
    assert found["transport_effect_l0"] == 0
    assert found["transport_effect"] == pytest.approx(effect / 3, rel=1e-5)  # two scalars and a vector


def test_without_transport_its_effect_is_0_for_every_irrep(tokens):
    found = diagnose(gauge(frame_deviation=1.0, transport="identity"), tokens).values
    assert found["transport_effect_l1"].item() == found["transport_effect_l0"].item() == 0


def test_the_share_of_tensors_and_the_least_sharp_width_are_told(tokens):
    settings = Gauge(irreps="3x0e + 1x2e", kappa=1e-6)  # so cold that every head is sharp
    cold = diagnose(start_models(settings, 12, TOKENS, 12, [0]), tokens).values
    assert cold["tensor_share"].item() == 0.25
    assert cold["smallest_sharp_measured"].item() == 1
    warm = start_models(Gauge(irreps="3x0e + 1x2e", kappa=1e6), 12, TOKENS, 12, [0])
    assert diagnose(warm, tokens).values["smallest_sharp_measured"].isnan().item()
    apart = warm.with_parameters({**warm.weights, "embed.mean": warm.weights["embed.mean"].clone()})
    apart.weights["embed.mean"][:, :, 3:] *= 1e5  # the tensor's columns alone
    assert diagnose(apart, tokens).values["smallest_sharp_measured"].item() == 5


def test_what_a_text_predicts_is_of_heads_as_wide_as_these(tokens, rng):
    """A prediction of each width at this κ, and the least width above one half."""
    believed = torch.from_numpy(rng.normal(size=(12, 4)))
    settings = Gauge(irreps="2x0e + 1x1e + 1x2e", kappa=0.5, temperature="shared", self_attention=False)
    model = start_models(settings, 12, TOKENS, 12, [0])
    expected = text_sharpness(believed, tokens, settings.kappa_of(1), "shared", self_masked=True)
    found = diagnose(model, tokens, believed).values
    assert found["text_sharpness_l0"].item() == pytest.approx(expected[0].item())
    assert found["text_sharpness_l1"].item() == pytest.approx(expected[2].item())
    assert found["text_sharpness_l2"].item() == pytest.approx(expected[3].item())  # the text has four dimensions
    assert found["text_sharpness"].item() == pytest.approx(expected[[0, 0, 2, 3]].mean().item())
    assert expected[0] < 0.5 < expected[3]
    assert found["smallest_sharp_text"].item() == 1 + int((expected <= 0.5).sum())
    assert "smallest_sharp_text" not in diagnose(model, tokens).values


def test_what_is_tracked_is_the_diversity_of_the_first_window(tokens):
    model = gauge()
    tracked, whole = track(model, tokens), diagnose(model, tokens[:1]).values
    assert {"kl_std", "mean_distance", "mean_distance_l0", "frame_deviation", "sharpness_l1"} <= tracked.keys()
    assert tracked == pytest.approx({name: whole[name].item() for name in tracked})


def test_nothing_is_tracked_of_a_model_without_beliefs(model, tokens):
    assert track(model, tokens) == {}
