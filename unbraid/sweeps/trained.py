"""The dictionaries that a run has trained, or the models it has taught, read back to be used."""

from pathlib import Path

import torch

from unbraid.capture.normalisation import Normalisation
from unbraid.dictionaries import Stack
from unbraid.dictionaries.folding import fold
from unbraid.errors import Refusal
from unbraid.files import read_arrays
from unbraid.models import Models, models_of
from unbraid.runs import Run
from unbraid.sweeps.grid import expand
from unbraid.sweeps.plan import plan


def load_models(path: str | Path, index: int = 0) -> Models:
    """The taught models of a run directory; `index` is the number of the stack they are in."""
    run = Run.open(Path(path))
    stacks = plan(expand(run.config(), str(run.path)))
    if not 0 <= index < len(stacks) or not stacks[index][0].experiment.is_taught:
        raise Refusal(f"{path} holds no models in stack {index}; accepted: a run on stories or text, stacks from 0")
    first = stacks[index][0].experiment
    weights = {name: torch.from_numpy(array) for name, array in read_arrays(_weights(run, index)).items()}
    seeds = [member.experiment.seed for member in stacks[index]]
    return models_of(first.model, first.asking.length, seeds, weights)


def load_stack(path: str | Path, index: int = 0) -> Stack:
    """The trained stack of a run directory, as a dictionary to use.

    One trained on activations takes and gives them as the model has them: its normalisation is folded in.
    """
    run = Run.open(Path(path))
    group = plan(expand(run.config(), str(run.path)))[index]
    if not group[0].experiment.is_trained:
        where = _weights(run, index)
        raise Refusal(f"{path} holds no trained stack; accepted: a run of dictionaries (directions are in {where})")
    arrays = {name: torch.from_numpy(array) for name, array in read_arrays(_weights(run, index)).items()}
    stack = Stack.of(arrays, group[0].experiment.dictionary.activation)
    normalised = run.stack(index) / "normalisation.safetensors"
    return fold(stack, Normalisation.from_arrays(read_arrays(normalised))) if normalised.is_file() else stack


def _weights(run: Run, index: int) -> Path:
    return run.stack(index) / "weights.safetensors"
