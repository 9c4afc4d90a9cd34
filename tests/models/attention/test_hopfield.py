import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.models.shapes import SHAPES, TOKENS, doubled, start
from unbraid.models import Hopfield, Softmax
from unbraid.models.attention.hopfield import energy


def drawn(seed, scale):
    rng = np.random.default_rng(seed)
    state, stored = (torch.from_numpy(scale * rng.standard_normal((1, 2, 2, 5, 3))) for _ in range(2))
    beta = torch.from_numpy(np.exp(rng.uniform(-3, 3, (1, 1, 2, 1, 1))))
    added = -torch.from_numpy(rng.random((2, 1, 5, 5))) if seed % 3 == 0 else torch.zeros(1, 1, 5, 5).double()
    if seed % 2:
        added = added.masked_fill(torch.ones(5, 5).triu(1).bool(), -torch.inf)
    return state, stored, added, beta


@given(st.integers(0, 10_000), st.sampled_from([0.1, 1.0, 10.0]))
def test_the_energy_never_rises_and_is_never_below_zero(seed, scale):
    state, stored, added, beta = drawn(seed, scale)
    before = energy(state, stored, added, beta)
    for _ in range(12):
        state = (beta * state @ stored.mT + added).softmax(-1) @ stored
        after = energy(state, stored, added, beta)
        tolerance = 1e-12 * (1 + before.abs())
        assert (after <= before + tolerance).all()
        assert (after >= -tolerance).all()
        before = after


def test_the_energy_by_hand():
    state, stored, added, beta = drawn(3, 1.0)
    expected = np.zeros((1, 2, 2, 5))
    for m, b, h, t in np.ndindex(expected.shape):
        xi, seen, sharpness = state[m, b, h, t].numpy(), stored[m, b, h, : t + 1].numpy(), float(beta[m, 0, h])
        lse = np.log(np.exp(sharpness * seen @ xi + added[b, 0, t, : t + 1].numpy()).sum()) / sharpness
        longest = max(row @ row for row in seen)
        expected[m, b, h, t] = -lse + xi @ xi / 2 + np.log(t + 1) / sharpness + longest / 2
    np.testing.assert_allclose(energy(state, stored, added, beta), expected, atol=1e-12)


@pytest.mark.parametrize("shape", ["hopfield", "hopfield, encoder", "hopfield, memories"])
def test_the_energy_falls_along_a_models_own_iterations(shape):
    models, names = doubled(start(SHAPES[shape])), [f"blocks.{layer}.attn.hook_energy" for layer in range(2)]
    for name in names:
        models.weights[name.replace("hook_energy", "log_beta")].add_(1.5)
    for tensor in models.forward(TOKENS, names).recorded.values():
        falls = tensor.diff(dim=-1)
        assert tensor.shape[-1] == SHAPES[shape].attention.iterations + 1
        assert (falls <= 1e-12).all()
        assert (falls < -1e-6).any()


@pytest.mark.parametrize("causal", [True, False])
def test_one_iteration_with_the_usual_beta_is_softmax_attention(causal):
    settings = SHAPES["causal"].model_copy(update={"causal": causal, "attention": Hopfield(iterations=1)})
    hopfield, plain = start(settings), start(settings.model_copy(update={"attention": Softmax()}))
    same = plain.with_parameters({name: p for name, p in hopfield.weights.items() if name in plain.weights})
    real = TOKENS != 0
    ours, theirs = hopfield.forward(TOKENS).resid[:, real], same.forward(TOKENS).resid[:, real]
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


def test_what_heads_read_is_what_iterating_by_hand_gives():
    """Two rounds over tokens and memories in sight, each head with its own β; the last pattern reads the values."""
    models = doubled(start(SHAPES["hopfield, memories"], seeds=[0]))
    place = "blocks.0.attn."
    own = {name: models.weights[f"{place}{name}"][0].numpy() for name in ("log_beta", "memory_keys", "memory_values")}
    own["log_beta"] += np.array([0.3, 1.0])
    names = [f"{place}hook_{part}" for part in ("q", "k", "v", "z")]
    q, k, v, z = (models.forward(TOKENS, names).recorded[name][0].numpy() for name in names)
    for b, h, t in np.ndindex(3, 2, 6):
        stored = np.concatenate([k[b, h, : t + 1], own["memory_keys"][h]])
        values = np.concatenate([v[b, h, : t + 1], own["memory_values"][h]])
        state, pattern = q[b, h, t], np.zeros(len(stored))
        near = np.concatenate([-(1, 0)[h] * np.arange(t, -1, -1), np.zeros(3)])
        for _ in range(2):
            scores = np.exp(np.exp(own["log_beta"][h]) * stored @ state + near)
            pattern = scores / scores.sum()
            state = pattern @ stored
        np.testing.assert_allclose(z[b, h, t], pattern @ values, atol=1e-10)
