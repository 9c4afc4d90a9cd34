"""Train a stack on a world: step by step as an iterator, or all at once as in a notebook."""

from collections.abc import Callable, Iterator, Sequence

from unbraid.axes import Float, Tensor
from unbraid.dictionaries.stack import Dictionary, Stack
from unbraid.errors import Refusal
from unbraid.mechanisms import MECHANISMS
from unbraid.mechanisms.mechanism import Mechanism, Mechanisms
from unbraid.members import across
from unbraid.training.schedule import Training
from unbraid.training.step import Outcome, State, step
from unbraid.worlds import World

Inputs = Callable[[int], Float[Tensor, "b d"]]
"""The batch of inputs for a step, the same each time it is asked for."""


def inputs_of(world: World, training: Training) -> Inputs:
    return lambda position: world.batch(position, training.batch).x


def train(state: State, inputs: Inputs, training: Training, mechanisms: Mechanisms) -> Iterator[Outcome]:
    """Go on from where the state is; whoever iterates decides what to log and when to save."""
    while state.step < training.steps:
        yield step(state, inputs(state.step), training, mechanisms)


def fit(
    world: World,
    dictionary: Dictionary | None = None,
    mechanisms: Sequence[Mechanism] = (),
    training: Training | None = None,
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
) -> Stack:
    """A stack with one trained member per seed."""
    if len(seeds) == 0:
        raise Refusal("fit was given no seeds; accepted: at least one, for example seeds=range(5)")
    named = {_name(mechanism): across([mechanism] * len(seeds)) for mechanism in mechanisms}
    if len(named) < len(mechanisms):
        raise Refusal("fit was given two mechanisms of one kind; accepted: each kind once")
    training = across([training or Training()] * len(seeds))
    state = State.start(dictionary or Dictionary(), world.dimensions, named, seeds)
    for _ in train(state, inputs_of(world, training), training, named):
        pass
    return state.stack


def _name(mechanism: Mechanism) -> str:
    registered = [name for name, kind in MECHANISMS.items() if isinstance(mechanism, kind)]
    return registered[0] if registered else type(mechanism).__name__
