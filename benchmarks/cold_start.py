"""From a cold start to MMCS .95: a new process, imports and all, ours against SAELens on the same batches and loss.

Ratio 2, l1 .178, the published independent world. The published loss is mean square error + l1 · Σ|c| / f; times the
number of dimensions it is SAELens' own, with l1 · d / f in place of l1.
"""

import sys
import time
from collections.abc import Callable, Iterator

from benchmarks.figure import Figure, answer
from unbraid.axes import Tensor

FEATURES, L1, RATE, BATCH, REACHED, LOOK_EVERY, MOST = 1024, 0.1778279, 1e-3, 1024, 0.95, 100, 40_000


def cold_start() -> Iterator[Figure]:
    seconds: dict[str, float] = {}
    for who in ("unbraid", "sae_lens"):
        began = time.perf_counter()
        steps, mmcs = (float(word) for word in answer("benchmarks.cold_start", who).split())
        seconds[who] = time.perf_counter() - began
        yield Figure(f"{who}: MMCS after {steps:.0f} steps", mmcs, REACHED, "higher", "")
    ratio = seconds["sae_lens"] / seconds["unbraid"]
    yield Figure("cold start to MMCS .95: SAELens / ours", ratio, 5, "higher", "×")


def main(who: str) -> None:
    from unbraid import Superposition
    from unbraid.metrics import recovery

    world = Superposition(firing={"kind": "independent", "form": "published"})  # pyright: ignore[reportArgumentType]
    step, directions = {"unbraid": _ours, "sae_lens": _theirs}[who](world)
    steps, mmcs = 0, 0.0
    while mmcs < REACHED and steps < MOST:
        for _ in range(LOOK_EVERY):
            step(steps)
            steps += 1
        mmcs = float(recovery.mmcs(recovery.cosines(world.directions, directions()))[0])
    print(steps, mmcs)


def _ours(world) -> tuple[Callable[[int], object], Callable[[], Tensor]]:
    from unbraid import Dictionary, Sparsity, Training
    from unbraid.members import across
    from unbraid.training.fit import advance, inputs_of
    from unbraid.training.step import State

    mechanisms = {"sparsity": across([Sparsity(weight=L1, form="published")])}
    training = across([Training(steps=MOST, batch=BATCH, learning_rate=RATE, fidelity="mean_square")])
    state = State.start(Dictionary(features=FEATURES), world.dimensions, mechanisms, [0])
    inputs = inputs_of(world, training)
    return lambda position: advance(state, inputs(position), training, mechanisms), lambda: state.stack.directions


def _theirs(world) -> tuple[Callable[[int], object], Callable[[], Tensor]]:
    from torch.nn.functional import normalize

    from benchmarks.peers import sae_lens

    sae, step = sae_lens(FEATURES, world.dimensions, BATCH, L1 * world.dimensions / FEATURES, RATE)
    return lambda position: step(world.batch(position, BATCH).x), lambda: normalize(sae.W_dec.detach(), dim=1)[None]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
