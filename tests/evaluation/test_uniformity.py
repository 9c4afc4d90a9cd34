"""What is said of how uniform heads are, of models made to be known and of gauge models with beliefs."""

import pytest
import torch

from unbraid.evaluation.uniformity import diagnose, lines
from unbraid.metrics.attention import sharpness, uniform_row_std
from unbraid.metrics.gaussians import diversity
from unbraid.models import Gauge, Models, Transformer, start_models

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
