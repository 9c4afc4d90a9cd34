"""The first stages of a line: teach the models that are not there yet, and record what dictionaries are to learn.

Models are taught side by side, each once however many dictionaries learn from it.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
from filelock import FileLock

from unbraid.config import to_toml
from unbraid.files import read_json, write_json
from unbraid.line import stages
from unbraid.line.recording import is_recorded, record
from unbraid.progress import OneOfMany, Watcher
from unbraid.runs import Run
from unbraid.signals import StopSignals
from unbraid.sweeps.crew import work_together
from unbraid.sweeps.experiment import Experiment
from unbraid.sweeps.grid import Member, expand
from unbraid.sweeps.model_work import ModelWork
from unbraid.sweeps.summary import OF_THE_MODEL, summarise
from unbraid.sweeps.trained import load_models
from unbraid.worlds import Activations
from unbraid.worlds.stories import Stories

Stacks = Sequence[Sequence[Member]]


def home_of(run: Run) -> Path:
    """Where the stages of a run are: beside it, for all runs there."""
    return run.path.parent / stages.HOME


def models_of(stacks: Stacks, home: Path = Path()) -> dict[Path, Experiment]:
    """The models that these stacks learn from, by where they are kept, as experiments that end with the model."""
    lines = {stages.model_folder(home, tree): tree for tree in (group[0].experiment.tree() for group in stacks)}
    return {
        folder: Experiment.model_validate({**stages.model_tree(tree), "saving": tree["saving"]})
        for folder, tree in lines.items()
    }


def teach_and_record(
    run: Run, stacks: Stacks, works: Sequence[tuple[int, float]], watcher: Watcher, signals: StopSignals
) -> None:
    """Whatever of models and activations is not there yet; `works` is the work of each model."""
    models = models_of(stacks, home_of(run))
    for folder, experiment in models.items():
        if not folder.is_dir():
            Run.create(folder.parent, folder.name, to_toml(experiment.tree()))
    _teach([Run.open(folder) for folder in models], works, watcher, signals)
    for group in stacks:
        _record(home_of(run), group[0].experiment, watcher)


def world_of(run: Run, experiment: Experiment) -> Activations:
    """What a dictionary of a line learns from."""
    assert experiment.capture is not None
    folder = stages.shards_folder(home_of(run), experiment.tree())
    return Activations.model_validate({"path": str(folder), "normalise": experiment.capture.normalise})


def write_model_scores(run: Run, group: Sequence[Member], folder: Path) -> None:
    """Beside the scores of a stack those of the model that it learned from, the same for every member."""
    model = Run(stages.model_folder(home_of(run), group[0].experiment.tree()))
    found = read_json(model.stack(0) / stages.DONE)
    kept = {
        part: {name: values[name] * len(group) for name in OF_THE_MODEL if name in values}
        for part, values in found.items()
    }
    write_json(folder / "model.json", kept)


def _teach(models: Sequence[Run], works: Sequence[tuple[int, float]], watcher: Watcher, signals: StopSignals) -> None:
    hands, labour = torch.get_num_threads(), partial(finish_model, [model.path for model in models])
    todo = [model for model in models if not _is_taught(model)]
    if len(todo) > 1 and hands > 1:
        work_together(labour, works, hands, watcher, signals)
        return
    for index in range(len(models)):
        labour(index, watcher, signals)


def finish_model(paths: Sequence[Path], index: int, watcher: Watcher, signals: StopSignals) -> None:
    """Do whatever the model of one of these run directories still needs."""
    model = Run.open(paths[index])
    group = expand(model.config(), str(model.path / "config.toml"))
    among = OneOfMany(watcher, index)
    if _is_taught(model):
        among.advance(0, group[0].experiment.teaching.steps)
        return
    with model.locked():
        work = ModelWork(model, 0, group, among, signals)
        work.finish()
        write_json(model.path / "scores.json", summarise(model))
        model.set_status("finished", "", work.seconds)


def _is_taught(model: Run) -> bool:
    return (model.path / "scores.json").is_file()


def _record(home: Path, experiment: Experiment, watcher: Watcher) -> None:
    tree = experiment.tree()
    folder, model = stages.shards_folder(home, tree), stages.model_folder(home, tree)
    assert experiment.capture is not None
    assert isinstance(experiment.world, Stories)
    if is_recorded(folder):
        return
    with FileLock(folder.with_name(f".{folder.name}.lock")):  # whoever comes second waits, and finds it done
        watcher.stage(f"recording {experiment.capture.site} of {model.name}")
        record(load_models(model), experiment.world, experiment.capture, folder)
