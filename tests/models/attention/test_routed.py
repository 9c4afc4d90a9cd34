import torch

from tests.models.shapes import SHAPES, TOKENS, start
from unbraid.models import Routed, Softmax, Transformer

GATE = "blocks.0.attn.hook_gate"


def gates(attention):
    settings = Transformer(d_model=8, heads=4, d_ff=12, attention=attention)
    return start(settings).forward(TOKENS, [GATE]).recorded[GATE]


def test_each_token_takes_k_heads_and_their_gates_sum_to_k():
    taken = gates(Routed(k=3))
    assert ((taken > 0).sum(-1) == 3).all()
    torch.testing.assert_close(taken.sum(-1), torch.full_like(taken[..., 0], 3.0))
    assert (taken > 0).any(1).any(1).sum() > 3 * 3  # in three members: not the same three heads for all tokens


def test_shared_heads_are_always_on():
    taken = gates(Routed(k=2, shared=1))
    assert (taken[..., :1] > 0).all()
    assert ((taken[..., 1:] > 0).sum(-1) == 2).all()
    torch.testing.assert_close(taken[..., 0] + taken[..., 1:].sum(-1) / 2, torch.full((3, 3, 6), 2.0))


def test_a_head_that_is_not_taken_writes_nothing():
    models, result = start(SHAPES["routed"]), "blocks.0.attn.hook_result"
    kept = models.forward(TOKENS, [GATE, result]).recorded
    written = kept[result].abs().amax(-1).transpose(2, 3)
    assert torch.equal(written > 0, kept[GATE] > 0)


def test_with_even_gates_over_all_heads_it_is_softmax_attention():
    settings = SHAPES["routed"].model_copy(update={"attention": Routed(k=4)})
    routed, plain = start(settings), start(settings.model_copy(update={"attention": Softmax()}))
    for layer in range(2):
        routed.weights[f"blocks.{layer}.attn.router"].zero_()
    common = {name: p for name, p in routed.weights.items() if name in plain.weights}
    same = plain.with_parameters(common)
    torch.testing.assert_close(routed.forward(TOKENS).resid, same.forward(TOKENS).resid, rtol=0, atol=1e-6)


def test_every_layer_has_a_balance_cost_of_its_own_weight():
    for weight in (0.0, 0.01, 0.5):
        settings = SHAPES["routed"].model_copy(update={"attention": Routed(k=2, balance=weight)})
        costs = start(settings).forward(TOKENS).costs
        assert set(costs) == {"blocks.0.attn.balance", "blocks.1.attn.balance"}
        assert all((cost >= weight * 0.5).all() and (cost <= 2 * weight).all() for cost in costs.values())
