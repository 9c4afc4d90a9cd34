"""From a cold start to MMCS .95: a new process, imports and all, ours against SAELens on the same batches and loss.

Ratio 2, l1 .178, the published independent world. The published loss is mean square error + l1 · Σ|c| / f; times the
number of dimensions it is SAELens' own, with l1 · d / f in place of l1. SAELens starts from short directions and lets
them grow, we hold them at length one: no one learning rate suits both, so each is given several and its best counts.
"""

import sys
import time
from collections.abc import Callable, Iterator

from benchmarks.figure import Figure, answer
from unbraid.axes import Tensor

FEATURES, L1, BATCH, REACHED, LOOK_EVERY, MOST = 1024, 0.1778279, 4096, 0.95, 100, 2_000
RATES = (3e-3, 5e-3, 1e-2)


def cold_start() -> Iterator[Figure]:
    best: dict[str, float] = {}
    for who in ("unbraid", "sae_lens"):
        best[who] = float("inf")
        for rate in RATES:
            began = time.perf_counter()
            steps, mmcs = (float(word) for word in answer("benchmarks.cold_start", who, str(rate)).split())
            seconds = time.perf_counter() - began
            yield Figure(f"{who}, rate {rate}: MMCS after {steps:.0f} steps, {seconds:.1f} s", mmcs, 0, "higher", "")
            if mmcs >= REACHED:
                best[who] = min(best[who], seconds)
    ratio = best["sae_lens"] / best["unbraid"]
    yield Figure("cold start to MMCS .95, each at its best rate: SAELens / ours", ratio, 5, "higher", "×")


def main(who: str, rate: float) -> None:
    from unbraid import Superposition
    from unbraid.metrics import recovery

    world = Superposition(firing={"kind": "independent", "form": "published"})  # pyright: ignore[reportArgumentType]
    step, directions = {"unbraid": _ours, "sae_lens": _theirs}[who](world, rate)
    steps, mmcs = 0, 0.0
    while mmcs < REACHED and steps < MOST:
        for _ in range(LOOK_EVERY):
            step(steps)
            steps += 1
        mmcs = float(recovery.mmcs(recovery.cosines(world.directions, directions()))[0])
    print(steps, mmcs)


def _ours(world, rate: float) -> tuple[Callable[[int], object], Callable[[], Tensor]]:
    from unbraid import Dictionary, Sparsity, Training
    from unbraid.dictionaries.training.fit import advance, inputs_of
    from unbraid.dictionaries.training.step import State
    from unbraid.members import stack_configs

    mechanisms = {"sparsity": stack_configs([Sparsity(weight=L1, form="published")])}
    training = stack_configs([Training(steps=MOST, batch=BATCH, learning_rate=rate, reconstruction_loss="mean_square")])
    state = State.start(Dictionary(d_sae=FEATURES), world.dimensions, mechanisms, [0])
    inputs = inputs_of(world, training)
    return lambda position: advance(state, inputs(position), training, mechanisms), lambda: state.stack.directions


def _theirs(world, rate: float) -> tuple[Callable[[int], object], Callable[[], Tensor]]:
    import torch
    from torch.nn.functional import normalize

    from benchmarks.peers import sae_lens

    torch.manual_seed(0)
    sae, step = sae_lens(FEATURES, world.dimensions, BATCH, L1 * world.dimensions / FEATURES, rate)
    return lambda position: step(world.batch(position, BATCH).x), lambda: normalize(sae.W_dec.detach(), dim=1)[None]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2])))
