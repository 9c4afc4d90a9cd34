"""A gauge transformer is the published formulas put together: tokens to beliefs, what heads read, costs, answers."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tests.models.gauge import independent
from tests.models.shapes import ASKED, GAUGES, TOKENS, doubled, start
from unbraid.errors import NotFinite
from unbraid.members import stack_configs
from unbraid.models import FreeEnergy, Gauge
from unbraid.models.gauge.beliefs import Indefinite
from unbraid.models.training import ModelState, ModelTraining, train_step

SPEC = "2x0e+1x1e+1x2e"
HEADS = independent.heads_of(SPEC)
SENTENCE = TOKENS[:1]


def embedded(models, tokens):
    """Means, covariances and frames of the first member, by hand."""
    own = {name: weight[0].double().numpy() for name, weight in models.weights.items()}
    words = tokens[0].numpy()
    turn = independent.frames(own["embed.frame"][words], HEADS) @ independent.frames(
        own["positions.frame"][: len(words)], HEADS
    )
    means = own["embed.mean"][words] + own["positions.mean"][: len(words)]
    covariances = np.stack([np.diag(np.exp(own["embed.spread"][word])) for word in words])
    return means, covariances, turn


@pytest.fixture
def models():
    settings = Gauge(
        irreps=SPEC, layers=1, frame_deviation=1.0, alignment=0.3, prior=0.2, temperature="shared", kappa=2
    )
    made = doubled(start(settings))
    spread = 0.5 * torch.randn(made.weights["embed.spread"].shape, dtype=torch.float64, generator=torch.manual_seed(0))
    return made.with_parameters({**made.weights, "embed.spread": spread})


def test_one_layer_is_the_formulas_put_together(models):
    means, covariances, turn = embedded(models, SENTENCE)
    omega = np.einsum("tij,skj->tsik", turn, turn)
    kl = independent.pairs(means, covariances, omega, HEADS)
    beta = independent.attention(kl, independent.temperatures(2, HEADS, "shared"))
    message = independent.messages(means, omega, beta, HEADS)
    hooks = models.settings.hooks()
    passed = models.forward(SENTENCE, hooks)
    kept = {name: tensor[0, 0].numpy() for name, tensor in passed.recorded.items()}
    np.testing.assert_allclose(kept["embed.hook_mean"], means, atol=1e-10)
    np.testing.assert_allclose(kept["embed.hook_variance"], [np.diag(c) for c in covariances], atol=1e-12)
    np.testing.assert_allclose(kept["blocks.0.attn.hook_kl"], kl, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(kept["blocks.0.attn.hook_pattern"], beta, atol=1e-10)
    np.testing.assert_allclose(kept["blocks.0.hook_attn_out"], message, atol=1e-9)
    np.testing.assert_allclose(kept["blocks.0.attn.hook_result"].sum(0), message, atol=1e-9)
    np.testing.assert_allclose(kept["blocks.0.hook_resid_mid"], means + message, atol=1e-9)
    for head, own in enumerate(independent.slices_of(HEADS)):
        width = own.stop - own.start
        np.testing.assert_allclose(kept["blocks.0.attn.hook_z"][head, :, :width], message[:, own], atol=1e-9)
        assert (kept["blocks.0.attn.hook_z"][head, :, width:] == 0).all()
    logits = (means + message) @ models.weights["answer.weight"][0].numpy().T
    np.testing.assert_allclose(models.read(passed, ASKED[:1])[0, 0], logits[ASKED[0]], atol=1e-9)
    np.testing.assert_allclose(passed.costs["alignment"][0], 0.3 * independent.alignment(beta[None], kl[None]))
    spread = independent.mixed(means, covariances, omega, beta, HEADS)
    by_hand = np.mean(
        [
            sum(
                independent.kl((means + message)[t, own], spread[t, own, own], means[t, own], covariances[t, own, own])
                for own in independent.slices_of(HEADS)
            )
            for t in range(SENTENCE.shape[1])
        ]
    )
    np.testing.assert_allclose(passed.costs["prior"][0], 0.2 * by_hand)


def test_costs_are_of_real_tokens_alone():
    models = doubled(start(GAUGES["gauge, costs"]))
    alone = models.forward(TOKENS[1:2, :4]).costs
    padded = models.forward(TOKENS[1:2]).costs
    for name in ("alignment", "prior"):
        torch.testing.assert_close(alone[name], padded[name])


def test_gauge_fixed_priors_leave_heads_nothing_to_tell_tokens_apart_by():
    """Every KL is 0 but for positions, so that attention is uniform; and answers depend on frames alone."""
    settings = Gauge(irreps=SPEC, priors="gauge_fixed", positions="none", frame_deviation=1.0)
    name, kl = "blocks.0.attn.hook_pattern", "blocks.0.attn.hook_kl"
    kept = doubled(start(settings)).forward(SENTENCE, [name, kl]).recorded
    assert kept[kl].abs().max() < 1e-12
    uniform = torch.ones(6, 6).tril() / torch.arange(1, 7)[:, None]
    torch.testing.assert_close(kept[name], uniform.expand_as(kept[name]).double())


def test_gauge_fixed_priors_are_turned_by_the_token_and_frames_by_its_place_too():
    """As published: μ_i = R(token) μ₀ in the frame R(token) R(position), so that only places tell tokens apart."""
    models = doubled(start(Gauge(irreps=SPEC, priors="gauge_fixed", positions="frame", frame_deviation=1.0)))
    own = {name: weight[0].numpy() for name, weight in models.weights.items()}
    words = SENTENCE[0].numpy()
    token, place = (
        independent.frames(phi, HEADS) for phi in (own["embed.frame"][words], own["positions.frame"][: len(words)])
    )
    base = np.diag(np.exp(own["embed.base_spread"]))
    means, covariances = independent.gauge_fixed(token, own["embed.base_mean"], base)
    turn = token @ place
    kl = independent.pairs(means, covariances, np.einsum("tij,skj->tsik", turn, turn), HEADS)
    name = "blocks.0.attn.hook_kl"
    np.testing.assert_allclose(models.forward(SENTENCE, [name]).recorded[name][0, 0], kl, atol=1e-10)
    assert kl[2:].max() > 1e-4


def without_transport(**settings):
    """A model and the divergences that it and the derivation in loops have, with Ω = 1 for all pairs."""
    models = doubled(start(Gauge(irreps=SPEC, transport="identity", frame_deviation=1.0, **settings)))
    own = {name: weight[0].numpy() for name, weight in models.weights.items()}
    words, name = SENTENCE[0].numpy(), "blocks.0.attn.hook_kl"
    if settings.get("priors") == "gauge_fixed":
        base = np.diag(np.exp(own["embed.base_spread"]))
        token = independent.frames(own["embed.frame"][words], HEADS)
        means, covariances = independent.gauge_fixed(token, own["embed.base_mean"], base)
    else:
        means, covariances = (
            own["embed.mean"][words],
            np.stack([np.diag(np.exp(own["embed.spread"][w])) for w in words]),
        )
    means = means + own["positions.mean"][: len(words)]
    length, width = means.shape
    as_it_stands = np.broadcast_to(np.eye(width), (length, length, width, width))
    kl = independent.pairs(means, covariances, as_it_stands, HEADS)
    return models, models.forward(SENTENCE, [name]).recorded[name][0, 0].numpy(), kl


@pytest.mark.parametrize("settings", [{}, {"priors": "gauge_fixed"}, {"exponential": "taylor"}])
def test_without_transport_beliefs_are_compared_as_they_stand(settings):
    _, found, expected = without_transport(**settings)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    assert expected[2, 4, 2] > 0.1  # gauge-fixed priors with frames have 0 here, but for positions


def test_without_transport_there_are_frames_only_where_priors_are_turned_by_them():
    free, fixed = (without_transport(priors=priors)[0].parameters() for priors in ("free", "gauge_fixed"))
    assert not [name for name in free if "frame" in name]
    assert [name for name in fixed if "frame" in name] == ["embed.frame"]


def test_without_transport_scalars_do_not_notice():
    """A scalar does not turn, so that its heads are bit for bit the same: transport is trivial in one dimension."""
    carried, alone = (start(Gauge(irreps="3x0e", transport=kind)) for kind in ("frames", "identity"))
    assert torch.equal(carried.forward(TOKENS).resid, alone.forward(TOKENS).resid)


def test_nearness_is_of_each_head_whatever_its_degree():
    """The last head likes all distances alike: without beliefs to tell tokens apart only it is uniform."""
    settings = Gauge(irreps=SPEC, priors="gauge_fixed", positions="none", alibi=True, free_energy=FreeEnergy())
    name = "blocks.0.attn.hook_pattern"
    pattern = start(settings).forward(SENTENCE, [name]).recorded[name][0, 0]
    slopes = torch.tensor([1.0, 0.1**0.5, 0.1, 0.0])[:, None, None]
    places = torch.arange(6)
    expected = (
        (-slopes * (places[:, None] - places).abs()).masked_fill(places > places[:, None], -torch.inf).softmax(-1)
    )
    torch.testing.assert_close(pattern, expected)


def test_temperatures_are_of_heads_shared_or_learned():
    published = [Gauge(kappa=base, temperature="shared").kappa_of(5) for base in (0.25, 0.005, 0.00025)]
    assert published == pytest.approx([0.43, 0.0086, 0.00043], rel=0.01)  # the seed's, K = 19
    assert Gauge(kappa=2.0).kappa_of(5) == pytest.approx(2 * 5**0.5)
    learned = start(Gauge(irreps=SPEC, temperature="learned", kappa=2.0), seeds=[0])
    fixed = start(Gauge(irreps=SPEC, kappa=2.0), seeds=[0])
    torch.testing.assert_close(learned.forward(SENTENCE).resid, fixed.forward(SENTENCE).resid)


def test_the_published_start_forgets_what_was_configured():
    settings = Gauge(irreps=SPEC, init="published", mean_deviation=2.0)
    weights = start(settings, range(8)).weights
    assert weights["embed.mean"].std() == pytest.approx(0.02, rel=0.1)
    assert weights["answer.weight"].std() == pytest.approx(0.02, rel=0.1)
    assert weights["positions.frame"].std() == pytest.approx(0.1, rel=0.15)  # which is no table
    settings = Gauge(irreps=SPEC, mean_deviation=2.0)
    assert start(settings, range(8)).weights["embed.mean"].std() == pytest.approx(2.0, rel=0.1)


def test_published_rates_are_those_of_the_table_over_that_of_frames():
    """mu .2, sigma .01, phi .05, output .2, attention .05; what has no table of its own goes with the output."""
    rates = {
        name: Gauge(rates="published").rate_multiplier(name) * 0.05
        for name in ("embed.mean", "embed.spread", "embed.frame")
    }
    assert rates == pytest.approx({"embed.mean": 0.2, "embed.spread": 0.01, "embed.frame": 0.05})
    for name in ("answer.weight", "embed.base_mean", "blocks.0.free.step", "positions.mean"):
        assert Gauge(rates="published").rate_multiplier(name) == 4
    assert Gauge(rates="published").rate_multiplier("blocks.0.attn.kappa") == 1
    assert Gauge().rate_multiplier("answer.weight") == 1


def test_a_covariance_that_is_none_stops_with_the_step(monkeypatch):
    models = start(GAUGES["gauge, free energy"])

    def spoilt(*given):
        raise Indefinite(2)

    monkeypatch.setattr("unbraid.models.gauge.beliefs.definite_root", spoilt)
    with pytest.raises(NotFinite, match="covariance of beliefs of member 2 is not finite at step 7"):
        models.forward(TOKENS, step=7)


@pytest.mark.parametrize("name", GAUGES)
def test_a_silenced_head_reads_nothing_and_the_others_as_before(name):
    models = start(GAUGES[name])
    read = "blocks.1.attn.hook_z"
    whole = models.forward(TOKENS, [read]).recorded[read]
    less = models.forward(TOKENS, [read], ablate_heads={(1, 0)}).recorded[read]
    assert (less[:, :, 0] == 0).all()
    torch.testing.assert_close(less[:, :, 1:], whole[:, :, 1:])


def test_scalar_heads_alone_have_no_use_for_frames_and_still_learn():
    state = ModelState.of(start(Gauge(irreps="3x0e")))
    before = {name: weight.clone() for name, weight in state.models.weights.items()}
    batch = SimpleNamespace(tokens=TOKENS, asked=ASKED, answers=torch.tensor([[0, 1], [2, 3], [4, 0]]))
    train_step(state, batch, stack_configs([ModelTraining(weight_decay=0.0)] * 3), {})
    assert torch.equal(before["embed.frame"], state.models.weights["embed.frame"])
    assert not torch.equal(before["embed.mean"], state.models.weights["embed.mean"])
