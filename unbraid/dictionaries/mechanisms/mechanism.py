"""The five places of a training step where an idea may act; each is typed and returns a value.

| seam      | gets                                | returns                                  | gradient |
|-----------|-------------------------------------|------------------------------------------|----------|
| `signal`  | own memory, stack                   | named values for others                  | no       |
| `encode`  | codes, own memory, stack, signals   | codes: lowered or silenced, never raised | yes      |
| `penalty` | forward, own memory, stack, signals | a cost per member                        | yes      |
| `observe` | forward, own memory, stack, signals | own new memory                           | no       |
| `edit`    | forward, own memory, stack, signals | which features to start anew, and where  | no       |

Outside of a step, `use` gives a trained stack what it keeps of a mechanism, and `logged` says what the log shows.

A mechanism never sees the optimiser, the trainer, the log or another mechanism. Signals come from memory as it was when
the step began, so writers and readers have no order.
"""

from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import ClassVar, Literal

import torch

from unbraid.axes import Bool, Float, Int, Tensor
from unbraid.codes import Codes
from unbraid.config import Config, suggest
from unbraid.config.plugins import returned
from unbraid.dictionaries.activations import Fired
from unbraid.dictionaries.coactivation import Pairs, find_pairs
from unbraid.dictionaries.downstream import Downstream
from unbraid.dictionaries.stack import Stack
from unbraid.errors import UserError
from unbraid.schedule import Moment

Memory = dict[str, Tensor]
"""What a mechanism remembers between steps: tensors that begin with the axes `m f`, or `m` alone."""


@dataclass(frozen=True)
class Signals:
    """Values one mechanism may write and others read; each default is neutral."""

    l1: Tensor | float = 1.0
    """A factor on the sparsity weight, per member."""
    l0_factor: Tensor | float = 1.0
    """Another, by which `sparsity` steers towards its `target_l0`."""
    power: Tensor | None = None
    """The power of codes in the sparsity cost, per member; None: 1."""
    power_scale: Tensor = field(default_factory=lambda: torch.ones(1))
    """What the cost with that power is multiplied by, per member."""
    tau: Tensor | None = None
    """The τ of pair_orthogonality, per member; None: its own."""
    pairs: Tensor | None = None
    """How many pairs to select, per member; None, or 0 for a member: the reader's own share."""
    importance: Tensor | None = None
    """How useful each feature has been, `m f`; None: all alike."""
    neighbours: Int[Tensor, "m f _"] | None = None
    """The features that keep each feature company, -1 where a place is empty; without places, as if nobody wrote."""
    nearest: Int[Tensor, "m f _"] | None = None
    """The features nearest to each feature, -1 where a place is empty."""
    declared: Mapping[str, Tensor | float | None] = field(default_factory=dict)
    """Those that mechanisms declare of their own, by name: read as `signals["name"]`."""

    def __getitem__(self, name: str) -> Tensor | float | None:
        """A signal by its name, one that a mechanism declares too."""
        return self.declared[name] if name in self.declared else getattr(self, name)

    def with_written(self, written: Mapping[str, Tensor]) -> "Signals":
        """These, with what somebody has written."""
        own = {name: value for name, value in written.items() if name in BUILT_IN}
        return replace(self, **own, declared={**self.declared, **{k: v for k, v in written.items() if k not in own}})


BUILT_IN = frozenset(signal.name for signal in fields(Signals)) - {"declared"}
"""The names of signals that are always there."""


@dataclass(frozen=True)
class Forward:
    """One pass over a batch, as a mechanism may look at it."""

    x: Float[Tensor, "b d"]
    codes: Codes
    reconstruction: Float[Tensor, "m b o"]
    fired: Fired | None = None
    would_fire: Codes | None = None
    """What would have fired, where `encode` has lowered it."""
    moment: Moment = field(default_factory=Moment)
    """Where in its training this pass is; `observe` and `edit` alone are told."""
    known: dict[str, Pairs] = field(default_factory=dict, repr=False, compare=False)
    """What was worked out about this pass; mechanisms that ask the same share it."""
    other_target: Float[Tensor, "b o"] | None = None
    """What reconstructions are held against, where that is not x."""
    downstream: Downstream | None = None
    """The model that goes on from here, where a mechanism needs it."""

    @property
    def target(self) -> Float[Tensor, "b o"]:
        """What reconstructions are held against: x itself, in an autoencoder."""
        return self.x if self.other_target is None else self.other_target

    def together(self) -> Pairs:
        """Which features fire together; worked out once a pass."""
        if "together" not in self.known:
            self.known["together"] = find_pairs(self.codes)
        return self.known["together"]

    def counted(self) -> Float[Tensor, "m b"]:
        """What a sparsity cost counts in each sample: what the activation says, Σ|code| unless it says otherwise."""
        return self.codes.l1() if self.fired is None or self.fired.counted is None else self.fired.counted

    def detached(self) -> "Forward":
        """The values, without their history; and where the activation relaxes codes to train, what really fired."""
        seen = self.fired.seen if self.fired and self.fired.seen else self.codes
        before = self.would_fire and replace(self.would_fire, values=self.would_fire.values.detach())
        codes = replace(seen, values=seen.values.detach())
        known = self.known if seen is self.codes else {}
        made = self.reconstruction.detach()
        return Forward(self.x, codes, made, would_fire=before, known=known, other_target=self.other_target)


