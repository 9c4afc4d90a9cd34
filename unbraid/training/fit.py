"""Train a stack on a world: step by step as an iterator, or all at once as in a notebook."""

from collections.abc import Callable, Iterator, Sequence

from unbraid.dictionaries.lists import Inputs, serve
from unbraid.dictionaries.stack import Dictionary, Stack
from unbraid.errors import Refusal
from unbraid.mechanisms import MECHANISMS
from unbraid.mechanisms.mechanism import Mechanism, Mechanisms
from unbraid.members import across
from unbraid.training.fast_step import fast_step
from unbraid.training.schedule import Training
from unbraid.training.step import Outcome, State, step
from unbraid.worlds import World

Source = Callable[[int], Inputs]
"""The inputs of a step, the same each time they are asked for."""


def inputs_of(world: World, training: Training) -> Source:
    def inputs(position: int) -> Inputs:
        batch = world.batch(position, training.batch)
        return Inputs(batch.x, batch.truth, world.directions) if batch.exact else Inputs(batch.x)

    return inputs


def train(state: State, source: Source, training: Training, mechanisms: Mechanisms) -> Iterator[Outcome]:
    """Go on from where the state is; whoever iterates decides what to log and when to save."""
    while state.step < training.steps:
        yield advance(state, source(state.step), training, mechanisms)


def advance(state: State, inputs: Inputs, training: Training, mechanisms: Mechanisms) -> Outcome:
    """One step: the fast one where it applies, else the readable one."""
    if serve(state.stack):
        return fast_step(state, inputs, training, mechanisms)
    return step(state, inputs.x, training, mechanisms)


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
