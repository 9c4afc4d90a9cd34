"""Carry out a run on this machine: do the work of every stack, keep everything needed to go on after any stop.

Of a line the models come first; what was done before for any run beside this one is taken from there (`line/stages`).
"""

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch

from unbraid.config import Tree
from unbraid.errors import Refusal, Stopped
from unbraid.files import write_json
from unbraid.judging.settings import Judging
from unbraid.line import stages
from unbraid.progress import OneOfMany, Watcher
from unbraid.runs import Run
from unbraid.signals import StopSignals
from unbraid.sweeps.baseline_work import BaselineWork
from unbraid.sweeps.crew import work_together
from unbraid.sweeps.dictionary_work import DictionaryWork
from unbraid.sweeps.embedding_work import EmbeddingWork
from unbraid.sweeps.experiment import Experiment
from unbraid.sweeps.grid import Member, expand
from unbraid.sweeps.larger import compare_with_larger
from unbraid.sweeps.line import home_of, models_of, teach_and_record, world_of, write_model_scores
from unbraid.sweeps.model_work import ModelWork
from unbraid.sweeps.plan import plan, refuse_too_large
from unbraid.sweeps.summary import summarise
from unbraid.sweeps.text_work import TextWork
from unbraid.sweeps.trained_work import first_of_settings
from unbraid.worlds.text import Text

TOKEN_SPLICED = 50
"""How many tokens could be encoded while one runs through a model, about."""
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
        watcher.plan(_works(stacks))
        if (judging := stacks[0][0].experiment.judging) is not None:
            _refuse_unjudgeable(judging, stacks)
        if is_line(stacks):
            models = len(models_of(stacks))
            teach_and_record(run, stacks, _works(stacks)[:models], watcher, signals)
            _finish_all(run, stacks, OneOfMany(watcher, models), signals)
        else:
            _finish_all(run, stacks, watcher, signals)
            watcher.stage("comparing dictionaries with larger ones")
            compare_with_larger(run, stacks)
        write_json(run.path / "scores.json", summarise(run))
        if judging is not None:
            _judge(run, judging, OneOfMany(watcher, len(stacks)))
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


def _finish_all(run: Run, stacks: Sequence[list[Member]], watcher: Watcher, signals: StopSignals) -> None:
    """Stack by stack; several models side by side, one to a thread, and what learns from them."""
    hands = torch.get_num_threads()
    todo = [index for index, group in enumerate(stacks) if not _is_kept(run, index, group)]
    if (stacks[0][0].experiment.is_taught or is_line(stacks)) and len(todo) > 1 and hands > 1:
        work_together(partial(finish_stack, run.path), [work(group) for group in stacks], hands, watcher, signals)
        return
    for index, group in enumerate(stacks):
        _finish(run, index, group, watcher, signals)


def finish_stack(path: Path, index: int, watcher: Watcher, signals: StopSignals) -> None:
    """Do whatever one stack of a run still needs."""
    run = Run(path)
    _finish(run, index, plan(expand(run.config(), str(path / "config.toml")))[index], watcher, signals)


def _finish(run: Run, index: int, group: list[Member], watcher: Watcher, signals: StopSignals) -> None:
    """One stack; of a line, unless it was kept, and then it is."""
    folder = run.stack(index)
    if not group[0].experiment.is_line:
        _work(run, index, group, watcher, signals).finish()
        return
    write_model_scores(run, group, folder)
    kept = _kept(run, group)
    if stages.take(kept, folder):
        write_json(folder / "members.json", [member.card() for member in group])
        watcher.advance(index, work(group)[0])
        return
    _work(run, index, group, watcher, signals).finish()
    stages.keep(folder, kept)


def is_line(stacks: Sequence[Sequence[Member]]) -> bool:
    return stacks[0][0].experiment.is_line


