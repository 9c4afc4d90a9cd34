"""What every kind of attention promises, in small transformers: causal ones and encoders."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import pad

from unbraid.battery.promise import Example, Promise
from unbraid.config import check, to_toml
from unbraid.models import Models, Transformer, start_models
from unbraid.models.config import ModelConfig

TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9], [2, 6, 5, 3, 0, 0], [7, 0, 0, 0, 0, 0]])
ASKED = torch.tensor([[2, 5], [1, 3], [0, 0]])
PATTERNS = ("blocks.0.attn.hook_pattern", "blocks.1.attn.hook_pattern")


@dataclass(frozen=True)
class ModelCase:
    """A small model: a transformer with the attention, or whatever is asked for."""

    settings: ModelConfig
    recorded: bool = False
    """Whether patterns are recorded, where that may take another way."""


def attention_cases(name: str, example: Example) -> dict[str, ModelCase]:
    """Causal ones and encoders, of four heads."""
    attention: Any = {"kind": name, **example.settings}
    causal = Transformer(d_model=8, heads=4, d_ff=12, attention=attention)
    encoder = Transformer(d_model=8, heads=4, d_ff=12, causal=False, positions="learned", attention=attention)
    return {"causal": ModelCase(causal), "an encoder": ModelCase(encoder), "recorded": ModelCase(causal, True)}


def start(settings: ModelConfig, seeds: Sequence[int] = (0, 1, 2), length: int = 8) -> Models:
    return start_models(settings, vocabulary=10, length=length, classes=5, seeds=seeds)


def doubled(models: Models) -> Models:
    return models.with_parameters({name: p.double() for name, p in models.parameters().items()})


def survives_toml(case: ModelCase) -> None:
    settings = case.settings
    assert check(type(settings), tomllib.loads(to_toml(settings.to_dict())), "model") == settings


def company_does_not_matter(case: ModelCase) -> None:
    models = doubled(start(case.settings))
    passed = models.forward(TOKENS, step=3)
    logits = models.read(passed, ASKED)
    for index, seed in enumerate(models.seeds):
        alone = doubled(start(case.settings, [seed]))
        own = alone.forward(TOKENS, step=3)
        torch.testing.assert_close(passed.resid[index : index + 1], own.resid, rtol=0, atol=1e-10)
        torch.testing.assert_close(logits[index : index + 1], alone.read(own, ASKED), rtol=0, atol=1e-10)
        torch.testing.assert_close(models.member(index).forward(TOKENS, step=3).resid, own.resid, rtol=0, atol=0)
    assert (passed.resid[0] - passed.resid[1]).abs().max() > 0.1, "members with other seeds are alike"


def padding_changes_nothing(case: ModelCase) -> None:
    """Longer padding, in company of longer stories, gives the same answers; a story of padding alone is finite."""
    models = start(case.settings)
    alone = models.forward(TOKENS[1:2, :4])
    among = models.forward(pad(TOKENS, (0, 2)))
    torch.testing.assert_close(among.resid[:, 1:2, :4], alone.resid, rtol=0, atol=1e-5)
    torch.testing.assert_close(models.read(among, ASKED)[:, 1:2], models.read(alone, ASKED[1:2]), rtol=0, atol=1e-5)
    finite = models.forward(torch.zeros(2, 5, dtype=torch.long)).resid.isfinite().all()
    assert finite, "a story of padding alone is not finite"


def causal_when_asked(case: ModelCase) -> None:
    """A causal model never looks ahead, and an encoder does."""
    other, recorded = TOKENS.clone(), PATTERNS if case.recorded else ()
    other[0, 4:] = torch.tensor([8, 8])
    models = start(case.settings)
    passed, changed = (models.forward(tokens, recorded).resid for tokens in (TOKENS, other))
    change = float((passed - changed)[:, 0, :4].abs().max())
    if case.settings.to_dict().get("causal", True):
        assert change == 0, f"later tokens change earlier ones by {change:.1g}"
    else:
        assert change > 1e-3, "an encoder does not see later tokens"


def every_weight_learns(case: ModelCase) -> None:
    """Every weight has a finite gradient of the answers in every member."""
    leaves = start(case.settings).requires_grad_copy()
    loss = leaves.read(leaves.forward(TOKENS, step=0), ASKED).square().sum()
    named = leaves.parameters()
    for name, gradient in zip(named, torch.autograd.grad(loss, list(named.values())), strict=True):
        assert gradient.isfinite().all(), f"the gradient of {name} is not finite"
        assert (gradient.flatten(1).abs().amax(1) > 0).all(), f"{name} has no gradient"


def recording_changes_nothing(case: ModelCase) -> None:
    """The pattern that is recorded sums to one over keys, and the answers are the same whether it is or not."""
    models = doubled(start(case.settings))
    plain, recorded = models.forward(TOKENS), models.forward(TOKENS, PATTERNS)
    torch.testing.assert_close(plain.resid, recorded.resid, rtol=0, atol=1e-8)
    for name in PATTERNS:
        pattern = recorded.recorded[name]
        assert (pattern >= 0).all(), f"{name} is negative somewhere"
        seen = pattern.sum(-1).transpose(2, 3)[:, TOKENS != 0]
        assert (seen <= 1 + 1e-6).all(), f"{name} sums to more than one over its keys"


PROMISES: tuple[Promise[ModelCase], ...] = (
    Promise("settings survive TOML", survives_toml),
    Promise("company does not matter", company_does_not_matter),
    Promise("padding changes nothing", padding_changes_nothing),
    Promise("causal when asked", causal_when_asked),
    Promise("every weight learns", every_weight_learns),
    Promise("recording changes nothing", recording_changes_nothing),
)
