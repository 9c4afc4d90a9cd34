"""Every weight of a gauge transformer by name, as it starts from the member's own seed.

    embed.mean, embed.spread  m v d (log variances)     embed.frame  m v 3        answer.weight  m c d
    embed.base_mean, embed.base_spread  m d             where priors are gauge-fixed, in place of the first two
    positions.frame  m t 3      positions.mean  m t d
    blocks.0.attn.kappa  m h (logarithms, if learned)   blocks.0.free.step  m 1 (logarithm)

`start = "published"`: one line of the published code gave every table, and the output, a deviation of .02, whatever
was configured; what is neither (gauge-fixed means, frames of positions) kept its own.
"""

import numpy as np

from unbraid.models.gauge.settings import Gauge
from unbraid.models.starting import Start, uniform
from unbraid.randomness import stream

OVERRIDDEN = 0.02
PLACES = 0.1
"""How far frames and means of positions start apart."""


def start_of(settings: Gauge, vocabulary: int, length: int, classes: int, seed: int) -> Start:
    """All weights of one member."""
    width, published = settings.width, settings.start == "published"

    def drawn(place: str, deviation: float, *shape: int) -> np.ndarray:
        return (deviation * stream(seed, "weights", place).standard_normal(shape)).astype(np.float32)

    apart = OVERRIDDEN if published else settings.mean_deviation
    start: Start = {}
    if settings.priors == "gauge_fixed":
        start["embed.base_mean"] = drawn("embed.base_mean", settings.mean_deviation, width)
        start["embed.base_spread"] = np.zeros(width, np.float32)
    else:
        start["embed.mean"] = drawn("embed.mean", apart, vocabulary, width)
        start["embed.spread"] = np.zeros((vocabulary, width), np.float32)
    start["embed.frame"] = drawn("embed.frame", OVERRIDDEN if published else settings.frame_deviation, vocabulary, 3)
    if settings.positions in ("frame", "both"):
        start["positions.frame"] = drawn("positions.frame", PLACES, length, 3)
    if settings.positions in ("mean", "both"):
        start["positions.mean"] = drawn("positions.mean", OVERRIDDEN if published else PLACES, length, width)
    for layer in range(settings.layers):
        if settings.temperature == "learned":
            kappas = [settings.kappa_of(one.width) for one in settings.families for _ in range(one.heads)]
            start[f"blocks.{layer}.attn.kappa"] = np.log(kappas).astype(np.float32)
        if settings.free_energy is not None:
            start[f"blocks.{layer}.free.step"] = np.log([settings.free_energy.step]).astype(np.float32)
    if published:
        start["answer.weight"] = drawn("answer", OVERRIDDEN, classes, width)
    else:
        start["answer.weight"] = uniform(stream(seed, "weights", "answer"), width, classes, width)
    return start
