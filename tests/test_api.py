"""What `import unbraid as ub` offers can be read by a stranger: documented, field by field, with examples that run."""

import ast
import dataclasses
import doctest
import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import unbraid as ub
from unbraid.config import Config, field_docs
from unbraid.dictionaries.baselines import BASELINES
from unbraid.dictionaries.mechanisms import MECHANISMS
from unbraid.dictionaries.stack import ACTIVATIONS
from unbraid.models import ARCHITECTURES, ATTENTIONS, FEED_FORWARDS
from unbraid.models.constraints import CONSTRAINTS
from unbraid.worlds import QUESTIONS, WORLDS
from unbraid.worlds.firing import FIRING

REGISTRIES = {
    "activation rules": ACTIVATIONS,
    "architectures": {name: architecture.config for name, architecture in ARCHITECTURES.items()},
    "attention kinds": ATTENTIONS,
    "baselines": BASELINES,
    "constraints": CONSTRAINTS,
    "feed-forward layers": FEED_FORWARDS,
    "firing rules": FIRING,
    "mechanisms": MECHANISMS,
    "worlds": {**WORLDS, **QUESTIONS},
}
ALIASES = ("W_enc", "b_enc", "W_dec", "b_dec", "d_in", "d_sae", "threshold")


def is_config(exported: object) -> bool:
    return isinstance(exported, type) and issubclass(exported, Config)


CONFIGS = [name for name in ub.__all__ if is_config(getattr(ub, name))]
OTHERS = [name for name in ub.__all__ if name not in CONFIGS]


@pytest.mark.parametrize("registry", REGISTRIES)
def test_everything_registered_is_exported(registry):
    for kind in REGISTRIES[registry].values():
        assert getattr(ub, kind.__name__) is kind


def test_type_checkers_see_what_is_exported():
    """A stub exports `name as name` only, and each name must be where it says."""
    stub = ast.parse(Path(ub.__file__).with_suffix(".pyi").read_text())
    names = [alias for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert [alias.asname for alias in names] == [alias.name for alias in names]
    assert [name for name in ub.__all__ if getattr(ub, name, None) is None] == []
    assert (Path(ub.__file__).parent / "py.typed").exists()


def section(text: str, title: str) -> str:
    """What stands in a section of a docstring, up to the next one; '' where there is none."""
    _, _, rest = text.partition(f"{title}\n{'-' * len(title)}\n")
    return re.split(r"\n\n\w+\n-{4,}\n", rest)[0]


def described(text: str) -> set[str]:
    """The names that a Parameters section describes; a line may describe several."""
    heads = re.findall(r"^(\w[\w, ]*) : ", section(text, "Parameters"), re.MULTILINE)
    return {name.strip() for head in heads for name in head.split(",")}


@pytest.mark.parametrize("name", CONFIGS)
def test_help_of_a_configuration_describes_every_field(name):
    exported = getattr(ub, name)
    assert described(inspect.getdoc(exported)) == exported.model_fields.keys()


@pytest.mark.parametrize("name", OTHERS)
def test_help_describes_every_parameter_and_what_is_returned(name):
    exported = getattr(ub, name)
    text = inspect.getdoc(exported)
    if name == "ModelState":  # made by `start`, not by its own parameters
        assert section(text, "Attributes")
        return
    assert described(text) == inspect.signature(exported).parameters.keys()
    assert bool(section(text, "Returns")) != isinstance(exported, type)


@pytest.mark.parametrize("name", ub.__all__)
def test_sections_stand_in_order(name):
    text = inspect.getdoc(getattr(ub, name))
    titles = re.findall(r"^(\w+)\n-{4,}$", text, re.MULTILINE)
    order = ["Parameters", "Returns", "Attributes", "Examples"]
    assert titles == [title for title in order if title in titles]
    assert titles[-1] == "Examples"
    assert (
        "import unbraid as ub" in text or "import torch, unbraid as ub" in text or "numpy as np, unbraid as ub" in text
    )


def test_a_line_under_every_field_of_every_configuration():
    for module in pkgutil.walk_packages(ub.__path__, "unbraid."):
        if not module.name.endswith(("__main__", "operations.cuda")):  # that needs Triton, an extra
            importlib.import_module(module.name)
    configs = [config for config in subclasses(Config) if config.__module__.startswith("unbraid.")]
    assert len(configs) > 80
    without = {
        f"{config.__module__}.{config.__qualname__}.{field}"
        for config in configs
        for field in config.model_fields
        if not field_docs(config).get(field)
    }
    assert without == set()


def subclasses(cls: type) -> Iterator[type]:
    for subclass in cls.__subclasses__():
        yield subclass
        yield from subclasses(subclass)


@pytest.mark.parametrize("name", ["unbraid", *ub.__all__])
def test_examples_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where an example writes
    documented = ub if name == "unbraid" else getattr(ub, name)
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner(verbose=False)
    for test in finder.find(documented, name, module=False, globs={"__name__": "example"}):
        runner.run(test)
    results = runner.summarize(verbose=False)
    assert results.attempted > 0
    assert results.failed == 0


def test_help_lists_every_setting():
    text = inspect.getdoc(ub.Training)
    assert "learning_rate : float, per member, default 0.001" in text
    assert "clip : float or None, default None" in text
    assert "reconstruction_loss : {'sum_square', 'mean_square', 'norm'}, default 'sum_square'" in text
    assert text.count("Parameters") == 1
    assert "layers : {'last', 'all'} or tuple of int, default 'last'" in inspect.getdoc(ub.Orthogonality)
    assert "default Softmax()" in inspect.getdoc(ub.Transformer)


@pytest.mark.parametrize("alias", ALIASES)
def test_saelens_names_are_documented(alias):
    assert inspect.getdoc(getattr(ub.Stack, alias))
    assert alias in section(inspect.getdoc(ub.Stack), "Attributes")


def test_scores_and_states_are_made_of_documented_fields():
    for record in (ub.Scores, ub.HeadScores, ub.Codes, ub.Stack, ub.Models):
        assert described(inspect.getdoc(record)) == {field.name for field in dataclasses.fields(record)}


def test_the_package_runs_as_a_module():
    shown = subprocess.run([sys.executable, "-m", "unbraid", "--help"], capture_output=True, text=True, check=True)
    assert "Usage" in shown.stdout
    assert "--install-completion" in shown.stdout


def test_the_shell_completes_commands():
    asked = {"_UNBRAID_COMPLETE": "complete_bash", "COMP_WORDS": "unbraid re", "COMP_CWORD": "1"}
    program = "import sys; sys.argv = ['unbraid']; from unbraid.cli import main; main()"
    command = [sys.executable, "-c", program]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **asked})
    assert shown.stdout.split() == ["resume", "report"]
