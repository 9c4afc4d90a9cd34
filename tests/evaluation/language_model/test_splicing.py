"""What is spliced in is what the model sees: the identity loses nothing, zero loses what zero-ablation does."""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch

from unbraid.activations.normalization import Normalization
from unbraid.activations.sites import find_site, read_sites
from unbraid.activations.text import cut_windows, read_documents
from unbraid.dictionaries import Dictionary, Stack
from unbraid.dictionaries.activations import BatchTopK, JumpRelu
from unbraid.dictionaries.folding import fold
from unbraid.dictionaries.mechanisms import Sparsity
from unbraid.dictionaries.stack import Target
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.fit import fit
from unbraid.errors import UserError
from unbraid.evaluation.language_model.sae import SAE, read_rows, token_batches
from unbraid.evaluation.language_model.splicing import CLEAN, MEAN, ZERO, score_reconstructions, splice
from unbraid.worlds.superposition import Superposition


@pytest.fixture(scope="module")
def chosen(model, text):
    return list(cut_windows(model, read_documents(text), 16, None))


@pytest.fixture(scope="module")
def scores(model, middle, chosen, perfect, mute):
    return score_reconstructions(model, middle, chosen, {"perfect": perfect, "mute": mute})


def test_the_identity_recovers_exactly_all_and_zero_exactly_nothing(scores):
    assert scores["perfect"]["loss_recovered"][0] == 1
    assert scores["perfect"]["kl_recovered"][0] == 1
    assert scores["perfect"]["kl"][0] == 0
    assert scores["mute"]["loss_recovered"][0] == 0
    assert scores["mute"]["kl_recovered"][0] == 0
    assert scores["mute"]["ce"][0] == scores["mute"]["ce_zero"][0]
    assert scores["perfect"]["ce"][0] == scores["perfect"]["ce_clean"][0]


def test_reconstruction_scores_of_both(scores, model, middle, chosen):
    x = torch.cat([read_rows(model, middle, batch) for batch in token_batches(model, chosen)])
    assert len(x) == 128
    assert scores["perfect"]["explained_variance"][0] == 1
    assert scores["perfect"]["cosine"][0] == pytest.approx(1, abs=1e-6)
    assert scores["perfect"]["l0"][0] == 32
    assert scores["mute"]["explained_variance"][0] == pytest.approx(
        1 - float(x.square().sum() / (x - x.mean(0)).square().sum()), rel=1e-4
    )
    assert (scores["mute"]["l0"][0], scores["mute"]["dead"][0], scores["mute"]["cosine"][0]) == (0, 8, 0)


def plain_losses(model, middle, chosen, change):
    """One window at a time, with hooks and loops of our own."""
    total, amount, apart = 0.0, 0, 0.0
    for window in chosen:
        ids = torch.from_numpy(window.tokens)[None]

        def hook(_module, _given, output, window=window):
            out = output[0] if isinstance(output, tuple) else output
            new = out.clone()
            for place in np.flatnonzero(window.kept):
                new[0, place] = change(out[0, place])
            return (new, *output[1:]) if isinstance(output, tuple) else new

        with torch.no_grad():
            before = torch.softmax(model.model(input_ids=ids).logits[0].double(), -1)
            handle = middle.module.register_forward_hook(hook)
            after = torch.softmax(model.model(input_ids=ids).logits[0].double(), -1)
            handle.remove()
        for place in range(len(window.tokens) - 1):
            if window.kept[place] and window.kept[place + 1]:
                total -= float(after[place, window.tokens[place + 1]].log())
                apart += float((before[place] * (before[place] / after[place]).log()).sum())
                amount += 1
    return total / amount, apart / amount


@pytest.mark.parametrize("change", [lambda x: 0.5 * x, torch.zeros_like, lambda x: x.flip(-1)])
def test_losses_are_those_of_a_loop_over_windows(model, middle, chosen, change):
    found = splice(model, middle, chosen, {"it": change})["it"]
    ce, kl = plain_losses(model, middle, chosen, change)
    assert found.cross_entropy.sum() / found.tokens.sum() == pytest.approx(ce, rel=1e-4)
    assert found.divergence.sum() / found.tokens.sum() == pytest.approx(kl, rel=1e-3)


def test_special_and_padding_tokens_are_left_as_they_are(model, middle, chosen):
    """A change that would tell them apart sees text alone: 128 rows, in as many as there are words."""
    seen = []

    def note(x):
        seen.append(len(x))
        return x

    found = splice(model, middle, chosen, {"it": note})
    assert sum(seen) == sum(window.n_kept for window in chosen) == 128
    assert found["it"].tokens.sum() == sum(max(window.n_kept - 1, 0) for window in chosen)
    np.testing.assert_array_equal(found["it"].cross_entropy, found[CLEAN].cross_entropy)


