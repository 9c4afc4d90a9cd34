"""Small transformers of every kind: the batteries run over them. List a new attention or feed-forward here."""

from unbraid.battery.attention import ASKED, TOKENS, doubled, start
from unbraid.models import FreeEnergy, Gauge, Hopfield, Routed, RoutedExperts, Transformer

__all__ = ["ALL", "ASKED", "GAUGES", "SHAPES", "TOKENS", "doubled", "start"]

SHAPES = {
    "causal": Transformer(d_model=8, heads=2, d_ff=12, positions="learned"),
    "near": Transformer(d_model=8, heads=4, d_ff=12, positions="alibi"),
    "near, encoder": Transformer(d_model=8, heads=2, d_ff=12, positions="alibi", causal=False),
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
GAUGES = {
    "gauge": Gauge(irreps="2x0e + 1x1e + 1x2e", layers=2),
    "gauge, encoder": Gauge(irreps="1x0e + 2x1e", layers=2, causal=False, temperature="learned", positions="frame"),
    "gauge, free energy": Gauge(
        irreps="1x0e + 2x1e", layers=2, frame_deviation=0.5, free_energy=FreeEnergy(iterations=2, frame_step=0.1)
    ),
    "gauge, costs": Gauge(irreps="2x1e", layers=2, alignment=0.5, prior=0.5, alibi=True, residual=False),
    "gauge, fixed priors": Gauge(
        irreps="1x1e + 1x2e", layers=2, priors="gauge_fixed", self_attention=False, free_energy=FreeEnergy()
    ),
    "gauge, no transport": Gauge(irreps="1x0e + 1x1e + 1x2e", layers=2, frame_deviation=1.0, transport="identity"),
    "gauge, published": Gauge(
        irreps=[["ℓ0", 2, 1], ["ℓ1", 1, 3]],  # pyright: ignore[reportArgumentType]
        layers=2,
        covariance="diagonal",
        exponential="taylor",
        temperature="shared",
        init="published",
        self_attention=False,
        rates="published",
    ),
}
ALL = {**SHAPES, **GAUGES}
"""Every kind of model."""
