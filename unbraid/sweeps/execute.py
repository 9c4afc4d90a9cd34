"""Carry out a run on this machine: do the work of every stack, keep everything needed to go on after any stop."""

import time
from collections.abc import Sequence
from pathlib import Path

import torch

from unbraid.capture.normalisation import Normalisation
from unbraid.config import Tree
from unbraid.dictionaries import Stack
from unbraid.dictionaries.folding import fold
from unbraid.errors import Refusal, Stopped
from unbraid.files import read_arrays, write_json
from unbraid.progress import Watcher
from unbraid.runs import Run
from unbraid.signals import StopSignals
from unbraid.sweeps.baseline_work import BaselineWork
from unbraid.sweeps.dictionary_work import DictionaryWork
from unbraid.sweeps.embedding_work import EmbeddingWork
from unbraid.sweeps.experiment import Experiment
from unbraid.sweeps.grid import Member, expand
from unbraid.sweeps.larger import compare_with_larger
from unbraid.sweeps.model_work import ModelWork
from unbraid.sweeps.plan import plan, refuse_too_large
from unbraid.sweeps.summary import summarise

SAMPLE_FITTED, SAMPLE_PICTURED = 2e6, 1.6e7
"""About what a sample costs a baseline and a picture, in the multiplications of a training step that take as long."""


def execute(run: Run, watcher: Watcher, signals: StopSignals | None = None) -> None:
    """Do whatever of this run is not done yet, from its newest whole checkpoint."""
    signals = signals or StopSignals(run.how_to_go_on)
    before, began = run.status()["seconds"], time.monotonic()

    def note(state: str, sentence: str = "") -> None:
        run.set_status(state, sentence, before + time.monotonic() - began)

    note("running")
    try:
        members = expand(run.config(), str(run.path / "config.toml"))
        refuse_too_large(members)
        stacks = plan(members)
        watcher.plan([work(group) for group in stacks])
        for index, group in enumerate(stacks):
            _work(run, index, group, watcher, signals).finish()
        watcher.stage("comparing dictionaries with larger ones")
        compare_with_larger(run, stacks)
        write_json(run.path / "scores.json", summarise(run))
    except Stopped as stop:
        note("stopped", str(stop))
        raise
    except Refusal as problem:
        note("failed", str(problem))
        raise
    except Exception as problem:
        note("failed", f"an error of ours: {problem!r:.200}")
        raise
    note("finished")


def works(config: Tree, source: str) -> list[tuple[int, float]]:
    """The work of every stack of a configuration, as a watcher plans it."""
    return [work(group) for group in plan(expand(config, source))]


def _work(
    run: Run, index: int, group: list[Member], watcher: Watcher, signals: StopSignals
) -> DictionaryWork | ModelWork | BaselineWork | EmbeddingWork:
    first = group[0].experiment
    if first.is_taught:
        return ModelWork(run, index, group, watcher, signals)
    if first.embedding is not None:
        return EmbeddingWork(run, index, group, watcher)
    if first.baseline is not None:
        return BaselineWork(run, index, group, watcher)
    return DictionaryWork(run, index, group, watcher, signals)


def work(group: Sequence[Member]) -> tuple[int, float]:
    """The steps of a stack, and what one of them costs in arbitrary units; what is not trained takes one a member."""
    first = group[0].experiment
    if first.is_taught:
        return first.teaching.steps, len(group) * model_step(first)
    if not first.is_trained:
        samples = sum(member.experiment.data.samples for member in group) / len(group)
        return len(group), samples * (SAMPLE_FITTED if first.embedding is None else SAMPLE_PICTURED)
    products = first.dictionary.features * first.world.dimensions * first.training.batch
    return first.training.steps, float(len(group) * products)


def model_step(experiment: Experiment) -> float:
    """About what a step of one model costs, in the same units: its products there and twice back."""
    model, length = experiment.model, experiment.stories.length
    token = model.layers * (4 * model.d_model**2 + 2 * model.d_model * (model.d_ff + length))
    return 3.0 * experiment.teaching.batch * length * token


def load_stack(path: str | Path, index: int = 0) -> Stack:
    """The trained stack of a run directory, as a dictionary to use.

    One trained on activations takes and gives them as the model has them: its normalisation is folded in.
    """
    run = Run.open(Path(path))
    group = plan(expand(run.config(), str(run.path)))[index]
    if not group[0].experiment.is_trained:
        where = run.stack(index) / "weights.safetensors"
        raise Refusal(f"{path} holds no trained stack; accepted: a run of dictionaries (directions are in {where})")
    arrays = {
        name: torch.from_numpy(array) for name, array in read_arrays(run.stack(index) / "weights.safetensors").items()
    }
    stack = Stack.of(arrays, group[0].experiment.dictionary.activation)
    normalised = run.stack(index) / "normalisation.safetensors"
    return fold(stack, Normalisation.from_arrays(read_arrays(normalised))) if normalised.is_file() else stack
