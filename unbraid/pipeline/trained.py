"""What a finished run has trained, read back to be used: dictionaries and models."""

from dataclasses import replace
from pathlib import Path

import torch
from pydantic import TypeAdapter, ValidationError

from unbraid.config.plugins import check_loaded
from unbraid.dictionaries import Stack
from unbraid.dictionaries.formats.folder import read_stack
from unbraid.dictionaries.formats.provenance import of_run
from unbraid.errors import UserError
from unbraid.models import AnyModel, Models, models_of
from unbraid.storage.files import read_arrays, read_object
from unbraid.storage.runs import Run


def load_stack(path: str | Path, index: int = 0) -> Stack:
    """Read the trained dictionaries of a finished run.

    Dictionaries that were trained on captured activations take and return raw activations: the normalization is folded
    into their weights.

    Parameters
    ----------
    path : str or Path
        The run directory, as `runs/first`.
    index : int, default 0
        Which of its stacks; `unbraid show --json` lists the stack of every member.

    Returns
    -------
    Stack
        All members of that stack.

    Examples
    --------
    After `unbraid run quickstart --name first`:

    >>> import unbraid as ub
    >>> ub.load_stack("runs/first").members  # doctest: +SKIP
    10

    A path without a run is refused:

    >>> ub.load_stack("runs/absent")
    Traceback (most recent call last):
    ...
    unbraid.errors.UserError: runs/absent: there is no such run directory; accepted: one that `unbraid list` shows
    """
    run = _finished_run(path, index, "dictionary.json", "trained dictionaries", "a run that trains some")
    with run.advice():
        try:
            stack = read_stack(run.stack(index))
        except UserError:
            _check_plugins(run)
            raise
        return replace(stack, metadata=of_run(run, run.stack(index)))


def _check_plugins(run: Run) -> None:
    """Say what is missing, where that is a plugin."""
    check_loaded(run.facts().get("plugins"), str(run.path), "`ub.load_plugin(FILE)` first")


def _finished_run(path: str | Path, index: int, file: str, contents: str, accepted: str) -> Run:
    """A finished run whose stack of this index has this file."""
    run = Run.open(Path(path))
    run.check_finished()
    if not (run.stack(index) / file).is_file():
        raise UserError(f"{path} holds no {contents} in stack {index}; accepted: {accepted}")
    return run


def load_models(path: str | Path, index: int = 0) -> Models:
    """Read the trained models of a finished run.

    Parameters
    ----------
    path : str or Path
        The run directory of a run that trains models on stories or text.
    index : int, default 0
        Which of its stacks; `unbraid show --json` lists the stack of every member.

    Returns
    -------
    Models
        All members of that stack.

    Examples
    --------
    After `unbraid run head-constraints/constraints --name heads`:

    >>> import unbraid as ub
    >>> models = ub.load_models("runs/heads")  # doctest: +SKIP

    A path without a run is refused:

    >>> ub.load_models("runs/absent")
    Traceback (most recent call last):
    ...
    unbraid.errors.UserError: runs/absent: there is no such run directory; accepted: one that `unbraid list` shows
    """
    run = _finished_run(path, index, "architecture.json", "models", "a run on stories or text, stacks from 0")
    folder = run.stack(index)
    with run.advice():
        card = read_object(folder / "architecture.json", "model", "length", "seeds")
        saved = read_arrays(folder / "weights.safetensors")
    weights = {name: torch.from_numpy(array) for name, array in saved.items()}
    try:
        model = TypeAdapter(AnyModel).validate_python(card["model"])
    except ValidationError:
        _check_plugins(run)
        raise
    return models_of(model, card["length"], card["seeds"], weights)