@dataclass(frozen=True)
class Reset:
    """Features to start anew, with the encoder and decoder rows they start from."""

    features: Bool[Tensor, "m f"]
    encoder: Float[Tensor, "m f d"]
    decoder: Float[Tensor, "m f o"]


class Mechanism(Config, ABC):
    """The base class of mechanisms: ideas for training dictionaries.

    A subclass declares its settings as fields and overrides the methods where it acts. By default each does nothing.

        signal(memory, stack)                      → values for other mechanisms, by name
        encode(codes, memory, stack, signals)      → codes, lowered or set to 0
        penalty(forward, memory, stack, signals)   → a cost (m,) added to the loss, or None
        observe(forward, memory, stack, signals)   → its memory after the step
        edit(forward, memory, stack, signals)      → the features to restart, or None
        use(stack, signals)                        → the trained stack, with what it keeps of the mechanism
        logged(memory)                             → numbers (m,) for the log, by name

    `forward` holds the inputs `x` (b, d), the `target` (x itself, but in a transcoder), the `codes` and the
    `reconstruction` (m, b, d). `memory` is a dict of tensors
    that begin with the axes (m, f) or (m,); `start` makes it.

    Attributes
    ----------
    reads, writes : frozenset of str
        The signals it reads and those it writes.
    declares : dict
        Signals that it brings, each with its neutral value: a number, or None. Readers take them as `signals["name"]`.
    sharding : {"own", "gathered"} or None
        What it sees where features are shared out among processes: None, and it is refused there.

    Examples
    --------
    >>> import torch, unbraid as ub
    >>> class ShortEncoder(ub.Mechanism):
    ...     weight: float = 0.1
    ...     def penalty(self, forward, memory, stack, signals):
    ...         return self.weight * stack.encoder.square().sum((1, 2))
    >>> world = ub.Superposition(dimensions=8, n_features=12, active=2.0)
    >>> training = ub.Training(steps=2, batch=16)
    >>> ub.fit(world, ub.Dictionary(d_sae=12), [ShortEncoder()], training, seeds=[0]).members
    1
    """

    reads: ClassVar[frozenset[str]] = frozenset()
    writes: ClassVar[frozenset[str]] = frozenset()
    declares: ClassVar[Mapping[str, float | None]] = {}
    needs_model: ClassVar[bool] = False
    """Whether its penalty runs the model that activations are of (`forward.downstream`)."""

    @property
    def reconstruction_weight(self) -> Tensor | float:
        """What the reconstruction loss is multiplied by; other than 1 only where the model is needed."""
        return 1.0

    sharding: ClassVar[Literal["own", "gathered"] | None] = None
    """What `penalty` is given where features are shared out among processes (docs/distributed.md). own: the codes of
    one's own features; the cost is a sum over features, and each process pays its part. gathered: the codes of all;
    nothing but values of codes has a gradient. `observe` is given the gathered ones. None: it cannot be split."""
    whole_because: ClassVar[str] = "does not say how it is split among processes"
    """Why it cannot be, as the rest of a sentence that begins with its name."""

    def needs_whole(self) -> str | None:
        """Why a dictionary that has it cannot be shared out among processes; None where it can."""
        return self.whole_because if self.sharding is None else None

    @property
    def ordered(self) -> bool:
        """Whether the order of features means something to it; if not, relabelling them commutes with training."""
        return False

    def check_stack(self, name: str, stack: Stack) -> None:
        """UserError where it cannot act on such a stack."""

    def start(self, stack: Stack) -> Memory:
        """The memory before the first step; a feature that starts anew gets its part of this back."""
        return {}

    def signal(self, memory: Memory, stack: Stack) -> dict[str, Tensor]:
        """The signals it writes for others, from its memory."""
        return {}

    def encode(self, codes: Codes, memory: Memory, stack: Stack, signals: Signals) -> Codes:
        """From what would fire to what fires, in the same slots."""
        return codes

    def penalty(self, forward: Forward, memory: Memory, stack: Stack, signals: Signals) -> Float[Tensor, "m"] | None:
        """A cost per member, added to the loss; None for none."""
        return None

    def observe(self, forward: Forward, memory: Memory, stack: Stack, signals: Signals) -> Memory:
        """Its memory after this step."""
        return memory

    def edit(self, forward: Forward, memory: Memory, stack: Stack, signals: Signals) -> Reset | None:
        """The features to start anew, and where; None for none."""
        return None

    def use(self, stack: Stack, signals: Signals) -> Stack:
        """The trained stack as it is used: with what it must keep of this mechanism, if anything."""
        return stack

    def logged(self, memory: Memory) -> dict[str, Tensor]:
        """Numbers of its memory that the training log shows, each (m,), by name."""
        return {}


