"""Unbraid: a laboratory for disentangling transformers with known answers.

    import unbraid as ub

    world = ub.Superposition(dimensions=64, n_features=128)
    stack = ub.fit(world, ub.Dictionary(d_sae=128), [ub.Sparsity(weight=0.15)])
    print(ub.score(stack, world))

Names are loaded when first used, so that importing the package costs nothing.
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
    "unbraid.evaluation.heads": ["evaluate_heads"],
    "unbraid.evaluation.text_models": ["continue_text"],
    "unbraid.models": [
        "Gauge",
        "HeadEvaluation",
        "Hopfield",
        "ModelTraining",
        "Models",
        "Routed",
        "Softmax",
        "Transformer",
    ],
    "unbraid.models.constraints": ["AttentionEntropy", "Constraint", "HeadUsage", "Independence", "Orthogonality"],
    "unbraid.models.training": ["train_model"],
    "unbraid.pipeline.trained": ["load_models", "load_stack"],
    "unbraid.reports.recovery_figures": ["draw_recovery"],
    "unbraid.worlds": ["Activations", "Stories", "Superposition", "Text", "World"],
    "unbraid.worlds.firing": ["Correlated", "Hierarchy", "Independent"],
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
