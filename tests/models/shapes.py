"""Small transformers of every kind: the batteries run over them. List a new attention or feed-forward here."""

import torch

from unbraid.models import Hopfield, Routed, RoutedExperts, Transformer, start_models

SHAPES = {
    "causal": Transformer(d_model=8, heads=2, d_ff=12, positions="learned"),
    "near": Transformer(d_model=8, heads=4, d_ff=12, positions="nearness"),
    "near, encoder": Transformer(d_model=8, heads=2, d_ff=12, positions="nearness", causal=False),
    "encoder": Transformer(d_model=8, heads=4, d_ff=12, causal=False, positions="sinusoidal", readout="mean"),
    "rotary": Transformer(d_model=8, heads=2, d_ff=12, positions="rotary"),
    "dropping": Transformer(d_model=8, heads=2, d_ff=12, causal=False, dropout=0.3),
    "routed": Transformer(d_model=8, heads=4, d_ff=12, attention=Routed(k=2)),
    "routed, shared": Transformer(d_model=8, heads=4, d_ff=12, causal=False, attention=Routed(k=1, shared=2)),
    "hopfield": Transformer(d_model=8, heads=2, d_ff=12, attention=Hopfield(iterations=3)),
    "hopfield, encoder": Transformer(
        d_model=8, heads=2, d_ff=12, causal=False, attention=Hopfield(iterations=2), positions="learned"
    ),
    "hopfield, memories": Transformer(d_model=8, heads=2, d_ff=12, attention=Hopfield(iterations=2, memories=3)),
    "hopfield, dropping": Transformer(
        d_model=8, heads=2, d_ff=12, causal=False, dropout=0.2, attention=Hopfield(memories=2), positions="rotary"
    ),
    "routed experts, one": Transformer(d_model=8, heads=2, d_ff=12, feed_forward=RoutedExperts(experts=3, k=1)),
    "routed experts": Transformer(d_model=8, heads=2, d_ff=12, feed_forward=RoutedExperts(experts=3, k=2)),
}
TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9], [2, 6, 5, 3, 0, 0], [7, 0, 0, 0, 0, 0]])
ASKED = torch.tensor([[2, 5], [1, 3], [0, 0]])


def start(settings, seeds=(0, 1, 2), length=8):
    return start_models(settings, vocabulary=10, length=length, classes=5, seeds=seeds)


def doubled(models):
    return models.with_parameters({name: p.double() for name, p in models.parameters().items()})
