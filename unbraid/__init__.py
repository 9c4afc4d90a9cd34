"""Unbraid: a laboratory for disentangling transformers with known answers.

Plant features in a world, train dictionaries (sparse autoencoders) on it, and score them against the planted truth:

>>> import unbraid as ub
>>> world = ub.Superposition(dimensions=64, n_features=128)
>>> training = ub.Training(steps=300, batch=256, learning_rate=1e-2)
>>> stack = ub.fit(world, ub.Dictionary(d_sae=128), [ub.Sparsity(weight=0.15)], training, seeds=[0, 1])
>>> scores = ub.score(stack, world, samples=2048)  # print(scores) shows all, with chance and ceiling
>>> bool(scores.values["mmcs"].mean() > scores.chance["mmcs"])
True

| to                    | use                                                                                |
|-----------------------|------------------------------------------------------------------------------------|
| make data             | Superposition (Independent, Correlated, Hierarchy), Synth, Stories, Text           |
| capture activations   | capture, Activations, diagnose                                                     |
| train dictionaries    | fit (on a world or an array), Dictionary (Relu, TopK, ...), Training, mechanisms   |
| compare with others   | SparseAutoencoder, Pca, Ica, Nmf, KMeans, KMedoids, Random, Oracle                 |
| train transformers    | Transformer, Gauge, ModelState, train_model, constraints (Orthogonality, ...)      |
| run one model         | Model (a torch module: hooks, cache, generate), splice, heads                      |
| evaluate              | score, evaluate_heads, continue_text, draw_recovery                                |
| read a finished run   | load_run (tables), draw (figures), load_stack, load_models                         |

In all shapes m is the number of members: dictionaries, or models, that are trained together as one stack. To read about
a name, `help(ub.fit)`. Names are loaded when first used, so importing the package is quick.
"""

import ast
import importlib
import os
import sys
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

if "torch" not in sys.modules:
    # torch's threads and numba's take turns: those that wait must not hold the processor (docs/decisions/006).
    os.environ.setdefault("GOMP_SPINCOUNT", "0")

_MODULES = {
    alias.name: line.module or ""
    for line in ast.parse(Path(__file__).with_suffix(".pyi").read_text()).body
    if isinstance(line, ast.ImportFrom)
    for alias in line.names
}
"""Where each exported name is; the stub lists them once, for us, type checkers and editors."""

__all__ = sorted(_MODULES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'unbraid' has no attribute '{name}'; it has {', '.join(__all__)}")
    exported = getattr(importlib.import_module(_MODULES[name]), name)
    if isinstance(exported, type):
        from unbraid.config import Config, add_parameters

        if issubclass(exported, Config):
            add_parameters(exported)
    return exported


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
