"""What the mechanisms of seed 003 cost, all on at once: time and memory beyond the plain step, late in training.

And selecting pairs on sparse codes, against FᵀF and topk in torch.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.figure import Figure, answer, medians
from benchmarks.training import Late
from unbraid.codes import Codes
from unbraid.dictionaries.coactivation import find_pairs
from unbraid.dictionaries.lists import Inputs, encode_lists
from unbraid.dictionaries.mechanisms import MECHANISMS
from unbraid.dictionaries.training.step import State
from unbraid.members import stack_configs
from unbraid.models.profile import kibibytes

OTHERS = {"sparsity", "matryoshka"}
"""Registered, but none of seed 003's."""
WIDE, DENSE_REPEATS, PERIOD = 16384, 3, 100


class Laden(Late):
    """The same late step with every mechanism of seed 003 on, as it comes."""

    def __init__(self, features: int, names: list[str] | None = None) -> None:
        super().__init__(features)
        chosen = [name for name in MECHANISMS if name not in OTHERS] if names is None else names
        self.mechanisms |= {name: stack_configs([MECHANISMS[name]()]) for name in chosen}
        memories = {name: mechanism.start(self.state.stack) for name, mechanism in self.mechanisms.items()}
        self.state = State(self.state.stack, self.state.adam, memories)

    def codes(self) -> Codes:
        lists = encode_lists(self.state.stack, Inputs(self.next_x()))
        assert lists is not None, "codes were too dense for lists"
        return lists.codes()


def mechanisms() -> Iterator[Figure]:
    laden, plain = Laden(8192), Late(8192)
    count = len(laden.mechanisms) - 1
    yield Figure(f"L0 with {count} mechanisms, f=8192", laden.fires(), 30, "lower", "")
    ours, bare = medians(lambda: stretch(laden), lambda: stretch(plain), DENSE_REPEATS)
    yield Figure(f"step with {count} mechanisms / plain, f=8192", ours / bare, 1.5, "lower", "×")
    yield from _selection(plain)
    extra = float(answer("benchmarks.mechanisms"))
    yield Figure(f"memory of {count} mechanisms beyond plain, f={WIDE}", extra / (1 << 30), 1, "lower", "GiB")


def stretch(late: Late) -> None:
    """So many steps on end that what is done every so often is in them; in turns one by one, each would pay the
    other's memory and threads."""
    for _ in range(PERIOD):
        late.step()


def _selection(late: Late) -> Iterator[Figure]:
    """The top 0.1 % of pairs of one batch, by cosine."""
    codes = Laden(late.state.stack.features, []).codes()
    count = late.state.stack.features * (late.state.stack.features - 1) // 2 // 1000
    dense = codes.to_dense()[0]

    def by_product() -> torch.Tensor:
        unit = torch.nn.functional.normalize(dense, dim=0)
        return torch.triu(unit.T @ unit, diagonal=1).flatten().topk(count).values

    def by_lists() -> torch.Tensor:
        return find_pairs(codes).top("cosine", [count]).score

    ours, theirs = medians(by_lists, by_product, DENSE_REPEATS)
    least = abs(float(by_lists().min()) - float(by_product().min()))
    yield Figure("pair selection: difference of the last pair", least, 1e-5, "lower", "")
    yield Figure("pair selection: FᵀF + topk / ours, f=8192", theirs / ours, 20, "higher", "×")


def main() -> None:
    """Print by how many bytes the peak of a laden step is above that of a plain one, each in its turn."""
    Laden(512).step()  # compiles
    print(_grows(Laden(WIDE)) - _grows(Late(WIDE)))


def _grows(late: Late) -> int:
    """By how much the process grows in a step, and in its memories."""
    kept = sum(tensor.nbytes for memory in late.state.memories.values() for tensor in memory.values())
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = kibibytes("VmRSS")
    late.step()
    return kept + 1024 * (kibibytes("VmHWM") - before)


if __name__ == "__main__":
    sys.exit(main())
