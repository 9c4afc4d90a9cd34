"""Take a step the cheapest way there is: by lists where codes are sparse, by dense products where they are not.

Members of one stack may differ in that; where they do, each takes the step alone. The choice is a function of the
batch and the weights, so a run that resumes chooses alike.
"""

import torch

from unbraid.dictionaries.activations import BatchTopK
from unbraid.dictionaries.lists import Inputs, too_dense
from unbraid.dictionaries.mechanisms.mechanism import Mechanisms
from unbraid.dictionaries.training.adam import Adam
from unbraid.dictionaries.training.config import Training
from unbraid.dictionaries.training.dense_step import dense_step
from unbraid.dictionaries.training.sparse_step import sparse_step
from unbraid.dictionaries.training.step import State, StepOutput, step
from unbraid.errors import NotFinite
from unbraid.members import select_member


def fast_step(state: State, inputs: Inputs, training: Training, mechanisms: Mechanisms) -> StepOutput:
    """Advance `state` by one batch, in place; a cost that is not finite stops before that member changed."""
    if not too_dense(state.stack, inputs).any():
        outcome = sparse_step(state, inputs, training, mechanisms)
        if outcome is not None:
            return outcome
    outcomes = [_member_step(state, index, inputs, training, mechanisms) for index in range(state.stack.members)]
    state.step += 1
    return _joined(outcomes)


def _member_step(state: State, index: int, inputs: Inputs, training: Training, mechanisms: Mechanisms) -> StepOutput:
    """One member's step, on its part of the same tensors."""
    try:
        return _step_alone(state, index, inputs, training, mechanisms)
    except NotFinite as problem:
        raise NotFinite(problem.step, problem.term, index) from None


def _step_alone(state: State, index: int, inputs: Inputs, training: Training, mechanisms: Mechanisms) -> StepOutput:
    alone = _member(state, index)
    settings = select_member(training, index)
    mechanisms = {name: select_member(mechanism, index) for name, mechanism in mechanisms.items()}
    outcome = None
    if not too_dense(alone.stack, inputs).any():
        outcome = sparse_step(alone, inputs, settings, mechanisms)
    if outcome is None:
        dense = not isinstance(alone.stack.activation, BatchTopK)
        take = dense_step if dense else lambda state, inputs, *rest: step(state, inputs.x, *rest)
        outcome = take(alone, inputs, settings, mechanisms)
    for name, memory in alone.memories.items():
        for key, tensor in memory.items():
            state.memories[name][key][index : index + 1] = tensor
    return outcome


def _member(state: State, index: int) -> State:
    def select(named: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: tensor[index : index + 1] for name, tensor in named.items()}

    adam = Adam(select(state.adam.mean), select(state.adam.square), select(state.adam.age))
    memories = {name: select(memory) for name, memory in state.memories.items()}
    since_fired = None if state.since_fired is None else state.since_fired[index : index + 1]
    return State(state.stack.member(index), adam, memories, state.step, since_fired)


def _joined(outcomes: list[StepOutput]) -> StepOutput:
    terms = {name: torch.cat([outcome.terms[name] for outcome in outcomes]) for name in outcomes[0].terms}
    return StepOutput(terms, torch.cat([outcome.l0 for outcome in outcomes]))
