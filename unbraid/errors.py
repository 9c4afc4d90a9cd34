"""What we say to a user when we cannot go on: one sentence, no traceback, nothing lost."""


class Refusal(Exception):
    """One clear sentence: what was asked, what was found, what would be accepted."""


class NotFinite(Refusal):
    """A loss became infinite or not a number; training stopped before it touched the weights."""

    def __init__(self, step: int, term: str, member: int, more: str = "") -> None:
        super().__init__(f"the {term} of member {member} is not finite at step {step}{more}")
        self.step, self.term, self.member = step, term, member

    def with_advice(self, more: str) -> "NotFinite":
        return NotFinite(self.step, self.term, self.member, more)


class Stopped(Refusal):
    """A signal asked the run to stop; it saved itself first."""

    def __init__(self, signal: int, sentence: str) -> None:
        super().__init__(sentence)
        self.signal = signal