def test_a_text_without_a_prediction_is_refused(model, middle, perfect):
    alone = list(cut_windows(model, ["aklm", "bklm"], 16, None))
    with pytest.raises(UserError, match="no token of the text is followed by another"):
        score_reconstructions(model, middle, alone, {"perfect": perfect})


def test_the_mean_is_an_ablation_too(scores, model, middle, chosen):
    x = torch.cat([read_rows(model, middle, batch) for batch in token_batches(model, chosen)])
    ce, _ = plain_losses(model, middle, chosen, lambda _: x.mean(0))
    assert scores[MEAN]["ce"][0] == pytest.approx(ce, rel=1e-4)
    assert scores["perfect"]["ce_mean"][0] == scores[MEAN]["ce"][0]
    assert scores[MEAN]["loss_recovered"][0] < 1
    assert ZERO not in scores


def test_a_dictionary_trained_on_normalized_inputs_is_scored_in_the_units_of_the_model(model, middle, chosen, perfect):
    folded = fold(perfect.stack, Normalization(torch.linspace(-1, 1, 32), 2.5))
    found = score_reconstructions(model, middle, chosen, {"it": SAE(folded)})["it"]
    assert found["loss_recovered"][0] == pytest.approx(1, abs=1e-4)
    assert found["explained_variance"][0] == pytest.approx(1, abs=1e-6)


def test_chance_is_centred_as_the_dictionary_is(perfect):
    folded = SAE(fold(perfect.stack, Normalization(torch.linspace(-1, 1, 32), 2.5)))
    drawn = folded.at_random(3)
    assert torch.equal(drawn.stack.pre_bias, folded.stack.pre_bias)
    assert drawn.stack.features == 64
    assert not torch.equal(drawn.stack.decoder, folded.stack.decoder)


@pytest.mark.parametrize("rule", [BatchTopK(k=4), JumpRelu()], ids=lambda rule: rule.kind)
def test_chance_fires_about_as_often_as_a_rule_that_learns(rule):
    """Random directions at thresholds of their own start would fire a half of 256 features, or nearly."""
    world = Superposition(dimensions=32, n_features=64, active=3.0)
    mechanisms = [] if rule.kind == "batchtopk" else [Sparsity(weight=0.05)]
    settings = Dictionary(d_sae=256, activation=rule, pre_bias=True)
    sae = SAE(fit(world, settings, mechanisms, Training(steps=300, batch=128, learning_rate=3e-3), seeds=[0]))
    x = world.batch(10**6, 1000).x
    own, drawn = (float(one.encode(x).counts().sum()) / 1000 for one in (sae, sae.at_random(3)))
    assert own < 16
    assert own / 3 < drawn < 3 * own


def test_a_transcoder_that_is_the_mlp_leaves_the_model_as_it_was_and_the_mean_does_not(model, chosen):
    """The change is made from what the MLP reads, and put where it writes."""
    target = find_site(model, "blocks.1.hook_mlp_out")
    reads = replace(target, name="mlp in", side="input")
    mlp = deepcopy(target.module)  # without the hooks that a splice puts on the model's own
    found = splice(model, reads, chosen, {"same": mlp, "zero": torch.zeros_like}, target=target)
    np.testing.assert_allclose(found["same"].cross_entropy, found[CLEAN].cross_entropy, rtol=1e-4, atol=1e-5)
    by_hand = splice(model, target, chosen, {"zero": torch.zeros_like})["zero"]
    np.testing.assert_allclose(found["zero"].cross_entropy, by_hand.cross_entropy, rtol=1e-5)
    assert np.abs(by_hand.cross_entropy - found[CLEAN].cross_entropy).max() > 1e-3


def test_transcoders_are_scored_against_their_target(model, chosen):
    target = find_site(model, "blocks.1.hook_mlp_out")
    reads = replace(target, name="mlp in", side="input")
    width = read_sites(model, [target], torch.tensor([[1, 2]]))[0].shape[-1]
    stack = Stack.start(Dictionary(d_sae=8, skip=True), width, [0], target=Target(width))
    sae = SAE(stack)
    scores = score_reconstructions(model, reads, chosen, {"it": sae, "random": sae.at_random(1)}, target=target)
    assert {"loss_recovered", "explained_variance", "l0"} <= set(scores["it"])
    y = torch.cat([read_rows(model, target, batch) for batch in token_batches(model, chosen)])
    x = torch.cat([read_rows(model, reads, batch) for batch in token_batches(model, chosen)])
    error = (sae.reconstruct(x) - y).double().square().mean()
    assert scores["it"]["reconstruction_error"][0] == pytest.approx(float(error), rel=1e-5)
