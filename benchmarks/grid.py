"""The `standard` grid of one world, 48 autoencoders, against SAELens training them one by one, from timed steps.

Ours gets cheaper as codes become sparse, so its first steps are really taken and timed as they go; the rest is counted
at the price of the last ones, which is too much. SAELens' price does not change.
"""

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.figure import Figure
from unbraid.config import read_toml
from unbraid.config.sweep import at_scale
from unbraid.dictionaries.training.fit import inputs_of, train
from unbraid.dictionaries.training.step import State
from unbraid.members import stack_configs
from unbraid.pipeline.expand import expand
from unbraid.pipeline.experiment import MemberStack
from unbraid.pipeline.kinds.dictionaries import DictionaryExperiment
from unbraid.studies.shipped import find_config

TAKEN, LAST, PEER_STEPS = 300, 20, 5
"""Steps of ours that are taken (fewer for wide dictionaries), how many of them price the rest; steps of SAELens."""


@dataclass(frozen=True)
class Price:
    """Seconds of a whole training, of one stack."""

    ours: float
    theirs: float


def grid() -> Iterator[Figure]:
    data = at_scale(read_toml(find_config("superposition/grid")), "standard", "superposition/grid")
    data["sweep"]["world.firing"] = data["sweep"]["world.firing"][:1]
    prices = [_price(stack) for stack in expand(data, "superposition/grid").stacks]
    ours, theirs = sum(price.ours for price in prices), sum(price.theirs for price in prices)
    yield Figure("standard grid of 48: ours, extrapolated", ours / 3600, float("inf"), "lower", "h")
    yield Figure("standard grid of 48: SAELens / ours", theirs / ours, 10, "higher", "×")


def _price(stack: MemberStack) -> Price:
    from benchmarks.peers import sae_lens

    members = [m.experiment for m in stack.members if isinstance(m.experiment, DictionaryExperiment)]
    first = members[0]
    features, steps = first.dictionary.d_sae, first.training.steps
    training = stack_configs([member.training for member in members])
    mechanisms = {"sparsity": stack_configs([member.enabled()["sparsity"] for member in members])}
    state = State.start(first.dictionary, first.world.dimensions, mechanisms, [member.seed for member in members])
    seconds: list[float] = []
    began = time.perf_counter()
    for _ in train(state, inputs_of(first.world, training), training, mechanisms):
        now = time.perf_counter()
        seconds.append(now - began)
        began = now
        if len(seconds) >= min(TAKEN, 200 * 4096 // features):
            break
    ours = sum(seconds) + statistics.median(seconds[-LAST:]) * (steps - len(seconds))
    _, step = sae_lens(features, first.world.dimensions, first.training.batch, 0.1, 1e-3)
    taken: list[float] = []
    for position in range(PEER_STEPS):
        x = first.world.batch(position, first.training.batch).x
        began = time.perf_counter()
        step(x)
        taken.append(time.perf_counter() - began)
    theirs = statistics.median(taken) * steps * len(members)
    print(
        f"  f={features}: SAELens / ours {theirs / ours:.2f}; first steps {seconds[1]:.3f} s, last {seconds[-1]:.3f} s",
        flush=True,
    )
    return Price(ours, theirs)
