"""How models start: as torch's layers do, or so that what attention carries is heard; each part from its own stream."""

import numpy as np
import pytest
from torch import nn

from tests.models.shapes import SHAPES
from unbraid.models import PUBLISHED, Hopfield, Routed, RoutedExperts, Transformer
from unbraid.models.transformer import init_transformer

WORDS, LENGTH, CLASSES = 200, 50, 30
WIDE = Transformer(
    d_model=16, heads=4, d_ff=36, init="torch", attention=Routed(k=1, shared=1), feed_forward=RoutedExperts(experts=3)
)
INPUTS = {"mlp.out.weight": 36, "mlp.out.bias": 36}
"""Of every other product: 16."""


def begin(settings, seed=0, **changed):
    return init_transformer(settings.model_copy(update=changed), WORDS, LENGTH, CLASSES, seed)


def products(start):
    """Weights and biases of every product, with the number of its inputs."""
    plain = [name for name in start if "norm" not in name and name not in ("embed", "positions")]
    return {name: (start[name], INPUTS.get(".".join(name.split(".")[2:]), 16)) for name in plain}


@pytest.mark.parametrize("settings", SHAPES.values(), ids=SHAPES)
def test_carrying_scales_values_output_words_and_what_is_fed_and_changes_nothing_else(settings):
    width = settings.d_model
    for seed in (0, 7):
        bare, carrying = begin(settings, seed, init="torch"), begin(settings, seed, init="scaled_attention")
        assert carrying.keys() == bare.keys()
        for layer in range(settings.layers):
            qkv, out = f"blocks.{layer}.attn.qkv", f"blocks.{layer}.attn.out"
            np.testing.assert_array_equal(carrying[qkv][: 2 * width], bare[qkv][: 2 * width])
            np.testing.assert_array_equal(carrying.pop(qkv)[2 * width :], 2 * bare.pop(qkv)[2 * width :])
            np.testing.assert_array_equal(carrying.pop(out), 2 * bare.pop(out))
            fed = f"blocks.{layer}.mlp.out.weight"
            np.testing.assert_allclose(carrying.pop(fed), bare.pop(fed) / 10, rtol=1e-6)
        np.testing.assert_allclose(carrying.pop("embed"), bare.pop("embed") / 5, rtol=1e-6)
        for name, weight in bare.items():
            np.testing.assert_array_equal(carrying[name], weight, err_msg=name)


def test_models_start_carrying_unless_told_else_and_the_seeds_as_torch():
    assert Transformer().init == "scaled_attention"
    assert PUBLISHED.init == "torch"


def test_products_start_uniform_within_one_over_the_root_of_their_inputs():
    """As a linear layer of torch does: within ±1/√inputs and nearly up to it, of variance bound²/3."""
    found = products(begin(WIDE))
    assert {name.split(".")[-1] for name in found} >= {"qkv", "out", "router", "kinds", "sharing", "weight", "bias"}
    for name, (weight, inputs) in found.items():
        bound = inputs**-0.5
        assert np.abs(weight).max() <= bound, name
        if weight.size >= 256:
            theirs = nn.Linear(inputs, 1000).weight.detach().numpy()
            for drawn in (weight, theirs):
                assert np.abs(drawn).max() > 0.95 * bound, name
                assert np.std(drawn) == pytest.approx(bound / 3**0.5, rel=0.1), name


def test_words_are_standard_normal_learned_positions_small_and_norms_do_nothing():
    start = begin(WIDE, positions="learned")
    assert start["embed"].shape == (WORDS, 16)
    for name, deviation in {"embed": 1.0, "positions": 0.02}.items():
        z = start[name] / deviation
        assert abs(z.mean()) < 4 / z.size**0.5
        assert np.square(z).mean() == pytest.approx(1, abs=4 * (2 / z.size) ** 0.5)
        assert np.abs(z).max() > 2.5  # of so many normal numbers; uniform ones of this variance end at 1.73
    norms = [name for name in start if "norm" in name]
    assert len(norms) == 2 * (2 * WIDE.layers + 1)
    for name in norms:
        np.testing.assert_array_equal(start[name], 1.0 if name.endswith("weight") else 0.0)


@pytest.mark.parametrize(
    "changed",
    [
        {"layers": 3},
        {"positions": "learned"},
        {"d_ff": 20},
        {"attention": Hopfield(memories=2)},
        {"feed_forward": RoutedExperts(experts=4)},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_another_part_does_not_change_how_the_others_start(changed):
    before, after = begin(Transformer(d_model=8)), begin(Transformer(d_model=8), **changed)
    same = [name for name in before if not ("d_ff" in changed and ".mlp." in name)]
    assert before.keys() <= after.keys()
    for name in same:
        np.testing.assert_array_equal(after[name], before[name], err_msg=name)


def test_every_seed_and_every_layer_starts_on_its_own():
    one, other = begin(WIDE, seed=1), begin(WIDE, seed=2)
    for name, (weight, _) in products(one).items():
        assert (weight != other[name]).any(), name
    assert (one["blocks.0.attn.qkv"] != one["blocks.1.attn.qkv"]).any()