def _kept(run: Run, group: Sequence[Member]) -> Path:
    """Where what such a stack leaves is kept."""
    shown = first_of_settings(group)
    return stages.stack_folder(home_of(run), [member.experiment.tree() for member in group], shown)


def _is_kept(run: Run, index: int, group: Sequence[Member]) -> bool:
    """Whether there is nothing to do for a stack but to say so."""
    done = (run.stack(index) / stages.DONE).is_file()
    return done or (group[0].experiment.is_line and _kept(run, group).is_dir())


def works(config: Tree, source: str) -> list[tuple[int, float]]:
    """The work of every stack of a configuration and of its judging, as a watcher plans it."""
    return _works(plan(expand(config, source)))


def _works(stacks: Sequence[Sequence[Member]]) -> list[tuple[int, float]]:
    judging = stacks[0][0].experiment.judging
    judged = [] if judging is None else [(judging.steps, judging_cost(stacks, judging) / judging.steps)]
    models = models_of(stacks).values() if is_line(stacks) else ()
    taught = [(one.teaching.steps, model_step(one)) for one in models]
    return [*taught, *(work(group) for group in stacks), *judged]


def _refuse_unjudgeable(judging: Judging, stacks: Sequence[Sequence[Member]]) -> None:
    from unbraid.sweeps.judged import refuse_unjudgeable  # here, because few runs judge and it imports much

    refuse_unjudgeable(judging, [group[0].experiment for group in stacks])


def _judge(run: Run, judging: Judging, watcher: Watcher) -> None:
    """Once the dictionaries are there, judge them; unless that was done, with these settings."""
    from unbraid.sweeps.judged import FILE, is_judged, judge_run

    if not is_judged(run, judging):
        write_json(run.path / FILE, judge_run(run, judging, watcher))
    watcher.advance(0, judging.steps)


def _work(
    run: Run, index: int, group: list[Member], watcher: Watcher, signals: StopSignals
) -> DictionaryWork | ModelWork | TextWork | BaselineWork | EmbeddingWork:
    first = group[0].experiment
    if isinstance(first.world, Text):
        return TextWork(run, index, group, watcher, signals)
    if first.is_taught:
        return ModelWork(run, index, group, watcher, signals)
    if first.embedding is not None:
        return EmbeddingWork(run, index, group, first.world, watcher)
    world = world_of(run, first) if first.is_line else first.world
    if first.baseline is not None:
        return BaselineWork(run, index, group, world, watcher)
    return DictionaryWork(run, index, group, world, watcher, signals)


def judging_cost(stacks: Sequence[Sequence[Member]], judging: Judging) -> float:
    """About what judging costs, in the same units: every token that is read is encoded by every dictionary."""
    tokens = judging.tokens * TOKEN_SPLICED + judging.texts * judging.context * len(judging.labels)
    trained = [member.experiment for group in stacks for member in group if member.experiment.is_trained]
    return sum(float(tokens * one.dictionary.features * one.dimensions) for one in trained)


def work(group: Sequence[Member]) -> tuple[int, float]:
    """The steps of a stack, and what one of them costs in arbitrary units; what is not trained takes one a member."""
    first = group[0].experiment
    if first.is_taught:
        return first.teaching.steps, len(group) * model_step(first)
    if not first.is_trained:
        samples = sum(member.experiment.data.samples for member in group) / len(group)
        return len(group), samples * (SAMPLE_FITTED if first.embedding is None else SAMPLE_PICTURED)
    products = first.dictionary.features * first.dimensions * first.training.batch
    return first.training.steps, float(len(group) * products)


def model_step(experiment: Experiment) -> float:
    """About what a step of one model costs, in the same units: its products there and twice back.

    On a text every token is also compared with the whole vocabulary.
    """
    model, world = experiment.model, experiment.asking
    compared = model.width * len(world.vocabulary) if isinstance(world, Text) else 0
    return 3.0 * experiment.teaching.batch * world.length * (model.sizes(world.length).products + compared)
