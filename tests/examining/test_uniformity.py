"""What is said of how uniform heads are, of models made to be known and of beliefs made by hand."""

from types import SimpleNamespace

import pytest
import torch

from unbraid.examining import uniformity
from unbraid.examining.uniformity import diagnose, lines
from unbraid.metrics.diversity import diversity
from unbraid.metrics.uniformity import sharpness, uniform_row_std
from unbraid.models import Models, Transformer
from unbraid.models.attention import Sight
from unbraid.models.transformer import Passed

TOKENS = 24


@pytest.fixture
def model() -> Models:
    settings = Transformer(d_model=8, heads=2, layers=2, d_ff=8, positions="learned")
    return Models.start(settings, 12, TOKENS, 12, [0])


@pytest.fixture
def tokens(rng) -> torch.Tensor:
    return torch.from_numpy(rng.integers(1, 12, (3, TOKENS)))


def test_a_model_without_queries_looks_at_every_key_alike(model, tokens):
    """All scores are at their chance, and the floor is that of this length."""
    for layer in range(2):
        model.weights[f"blocks.{layer}.attn.qkv"][:, :8] = 0  # the queries
    found = diagnose(model, tokens)
    assert found.chance["row_std"].item() == pytest.approx(uniform_row_std(TOKENS, self_masked=False), abs=1e-9)
    assert found.values["row_std"].item() == pytest.approx(found.chance["row_std"].item(), abs=1e-6)
    assert found.values["sharpness"].item() == pytest.approx(found.chance["sharpness"].item(), abs=1e-4)
    assert found.values["sharp_heads"].item() == found.values["medium_heads"].item() == 0
    assert found.tables["effective_keys"].shape == (1, 2, 2)


def test_scores_are_of_the_last_layer_and_lines_name_its_heads(model, tokens):
    found = diagnose(model, tokens)
    assert found.values["row_std"].item() == pytest.approx(found.tables["row_std"][0, 1].mean().item())
    assert found.values["sharpness"].item() == pytest.approx(found.tables["sharpness"][0, 1].mean().item())
    value = found.tables["row_std"][0, 1, 0].item()
    told = lines(model, tokens)
    assert told[0] == f"Layer 1 Head 0 (softmax): row_std={value:.4f} [UNIFORM] (uniform: 0.0416)"
    assert len(told) == 2
    assert "kl_mean" not in found.values


@pytest.fixture
def believing(rng, monkeypatch):
    """What stands for a model of one layer that has beliefs and masks itself: it passes on what was made by hand."""
    kl = torch.from_numpy(rng.gamma(1, size=(1, 2, 2, 6, 6)))
    below = torch.ones(6, 6).tril(-1).bool()
    below[0, 0] = True
    pattern = (-kl / 0.2).masked_fill(~below, -torch.inf).softmax(-1)
    recorded = {
        "blocks.0.attn.hook_pattern": pattern,
        "blocks.0.attn.hook_kl": kl,
        "embed.hook_mean": torch.from_numpy(rng.normal(size=(1, 2, 6, 4))),
        "embed.hook_variance": torch.from_numpy(rng.gamma(2, size=(1, 2, 6, 4))),
        "embed.hook_frame": torch.from_numpy(rng.normal(size=(1, 2, 6, 3))),
    }
    monkeypatch.setattr(uniformity, "recordable", lambda settings: list(recorded))
    passed = Passed(torch.zeros(1, 2, 6, 4), Sight(True, torch.ones(2, 6, dtype=torch.bool)), recorded, {})
    asked: list[str] = []

    def forward(self: Models, tokens: torch.Tensor, record: list[str]) -> Passed:
        asked.extend(record)
        return passed

    monkeypatch.setattr(Models, "forward", forward)
    settings = SimpleNamespace(layers=1, head_labels=("ℓ0", "ℓ1"))
    model = Models.start(Transformer(d_model=4, heads=2, layers=1, d_ff=4), 5, 6, 5, [0])
    object.__setattr__(model, "settings", settings)
    return model, recorded, below, asked


def test_beliefs_are_told_in_the_seeds_words(believing):
    model, recorded, _, asked = believing
    tokens = torch.ones(2, 6, dtype=torch.long)
    first = [recorded[f"embed.hook_{name}"][0, 0] for name in ("mean", "variance", "frame")]
    expected = diversity(*first, recorded["blocks.0.attn.hook_kl"][0, 0])
    told = lines(model, tokens)
    assert told[0].startswith("Head 0 (ℓ0): row_std=")
    assert told[1].startswith("Head 1 (ℓ1): row_std=")
    assert told[2:] == str(expected).split("\n")
    assert set(asked) == set(recorded)
    found = diagnose(model, tokens)
    assert found.values["kl_std"].item() == pytest.approx(expected.kl.std)
    assert found.values["kl_std_causal"].item() == pytest.approx(expected.causal_kl.std)
    assert found.values["mean_distance"].item() == pytest.approx(expected.mean_distance)


def test_a_model_that_does_not_see_itself_has_the_floor_of_one(believing):
    model, recorded, below, _ = believing
    found = diagnose(model, torch.ones(2, 6, dtype=torch.long))
    assert found.chance["row_std"].item() == pytest.approx(uniform_row_std(6, self_masked=True), abs=1e-9)
    expected = sharpness(recorded["blocks.0.attn.hook_pattern"], below.expand(2, 6, 6))
    torch.testing.assert_close(found.tables["sharpness"][:, 0], expected)
