"""Train a stack on a world or on rows: step by step as an iterator, or all at once as in a notebook."""

import copy
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any

from unbraid.activations.normalization import Normalization
from unbraid.activations.shards import read_manifest
from unbraid.axes import Float, Tensor
from unbraid.config import JsonDict, name_of
from unbraid.devices import Hardware, Precision
from unbraid.dictionaries.folding import fold
from unbraid.dictionaries.lists import Inputs, serve
from unbraid.dictionaries.mechanisms.mechanism import Mechanism, Mechanisms
from unbraid.dictionaries.stack import Continuation, Dictionary, InitFrom, Stack, Target
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.fast_step import fast_step
from unbraid.dictionaries.training.sequences import TextSequences
from unbraid.dictionaries.training.step import State, StepOutput, step
from unbraid.errors import UserError
from unbraid.members import stack_configs
from unbraid.progress import Progress, Task, for_notebook_or_terminal
from unbraid.schedule import check_finite
from unbraid.worlds import Activations, World
from unbraid.worlds.arrays import AUTO, Stream, open_rows
from unbraid.worlds.world import check_batch

InputSource = Callable[[int], Inputs]
"""The inputs of a step, the same each time they are asked for."""
HISTORY_LINES = 200
"""About so many steps of a training are kept in its history."""


class Ended(Exception):
    """There are no more inputs."""


def need_model(mechanisms: Mechanisms) -> bool:
    """Whether a mechanism runs the model that activations are of."""
    return any(mechanism.needs_model for mechanism in mechanisms.values())


def inputs_of(world: World, training: Training, mechanisms: Mechanisms | None = None) -> InputSource:
    """The batches of a world; where a mechanism needs the model, whole sequences of a text and the model's rest."""
    if need_model(mechanisms or {}):
        if not isinstance(world, Activations):
            raise UserError(
                f"mechanisms.end_to_end was given on the world '{type(world).__name__}', which has no model; "
                "accepted: activations that were captured from one"
            )
        return TextSequences.of(world, training.batch).inputs

    def inputs(position: int) -> Inputs:
        batch = world.batch(position, training.batch)
        check_batch(world, batch, training.batch)
        if batch.target is not None:
            return Inputs(batch.x, target=batch.target)
        return Inputs(batch.x, batch.truth, world.directions) if batch.exact else Inputs(batch.x)

    return inputs


def first_inputs(dictionary: Dictionary, source: InputSource) -> Float[Tensor, "b d"] | None:
    """The inputs of the first step, where the dictionary begins at samples of them."""
    return source(0).x if dictionary.from_data else None


def target_of(world: World, dictionary: Dictionary, source: InputSource | None) -> Target | None:
    """What the world has to be predicted, where that is not its inputs alone and at one site.

    And in which units, for a dictionary that begins at another. Without a source, nothing of its samples.
    """
    begins = isinstance(dictionary.init, InitFrom)
    if world.target_dimensions is None and not world.sites and not begins:
        return None
    first = source(0).target if source is not None and dictionary.from_data else None
    units = (world.normalization, world.target_normalization) if begins else (None, None)
    return Target(world.target_dimensions, world.sites, first, *units)


def train(state: State, source: InputSource, training: Training, mechanisms: Mechanisms) -> Iterator[StepOutput]:
    """Go on from where the state is; whoever iterates decides what to log and when to save.

    Weights that are not finite are refused before the first step: lists of what fires would pass them over.
    """
    largest = {f"weight '{name}'": p.flatten(1).abs().amax(1) for name, p in state.stack.parameters().items()}
    check_finite(largest, state.step)
    while state.step < training.steps:
        yield advance(state, source(state.step), training, mechanisms)


def advance(state: State, inputs: Inputs, training: Training, mechanisms: Mechanisms) -> StepOutput:
    """One step: the fast one where it applies, else the readable one, on the device of the state."""
    inputs = inputs.to(state.stack.device)
    plain = inputs.target is None and state.stack.decoder_norm == "unit"
    if plain and serve(state.stack) and not need_model(mechanisms):
        return fast_step(state, inputs, training, mechanisms)
    return step(state, inputs.x, training, mechanisms, inputs.target, inputs.downstream)


