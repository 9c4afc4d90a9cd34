"""The gradient through attention weights: against a model whose queries and keys are held still, and made sharper."""

from dataclasses import replace

import pytest
import torch

from unbraid.evaluation.attention_gradient import FACTORS, gradient_scores, gradient_share, sharpened
from unbraid.evaluation.heads import held_out_batches
from unbraid.metrics.attention import norm_share
from unbraid.models.attention.attention import Softmax
from unbraid.models.attention.hopfield import Hopfield
from unbraid.models.training import answer_loss


@pytest.fixture
def batch(world):
    return held_out_batches(world, 12)[0]


def gradient(models, batch):
    leaves = models.requires_grad_copy()
    output = leaves.forward(batch.tokens, ["blocks.0.hook_resid_pre"])
    loss = answer_loss(leaves.read(output, batch.asked), batch.answers).sum()
    return torch.autograd.grad(loss, output.recorded["blocks.0.hook_resid_pre"])[0]


def test_it_is_what_is_missing_when_queries_and_keys_are_held_still(make, batch, monkeypatch):
    """In a model of one layer, the rest of the gradient comes through values and the residual stream."""
    models = make(members=2, layers=1)
    whole, (share, norm, _) = gradient(models, batch), gradient_share(models, batch)
    mix = Softmax.mix

    def still(self, inputs):
        return mix(self, replace(inputs, q=inputs.q.detach(), k=inputs.k.detach()))

    monkeypatch.setattr(Softmax, "mix", still)
    through = whole - gradient(models, batch)
    torch.testing.assert_close(share, norm_share(through, whole), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(norm, through.flatten(2).norm(dim=-1).sum(1), rtol=1e-4, atol=1e-6)
    assert (share > 0).all()


def test_the_share_of_norms_by_hand():
    part = torch.tensor([[[[3.0, 4.0]], [[0.0, 0.0]]]])
    whole = torch.tensor([[[[0.0, 10.0]], [[6.0, 8.0]]]])
    assert norm_share(part, whole).item() == pytest.approx(5 / 20)


def test_sharper_queries_make_attention_sharper_and_the_gradient_through_it_vanish(make, batch):
    """Large queries: at 16 times them each attends to a single key, where softmax has no slope."""
    models = sharpened(make(positions="learned"), 100.0)
    scores, tables = gradient_scores(models, batch)
    sharpness, share = tables["gradient_sharpness"][0], tables["gradient_share"][0]
    assert len(share) == len(FACTORS)
    assert (sharpness.diff() > 0).all()
    assert sharpness[-1] > 0.97
    assert share[-1] < 0.3 * share.max()
    assert scores["attention_gradient"].item() == share[2]
    assert scores["attention_gradient_left"].item() == pytest.approx((share[5] / share[2]).item())


def test_only_queries_of_the_last_layer_are_multiplied_and_other_kinds_have_no_score(make, batch):
    models = make()
    sharper = sharpened(models, 3.0)
    changed = {name for name, weight in models.weights.items() if not torch.equal(weight, sharper.weights[name])}
    assert changed == {"blocks.1.attn.qkv"}
    q = "blocks.1.attn.hook_q"
    torch.testing.assert_close(
        sharper.forward(batch.tokens, [q]).recorded[q], 3 * models.forward(batch.tokens, [q]).recorded[q]
    )
    assert gradient_scores(make(attention=Hopfield()), batch) == ({}, {})