Mechanisms = Mapping[str, Mechanism]


def check_signals(mechanisms: Mechanisms) -> None:
    """Every signal is known, has at most one writer, and somebody reads it."""
    known = [*(signal.name for signal in fields(Signals) if signal.name in BUILT_IN), *declared(mechanisms)]
    read = {signal for mechanism in mechanisms.values() for signal in mechanism.reads}
    writers: dict[str, str] = {}
    for name, mechanism in mechanisms.items():
        for signal in sorted((mechanism.reads | mechanism.writes) - set(known)):
            verb = "writes" if signal in mechanism.writes else "reads"
            raise UserError(f"{name} {verb} '{signal}', which is not a signal; {suggest(signal, known)}")
        for signal in sorted(mechanism.writes):
            if signal in writers:
                raise UserError(f"{name} and {writers[signal]} both write '{signal}'; accepted: one writer a signal")
            if signal not in read:
                raise UserError(f"{name} writes '{signal}', which nothing enabled reads; enable a mechanism that does")
            writers[signal] = name


def declared(mechanisms: Mechanisms) -> dict[str, float | None]:
    """The signals that mechanisms bring, each with its neutral value."""
    found: dict[str, float | None] = {}
    for name, mechanism in mechanisms.items():
        for signal, neutral in mechanism.declares.items():
            if signal in BUILT_IN:
                raise UserError(f"{name} declares '{signal}', which is a signal already; accepted: another name")
            if found.setdefault(signal, neutral) != neutral:
                raise UserError(
                    f"{name} declares '{signal}' as {neutral}, and another as {found[signal]}; accepted: one value"
                )
    return found


def gather_signals(mechanisms: Mechanisms, memories: Mapping[str, Memory], stack: Stack) -> Signals:
    """What the writers say, from memory as it is now; neutral where nobody writes."""
    signals = Signals(declared=declared(mechanisms))
    for name, mechanism in mechanisms.items():
        written = mechanism.signal(memories[name], stack)
        if written.keys() != mechanism.writes:
            what = f"the signals {sorted(written)} as '{name}'; accepted: exactly {sorted(mechanism.writes)}"
            raise returned(mechanism.signal, what)
        signals = signals.with_written(written) if written else signals
    return signals


# What a mechanism returns is checked where it is asked, so that a plugin's mistake is told as its own.


def start_memory(name: str, mechanism: Mechanism, stack: Stack) -> Memory:
    """Its memory before the first step."""
    memory = mechanism.start(stack)
    for key, tensor in memory.items():
        if tensor.shape[:1] != (stack.members,):
            found = f"'{key}' of shape {tuple(tensor.shape)} as '{name}'"
            raise returned(mechanism.start, f"{found}; accepted: axes that begin with {stack.members} members")
    return memory


def encode_with(name: str, mechanism: Mechanism, codes: Codes, memory: Memory, stack: Stack, signals: Signals) -> Codes:
    """What it lets fire, in the slots that it was given."""
    after = mechanism.encode(codes, memory, stack, signals)
    if after.features is not codes.features or after.values.shape != codes.values.shape:
        what = f"codes in other slots as '{name}'; accepted: values of the same shape, for the same features"
        raise returned(mechanism.encode, what)
    return after


def penalty_of(
    name: str, mechanism: Mechanism, forward: Forward, memory: Memory, stack: Stack, signals: Signals
) -> Float[Tensor, "m"] | None:
    """Its cost, one number a member."""
    cost = mechanism.penalty(forward, memory, stack, signals)
    if cost is not None and (not isinstance(cost, Tensor) or cost.shape != (stack.members,)):
        found = f"a tensor of shape {tuple(cost.shape)}" if isinstance(cost, Tensor) else type(cost).__name__
        accepted = f"a cost per member, ({stack.members},), or None"
        raise returned(mechanism.penalty, f"{found} as '{name}'; accepted: {accepted}")
    return cost


def observe_with(
    name: str, mechanism: Mechanism, forward: Forward, memory: Memory, stack: Stack, signals: Signals
) -> Memory:
    """Its memory after a step: the same tensors by name and shape."""
    after = mechanism.observe(forward, memory, stack, signals)
    before, now = ({key: tuple(tensor.shape) for key, tensor in each.items()} for each in (memory, after))
    if before != now:
        raise returned(mechanism.observe, f"the memory {now} as '{name}'; accepted: what `start` has, {before}")
    return after


def edit_with(
    name: str, mechanism: Mechanism, forward: Forward, memory: Memory, stack: Stack, signals: Signals
) -> Reset | None:
    """The features that it starts anew, with rows of the stack's shapes."""
    reset = mechanism.edit(forward, memory, stack, signals)
    if reset is not None:
        shapes = [tuple(tensor.shape) for tensor in (reset.features, reset.encoder, reset.decoder)]
        wanted = [(stack.members, stack.features), tuple(stack.encoder.shape), tuple(stack.decoder.shape)]
        if shapes != wanted:
            raise returned(mechanism.edit, f"a Reset of shapes {shapes} as '{name}'; accepted: {wanted}")
    return reset
