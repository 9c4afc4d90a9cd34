"""What a world must give for transformers to be taught on it: words, and questions asked somewhere among them.

Stories ask here and there; a text asks at every token for the next one.
"""

from typing import Protocol, runtime_checkable

from unbraid.axes import Int, Tensor


@runtime_checkable
class Asked(Protocol):
    """Sequences, where in them questions are asked, and the right answers."""

    @property
    def tokens(self) -> Int[Tensor, "b t"]: ...
    @property
    def asked(self) -> Int[Tensor, "b q"]: ...
    @property
    def answers(self) -> Int[Tensor, "b q"]: ...


@runtime_checkable
class Asking(Protocol):
    """A world of stories or text: the same position always gives the same batch."""

    @property
    def vocabulary(self) -> tuple[str, ...]: ...
    @property
    def answers(self) -> tuple[str, ...]: ...
    @property
    def length(self) -> int: ...
    def batch(self, position: int, size: int) -> Asked: ...
