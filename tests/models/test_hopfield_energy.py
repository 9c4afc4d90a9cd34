import numpy as np
import pytest
import torch

from tests.models.shapes import SHAPES, TOKENS, start
from unbraid.errors import UserError
from unbraid.models import hopfield_energy
from unbraid.models.attention.attention import HeadInputs
from unbraid.models.attention.hopfield import Hopfield
from unbraid.models.hopfield_energy import SAME, distinct, separations

HOPFIELD = [name for name in SHAPES if name.startswith("hopfield")]

MASK = torch.tensor([[1, 1, 1, 0]]).bool()


def test_separation_by_hand():
    stored = torch.tensor([[2.0, 0], [0, 1], [1, 1], [9, 9]]).view(1, 1, 1, 4, 2)
    expected = torch.tensor([4 - 2.0, 1 - 1, 2 - 2, torch.nan])
    torch.testing.assert_close(separations(stored, MASK).flatten(), expected, equal_nan=True)


def test_resting_places_that_are_near_are_one():
    states = torch.tensor([[0.0, 0], [1, 0], [1, 0.01], [5, 5]]).view(1, 1, 1, 4, 2)
    assert distinct(states, MASK, torch.tensor([[[0.1]]])).item() == 2
    assert distinct(states, MASK, torch.tensor([[[0.001]]])).item() == 3


def with_beta(shape, log_beta):
    models = start(SHAPES[shape], seeds=[0, 1])
    models.weights["blocks.1.attn.log_beta"].fill_(log_beta)
    return models


def test_a_soft_memory_has_one_attractor_and_a_sharp_one_recalls_single_tokens():
    soft = hopfield_energy(with_beta("hopfield, encoder", -6.0), TOKENS, 1)
    assert (soft.attractors == 1).all()
    words = (TOKENS != 0).sum(1).double()[None, :, None, None].expand(2, 3, 2, 6)
    real = ~soft.patterns.isnan()
    assert torch.equal(real, (TOKENS != 0)[None, :, None, :].expand_as(real))
    torch.testing.assert_close(soft.patterns[real], words[real], rtol=0.01, atol=0)
    sharp = hopfield_energy(with_beta("hopfield, encoder", 9.0), TOKENS, 1)
    assert (sharp.attractors[:, 0] > 1).any()
    assert (sharp.attractors[:, 2] == 1).all()  # a story of one word
    assert float(sharp.patterns[real].median()) == pytest.approx(1, abs=1e-3)
    assert (sharp.patterns[real] >= 1 - 1e-9).all()


@pytest.mark.parametrize("log_beta", [-2.0, 0.5, 3.0])
@pytest.mark.parametrize("shape", HOPFIELD)
def test_a_resting_place_is_a_fixed_point_of_the_models_own_iteration(shape, log_beta):
    """Given as the query, and with what is stored as values, one iteration of the attention gives it back."""
    models, place = with_beta(shape, log_beta), "blocks.1.attn."
    found, passed = hopfield_energy(models, TOKENS, 1), models.forward(TOKENS, [f"{place}hook_k"])
    keys = passed.recorded[f"{place}hook_k"].double()
    own = {name.removeprefix(place): p.double() for name, p in models.weights.items() if name.startswith(place)}
    own |= {"memory_values": own["memory_keys"]} if "memory_keys" in own else {}
    once = Hopfield(iterations=1, memories=models.settings.attention.memories)
    given = HeadInputs(
        keys.new_zeros(2, *TOKENS.shape, 8),
        found.fixed_points,
        keys,
        keys,
        passed.attention_mask,
        own,
        frozenset({"hook_pattern"}),
    )
    mixed = once.mix(given)
    real = (TOKENS != 0)[None, :, None, :].expand(found.patterns.shape)
    longest = keys.square().sum(-1).max().sqrt()
    assert float((mixed.z - found.fixed_points)[real].norm(dim=-1).max()) < SAME / 10 * longest
    pattern = torch.cat([mixed.recorded["hook_pattern"], mixed.recorded["hook_memory"]], -1)
    spread = torch.special.entr(pattern).sum(-1).exp()
    torch.testing.assert_close(spread[real], found.patterns[real], rtol=1e-2, atol=0)


@pytest.mark.parametrize("shape", ["hopfield", "hopfield, memories"])
def test_who_looks_only_back_rests_where_they_would_if_the_story_ended_there(shape):
    models = with_beta(shape, 1.0)
    whole = hopfield_energy(models, TOKENS[:1], 1)
    for length in range(1, TOKENS.shape[1]):
        cut = hopfield_energy(models, TOKENS[:1, :length], 1)
        torch.testing.assert_close(cut.fixed_points, whole.fixed_points[:, :, :, :length], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(cut.patterns, whole.patterns[..., :length], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", HOPFIELD)
def test_padding_changes_nothing(shape):
    models = with_beta(shape, 1.0)
    padded, bare = hopfield_energy(models, TOKENS[1:2], 1), hopfield_energy(models, TOKENS[1:2, :4], 1)
    assert torch.equal(padded.attractors, bare.attractors)
    torch.testing.assert_close(padded.patterns[..., :4], bare.patterns, rtol=1e-4, atol=1e-4)


def test_energies_are_the_models_own_and_never_rise():
    models = with_beta("hopfield, memories", 1.0)
    energies = hopfield_energy(models, TOKENS, 1).energies
    assert energies.shape == (2, 3, 2, 6, 3)
    real = energies[~energies.isnan()].view(-1, 3)
    assert len(real) == 2 * 2 * int((TOKENS != 0).sum())
    assert (real.diff(dim=-1) <= 1e-5).all()


def test_memories_draw_queries_too():
    models = with_beta("hopfield, memories", 2.0)
    before = hopfield_energy(models, TOKENS, 1).patterns
    models.weights["blocks.1.attn.memory_keys"].mul_(50)
    after = hopfield_energy(models, TOKENS, 1)
    real = np.broadcast_to((TOKENS != 0).numpy()[None, :, None, :], before.shape)
    assert (before - after.patterns).abs().numpy()[real].max() > 0.05
    assert (after.attractors[:, 2] == 1).all()


def test_other_attentions_have_no_landscape():
    with pytest.raises(UserError, match="asked of softmax attention; accepted: a model with hopfield"):
        hopfield_energy(start(SHAPES["causal"]), TOKENS, 0)