def fit(
    X: Any,  # noqa: N803
    dictionary: Dictionary | None = None,
    mechanisms: Sequence[Mechanism] = (),
    training: Training | None = None,
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
    normalize: str = AUTO,
    progress: bool = True,
    device: str = "cpu",
    precision: Precision = "float32",
) -> Stack:
    """Train dictionaries (sparse autoencoders) on activations or on a world, one per seed, all at once.

    The loss of a sample is its squared error plus the costs of the mechanisms. The optimiser is Adam. With the same
    arguments the result is the same on the same machine. Ctrl-C ends training after the step at work, and what there
    is comes back; `resume` goes on.

    Parameters
    ----------
    X : array, iterator, path or World
        A NumPy or torch array of any float type, (n, d) or (batch, sequence, d), or a `scipy.sparse` array; a memory
        map is read row by row. An iterator of such arrays, or a DataLoader, which keeps its own order. A folder that
        `unbraid capture` has written. Or a world, as `Superposition`, `Activations`, or your own subclass of `World`;
        where its batches have a target beside their inputs, the dictionaries are transcoders.
    dictionary : Dictionary, optional
        Size, activation rule and initial weights; `Dictionary()` if not given.
    mechanisms : sequence of Mechanism
        What is added to training, each kind at most once. A `Relu`, `JumpRelu` or `Gated` dictionary needs `Sparsity`
        to become sparse; `TopK`, `BatchTopK` and `Variational` do not.
    training : Training, optional
        Steps, batch size and learning rate; `Training()` if not given.
    seeds : sequence of int, default (0, 1, 2, 3, 4)
        One dictionary each; its seed draws its initial weights. All see the same batches, and each ends as it would
        alone.
    normalize : {"auto", "center_and_scale", "center", "scale", "none"}, default "auto"
        What training does to rows: "auto" scales them to a mean length of √d, and subtracts their mean where `diagnose`
        suggests it. It is folded into the weights afterwards, so that the dictionaries take and give X as it is, and
        nothing they learn depends on its scale. Settings, as the weight of `Sparsity`, are in normalized units. The
        batches of a world stay as they are.
    progress : bool, default True
        Whether a bar is shown in a terminal or notebook.
    device : str, default "cpu"
        "cpu", "cuda", "cuda:1", "mps", or "auto": the first of them that is here, the CPU last.
    precision : {"float32", "bfloat16", "float16"}
        Of matrix products; weights, thresholds, Adam and sums are float32.

    Returns
    -------
    Stack
        The trained dictionaries, in the order of the seeds, on that device; `history` is how training went.

    Examples
    --------
    >>> import numpy as np, unbraid as ub
    >>> X = np.random.default_rng(0).standard_normal((500, 16))
    >>> training = ub.Training(steps=50, batch=64)
    >>> stack = ub.fit(X, ub.Dictionary(d_sae=32, activation=ub.TopK(k=4)), training=training, seeds=[0])
    >>> stack(X).shape  # reconstructions: member, row, dimension
    torch.Size([1, 500, 16])
    >>> codes = stack.encode(X)
    >>> int(codes.l0().max()), codes.to_sparse(0).shape
    (4, (500, 32))

    On a world, whose planted features are known:

    >>> world = ub.Superposition(dimensions=32, n_features=48)
    >>> stack = ub.fit(world, ub.Dictionary(d_sae=48), [ub.Sparsity(weight=0.15)], training, seeds=[0, 1])
    >>> stack.members, stack.d_sae, stack.d_in
    (2, 48, 32)
    >>> scores = ub.score(stack, world, samples=1024)
    >>> scores.values["mmcs"].shape
    torch.Size([2])
    """
    if len(seeds) == 0:
        raise UserError("fit was given no seeds; accepted: at least one, for example seeds=range(5)")
    hardware, n = Hardware.of(device, precision), len(seeds)
    named = {name_of(type(mechanism)): stack_configs([mechanism] * n, hardware.device) for mechanism in mechanisms}
    if len(named) < len(mechanisms):
        raise UserError("fit was given two mechanisms of one kind; accepted: each kind once")
    training = stack_configs([training or Training()] * n, hardware.device)
    dictionary, data = dictionary or Dictionary(), Data.open(X, normalize, training, named)
    first = first_inputs(dictionary, data.source)
    target = data.target(dictionary)
    state = State.start(dictionary, data.dimensions, named, seeds, first, target, hardware=hardware)
    fitting = Fitting(state, data, training, named, {"members": [{"seed": int(seed)} for seed in seeds]})
    return fitting.go_on(training.steps, progress)


