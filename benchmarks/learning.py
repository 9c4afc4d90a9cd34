"""From a cold start, imports and all, to a model that answers `one_fact`, bAbI's task 1: causal, two layers, d = 64."""

import sys
import time
from collections.abc import Iterator

from benchmarks.figure import Figure, answer

SEEDS = range(5)


def learning() -> Iterator[Figure]:
    """The worst of five seeds, each in a process of its own."""
    seconds, right = list[float](), list[float]()
    for seed in SEEDS:
        began = time.perf_counter()
        right.append(float(answer("benchmarks.learning", str(seed))))
        seconds.append(time.perf_counter() - began)
    yield Figure("one_fact: accuracy on fresh stories, worst of five", min(right), 0.99, "higher", "")
    yield Figure("one_fact: seconds from a cold start, slowest of five", max(seconds), 30, "lower", "s")


def train_and_score(seed: int) -> float:
    """The accuracy of one model on stories it has not seen."""
    from unbraid.models import Transformer
    from unbraid.models.training import ModelState, ModelTraining, train_model
    from unbraid.worlds.stories import Stories

    world = Stories()
    state = ModelState.start(Transformer(d_ff=64), world, [seed])
    for _ in train_model(state, world, ModelTraining(steps=350, batch=64, warmup_steps=50, decay_steps=150), {}):
        pass
    fresh = world.batch(0, 1024, "test")
    logits = state.models.read(state.models.forward(fresh.tokens), fresh.asked)
    return (logits.argmax(-1) == fresh.answers).float().mean().item()


if __name__ == "__main__":
    print(train_and_score(int(sys.argv[1])))
