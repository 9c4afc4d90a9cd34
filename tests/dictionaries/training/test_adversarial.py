"""What nobody expects: the fast step and the fast `encode` do with it what the readable ones do."""

import pytest
import torch

from unbraid.dictionaries import AuxK, BatchTopK, Dictionary, Gated, JumpRelu, Relu, TopK, screen
from unbraid.dictionaries.encoding import encode
from unbraid.dictionaries.lists import Inputs
from unbraid.dictionaries.mechanisms import Sparsity
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.fit import advance, train
from unbraid.dictionaries.training.step import State, step
from unbraid.errors import NotFinite
from unbraid.members import stack_configs

D, F, B = 16, 256, 64
AUXK = AuxK(dead_after=2 * B)
RULES = {
    "relu": Relu(),
    "jumprelu": JumpRelu(threshold=0.3, bandwidth=0.1),
    "gated": Gated(),
    **{f"topk {k}": TopK(k=k, auxk=AUXK) for k in (1, 4, F)},
    **{f"batchtopk {k}": BatchTopK(k=k, auxk=AUXK) for k in (1, 4, F)},
}
MECHANISMS = {"sparsity": stack_configs([Sparsity(weight=0.1)] * 2)}
TRAINING = stack_configs([Training(steps=3, batch=B)] * 2)
INPUTS = {
    "zeros": lambda x: torch.zeros_like(x),
    "half zeros": lambda x: x * (torch.arange(len(x)) % 2)[:, None],
    "equal samples": lambda x: x[:1].expand_as(x).contiguous(),
    "whole numbers": lambda x: x.round(),
    "huge": lambda x: x * 1e6,
    "tiny": lambda x: x * 1e-25,
    "one sample": lambda x: x[:1],
    "not contiguous": lambda x: x.T.contiguous().T,
}
WEIGHTS = {
    "equal rows": lambda stack: [w[:, F // 2 :].copy_(w[:, : F // 2]) for w in (stack.encoder, stack.decoder)],
    "empty rows": lambda stack: stack.encoder[:, ::2].zero_(),
    "nothing fires": lambda stack: stack.encoder_bias.fill_(-1e6),
    "few fire": lambda stack: stack.encoder_bias.fill_(-2.0),
}


def drawn(position):
    return torch.randn(B, D, generator=torch.Generator().manual_seed(position))


def start(rule, change=None):
    state = State.start(Dictionary(d_sae=F, activation=RULES[rule], pre_bias=True), D, MECHANISMS, [0, 1])
    if change is not None:
        change(state.stack)
    return state


@pytest.mark.parametrize("pays", [False, True], ids=["exact product", "screen"])
@pytest.mark.parametrize("case", [*INPUTS, *WEIGHTS])
@pytest.mark.parametrize("rule", RULES)
def test_the_fast_step_is_the_readable_one(rule, case, pays, monkeypatch):
    """Costs and sparsity of two steps: of features that fire exactly alike either may be taken, at the same cost."""
    monkeypatch.setattr(screen, "pays", lambda: pays)
    fast, slow = (start(rule, WEIGHTS.get(case)) for _ in range(2))
    for position in range(2):
        x = INPUTS.get(case, lambda x: x)(drawn(position))
        ours, theirs = advance(fast, Inputs(x), TRAINING, MECHANISMS), step(slow, x, TRAINING, MECHANISMS)
        torch.testing.assert_close(ours.l0, theirs.l0, rtol=0.01, atol=0.02)
        for name, cost in theirs.terms.items():
            torch.testing.assert_close(ours.terms[name], cost, rtol=1e-3, atol=1e-6 * float(1 + cost.abs().max()))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["encoder", "encoder_bias", "decoder", "pre_bias"])
def test_weights_that_are_not_finite_are_refused_before_the_first_step(name, bad):
    """Lists would pass them over where they do not fire."""
    state = start("topk 4", lambda stack: stack.encoder_bias.fill_(-2.0))
    state.stack.parameters()[name][1, 3] = bad
    with pytest.raises(NotFinite, match=f"weight '{name}' of member 1 is not finite at step 0"):
        next(train(state, lambda position: Inputs(drawn(position)), TRAINING, MECHANISMS))


@pytest.mark.parametrize("pays", [False, True], ids=["exact product", "screen"])
@pytest.mark.parametrize("where", ["x", "encoder"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("rule", ["relu", "topk 4"])
def test_what_is_not_a_number_shows_in_use(rule, bad, where, pays, monkeypatch):
    monkeypatch.setattr(screen, "pays", lambda: pays)
    stack, x = start(rule, lambda stack: stack.encoder_bias.fill_(-0.5)).stack, drawn(0)
    if where == "x":
        x[3, 2] = bad
    else:
        stack.encoder[1, 3, 2] = bad
    assert torch.equal(encode(stack, x).to_dense().isfinite(), stack.encode(x).to_dense().isfinite())
    assert not encode(stack, x).to_dense().isfinite().all()


@pytest.mark.parametrize("rule", ["relu", "topk 4"])
def test_no_sample_has_no_codes(rule):
    stack = start(rule).stack
    assert encode(stack, torch.zeros(0, D)).to_dense().shape == stack.encode(torch.zeros(0, D)).to_dense().shape