@dataclass(frozen=True)
class Data:
    """What is trained on: batches by their number, and the normalization to fold into the weights in the end."""

    source: InputSource
    dimensions: int
    world: World | None
    """None: a stream."""
    folded: tuple[Normalization, Normalization | None] | None
    """Of inputs and, of transcoders, targets; None: batches are what the dictionary takes."""

    @classmethod
    def open(cls, given: Any, normalize: str, training: Training, mechanisms: Mechanisms) -> "Data":
        world = open_rows(given, normalize)
        if world is None:
            stream = Stream(given, training.batch, normalize)
            return cls(_in_order(stream), stream.dimensions, None, (stream.normalization, None))
        folded = None if world is given else (_known(world.normalization), world.target_normalization)
        return cls(inputs_of(world, training, mechanisms), world.dimensions, world, folded)

    def target(self, dictionary: Dictionary) -> Target | None:
        if self.world is not None:
            return target_of(self.world, dictionary, self.source)
        begins = isinstance(dictionary.init, InitFrom) and self.folded is not None
        return Target(normalization=self.folded[0]) if begins and self.folded else None

    def facts(self) -> JsonDict:
        """What metadata say of it: of captured activations model, site and text."""
        if self.world is None:
            return {"world": "stream"}
        if not isinstance(self.world, Activations):
            return {"world": str(getattr(self.world, "kind", type(self.world).__name__.lower()))}
        origin = read_manifest(self.world.folder).origin
        known = {"model": origin.model, "site": origin.site, "text": origin.text, "context": origin.context}
        return {"world": "activations", "model_weights": origin.weights, **known}


def _known(normalization: Normalization | None) -> Normalization:
    assert normalization is not None  # rows always have one
    return normalization


def _in_order(stream: Stream) -> InputSource:
    """A stream as a source: the batch at hand as often as it is asked for, and then the next."""
    held: dict[int, Inputs] = {}

    def inputs(position: int) -> Inputs:
        if position not in held:
            x = stream.take()
            if x is None:
                raise Ended
            held.clear()
            held[position] = Inputs(x)
        return held[position]

    return inputs


@dataclass
class Fitting(Continuation):
    """A training at the step it has reached, with all it needs to go on."""

    state: State
    data: Data
    training: Training
    mechanisms: Mechanisms
    known: JsonDict = field(default_factory=dict)
    lines: list[JsonDict] = field(default_factory=list)

    def resume(self, steps: int | None, progress: bool) -> Stack:
        until = self.training.steps if steps is None else self.state.step + steps
        if until <= self.state.step:
            raise UserError(
                f"resume was asked for no more steps after {self.state.step}; accepted: the number of steps to add, "
                f"for example resume({self.training.steps})"
            )
        training = self.training.model_copy(update={"steps": max(until, self.training.steps)})
        state, lines = copy.deepcopy(self.state), list(self.lines)
        return replace(self, state=state, training=training, lines=lines).go_on(until, progress)

    def go_on(self, until: int, shown: bool) -> Stack:
        """Train up to this step, or until Ctrl-C or the end of the inputs; the stack as it then is."""
        every = max(1, until // HISTORY_LINES)
        watcher, task = for_notebook_or_terminal(not shown), Task("training", "dictionaries", until, 1.0)
        with watcher, _patience() as stop:
            watcher.plan([task])
            watcher.begin(0, self.state.step)
            try:
                for output in train(self.state, self._source, self.training, self.mechanisms):
                    if self.state.step % every == 0 or self.state.step == until:
                        self._log(output, watcher)
                    watcher.advance(0, self.state.step)
                    if self.state.step >= until or stop.is_set():
                        break
            except Ended:
                pass
        if self.state.step < until:
            watcher.say(f"training ended after {self.state.step} of {until} steps; `stack.resume()` goes on")
        return self._stack()

    def _source(self, position: int) -> Inputs:
        try:
            return self.data.source(position)
        except KeyboardInterrupt:  # between two steps; nothing is half done
            raise Ended from None

    def _log(self, output: StepOutput, watcher: Progress) -> None:
        terms = {name: cost.tolist() for name, cost in output.terms.items()}
        line = {"step": self.state.step, "terms": terms, "l0": output.l0.tolist()}
        self.lines.append(line)
        watcher.log(0, line)

    def _stack(self) -> Stack:
        stack = self.state.in_use(self.mechanisms)
        if self.data.folded is not None:
            stack = fold(stack, *self.data.folded)
        seen = {"seen": self.state.step * self.training.batch, "history": list(self.lines)}
        return replace(stack, metadata={**self.known, **self.data.facts(), **seen}, training=self)


@contextmanager
def _patience() -> Iterator[threading.Event]:
    """In here the first Ctrl-C is only remembered, so that a step is never half done; the second one interrupts."""
    asked = threading.Event()
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield asked  # signals are somebody else's
        return

    def remember(_number: int, _frame: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    before = signal.signal(signal.SIGINT, remember)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)
