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
| make data             | Superposition (Independent, Correlated, Hierarchy), Stories, Text                  |
| capture activations   | capture, Activations, diagnose                                                     |
| train dictionaries    | fit, Dictionary (Relu, TopK, JumpRelu, ...), Training, mechanisms (Sparsity, ...)  |
| compare with others   | SparseAutoencoder, Pca, Ica, Nmf, KMeans, KMedoids, Random, Oracle                 |
| train transformers    | Transformer, Gauge, ModelState, train_model, constraints (Orthogonality, ...)      |
| evaluate              | score, evaluate_heads, continue_text, draw_recovery                                |
| read a finished run   | load_stack, load_models                                                            |

In all shapes m is the number of members: dictionaries, or models, that are trained together as one stack. To read about
a name, `help(ub.fit)`. Names are loaded when first used, so importing the package is quick.
"""

import importlib
import os
import sys
from typing import Any

__version__ = "0.1.0"

if "torch" not in sys.modules:
    # torch's threads and numba's take turns: those that wait must not hold the processor (docs/decisions/006).
    os.environ.setdefault("GOMP_SPINCOUNT", "0")

_EXPORTS = {  # also in __init__.pyi, for type checkers and editors
    "unbraid.codes": ["Codes"],
    "unbraid.dictionaries": [
        "Activation",
        "BatchTopK",
        "Dictionary",
        "Gated",
        "JumpRelu",
        "Relu",
        "Stack",
        "TopK",
        "Variational",
    ],
    "unbraid.dictionaries.baselines": ["Baseline", "Ica", "KMeans", "KMedoids", "Nmf", "Oracle", "Pca", "Random"],
    "unbraid.dictionaries.estimator": ["SparseAutoencoder"],
    "unbraid.dictionaries.mechanisms": [
        "AdaptiveL1",
        "AdaptiveNeighbourhoods",
        "AdaptiveTau",
        "CorrelationPruning",
        "DynamicPairs",
        "LateralInhibition",
        "Matryoshka",
        "Mechanism",
        "MomentumImportance",
        "PairOrthogonality",
        "Reallocation",
        "Sparsity",
    ],
    "unbraid.dictionaries.training.config": ["Training"],
    "unbraid.dictionaries.training.fit": ["fit"],
    "unbraid.activations.capture": ["CaptureConfig", "capture"],
    "unbraid.activations.diagnosis": ["diagnose"],
    "unbraid.evaluation.dictionaries": ["Scores", "score"],
    "unbraid.evaluation.heads": ["HeadScores", "evaluate_heads"],
    "unbraid.evaluation.text_models": ["continue_text"],
    "unbraid.models": [
        "Attention",
        "Dense",
        "FeedForward",
        "FreeEnergy",
        "Gauge",
        "HeadEvaluation",
        "Hopfield",
        "ModelTraining",
        "Models",
        "Routed",
        "RoutedExperts",
        "Softmax",
        "Transformer",
        "start_models",
    ],
    "unbraid.models.constraints": ["AttentionEntropy", "Constraint", "HeadUsage", "Independence", "Orthogonality"],
    "unbraid.models.profile": ["StepProfile", "profile_gauge"],
    "unbraid.models.training": ["ModelState", "train_model"],
    "unbraid.pipeline.trained": ["load_models", "load_stack"],
    "unbraid.reports.recovery_figures": ["draw_recovery"],
    "unbraid.worlds": ["Activations", "Stories", "Superposition", "Text", "World"],
    "unbraid.worlds.firing": ["Correlated", "Firing", "Hierarchy", "Independent"],
}
_MODULES = {name: module for module, names in _EXPORTS.items() for name in names}

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
