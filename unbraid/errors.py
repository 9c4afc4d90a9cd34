"""What we say to a user when we cannot go on: one sentence, no traceback, nothing lost.

`__reduce__` lets what a process raised be raised again in another.
"""

from pathlib import Path

REAL_DATA = "real-data"
"""The folder of models and texts that `make real-data` makes."""


def one_line(sentence: str) -> str:
    """The sentence with whatever would split or garble its line written as an escape: a newline as \\n."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in sentence)


class UserError(Exception):
    """One clear sentence: what was asked, what was found, what would be accepted."""


class Missing(UserError):
    """A model, a text or activations that are not on this machine: whoever asks for several things can go on."""

    def __init__(self, sentence: str, path: str | Path) -> None:
        fetched = "; `make real-data` makes it" if REAL_DATA in Path(path).parts else ""
        super().__init__(sentence + fetched)

    def __reduce__(self) -> tuple[type[UserError], tuple[str]]:
        return UserError, (str(self),)


class NotFinite(UserError):
    """A loss became infinite or not a number; training stopped before it touched the weights."""

    def __init__(self, step: int, term: str, member: int, more: str = "") -> None:
        super().__init__(f"the {term} of member {member} is not finite at step {step}{more}")
        self.step, self.term, self.member, self.more = step, term, member, more

    def __reduce__(self) -> tuple[type["NotFinite"], tuple[int, str, int, str]]:
        return NotFinite, (self.step, self.term, self.member, self.more)

    def with_advice(self, more: str) -> "NotFinite":
        return NotFinite(self.step, self.term, self.member, more)


class PluginFault(UserError):
    """A plugin raised, or returned what it may not; the sentence names its file and line."""


class Stopped(UserError):
    """A signal asked the run to stop; it saved itself first."""

    def __init__(self, signal: int, sentence: str) -> None:
        super().__init__(sentence)
        self.signal = signal

    def __reduce__(self) -> tuple[type["Stopped"], tuple[int, str]]:
        return Stopped, (self.signal, str(self))


class Lost(UserError):
    """A process that we had started died under its work; what it had saved is kept."""
