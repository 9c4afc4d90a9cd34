"""Small dictionaries with nothing in them that is 0, 1 or alike, one for each rule."""

from dataclasses import replace

import pytest
import torch

import unbraid as ub

D, F, O, K = 6, 10, 4, 3  # noqa: E741
RULES = {
    "relu": ub.Relu(),
    "topk": ub.TopK(k=K),
    "batchtopk": ub.BatchTopK(k=K),
    "jumprelu": ub.JumpRelu(),
    "gated": ub.Gated(),
    "variational": ub.Variational(),
}


def autoencoder(rule, members=1, free=False):
    """Random weights everywhere, a pre-bias, and a threshold where there is one."""
    torch.manual_seed(0)
    start = ub.Stack.start(ub.Dictionary(d_sae=F, activation=RULES[rule], pre_bias=True), D, list(range(members)))
    for tensor in start.tensors().values():
        if tensor.dtype == torch.float32:
            tensor += 0.3 * torch.randn(tensor.shape)
    if "threshold" in start.memory:
        start.memory["threshold"][:] = torch.arange(members) + 0.4
    start.normalize()
    return replace(start, decoder=3 * start.decoder, decoder_norm="free") if free else start


def transcoder(rule, skip=False, wide=O):
    """From D dimensions to others, with a pre-bias and rows of free lengths."""
    torch.manual_seed(1)
    weights = {"decoder": torch.randn(1, F, wide), "decoder_bias": torch.randn(1, wide)}
    weights["skip"] = torch.randn(1, D, wide) if skip else None
    known = {"model": "gpt2", "site": "blocks.2.hook_resid_mid", "target": "blocks.2.hook_mlp_out"}
    return replace(autoencoder(rule), **weights, decoder_norm="free", metadata=known)


def inputs(amount=200):
    return 2 * torch.randn(amount, D, generator=torch.Generator().manual_seed(2))


def run(stack, x):
    codes = stack.encode(x)
    return codes.to_dense()[0], stack.decode(codes, x)[0]


def same(first, second, tolerance=1e-5):
    """Codes and reconstructions of two agree, relative to the largest."""
    for a, b in zip(first, second, strict=True):
        assert a.abs().max() > 0
        assert float((a - b).abs().max() / a.abs().max()) <= tolerance


@pytest.fixture
def known():
    return {"model": "gpt2", "site": "blocks.3.hook_resid_post", "context": 64, "run": "first"}
