"""Train a stack on a world: step by step as an iterator, or all at once as in a notebook."""

from collections.abc import Callable, Iterator, Sequence

from unbraid.axes import Float, Tensor
from unbraid.devices import Hardware, Precision
from unbraid.dictionaries.lists import Inputs, serve
from unbraid.dictionaries.mechanisms import MECHANISMS
from unbraid.dictionaries.mechanisms.mechanism import Mechanism, Mechanisms
from unbraid.dictionaries.stack import Dictionary, InitFrom, Stack, Target
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.fast_step import fast_step
from unbraid.dictionaries.training.step import State, StepOutput, step
from unbraid.errors import UserError
from unbraid.members import stack_configs
from unbraid.worlds import World

InputSource = Callable[[int], Inputs]
"""The inputs of a step, the same each time they are asked for."""


def inputs_of(world: World, training: Training) -> InputSource:
    def inputs(position: int) -> Inputs:
        batch = world.batch(position, training.batch)
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
    """Go on from where the state is; whoever iterates decides what to log and when to save."""
    while state.step < training.steps:
        yield advance(state, source(state.step), training, mechanisms)


def advance(state: State, inputs: Inputs, training: Training, mechanisms: Mechanisms) -> StepOutput:
    """One step: the fast one where it applies, else the readable one, on the device of the state."""
    inputs = inputs.to(state.stack.device)
    plain = inputs.target is None and state.stack.decoder_norm == "unit"
    if plain and serve(state.stack):
        return fast_step(state, inputs, training, mechanisms)
    return step(state, inputs.x, training, mechanisms, inputs.target)


def fit(
    world: World,
    dictionary: Dictionary | None = None,
    mechanisms: Sequence[Mechanism] = (),
    training: Training | None = None,
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
    device: str = "cpu",
    precision: Precision = "float32",
) -> Stack:
    """Train dictionaries (sparse autoencoders) on a world, one per seed, all at once.

    The loss of a sample is its squared error plus the costs of the mechanisms. The optimiser is Adam. With the same
    arguments the result is the same on the same machine.

    Parameters
    ----------
    world : World
        Where batches come from: `Superposition`, `Activations`, or your own subclass of `World`. Where its batches
        have a target beside their inputs, the dictionaries are transcoders.
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
    device : str, default "cpu"
        "cpu", "cuda", "cuda:1", "mps", or "auto": the first of them that is here, the CPU last.
    precision : {"float32", "bfloat16", "float16"}
        Of matrix products; weights, thresholds, Adam and sums are float32.

    Returns
    -------
    Stack
        The trained dictionaries, in the order of the seeds, on that device.

    Examples
    --------
    >>> import unbraid as ub
    >>> world = ub.Superposition(dimensions=32, n_features=48)
    >>> training = ub.Training(steps=50, batch=64)
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
    named = {_name(mechanism): stack_configs([mechanism] * n, hardware.device) for mechanism in mechanisms}
    if len(named) < len(mechanisms):
        raise UserError("fit was given two mechanisms of one kind; accepted: each kind once")
    training = stack_configs([training or Training()] * n, hardware.device)
    source, dictionary = inputs_of(world, training), dictionary or Dictionary()
    target = target_of(world, dictionary, source)
    first = first_inputs(dictionary, source)
    state = State.start(dictionary, world.dimensions, named, seeds, first, target, hardware)
    for _ in train(state, source, training, named):
        pass
    return state.in_use(named)


def _name(mechanism: Mechanism) -> str:
    registered = [name for name, kind in MECHANISMS.items() if isinstance(mechanism, kind)]
    return registered[0] if registered else type(mechanism).__name__
