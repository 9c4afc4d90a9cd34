"""Unbraid: a laboratory for disentangling transformers with known answers.

    import unbraid as ub

    world = ub.Superposition(dimensions=64, features=128)
    stack = ub.fit(world, ub.Dictionary(features=128), [ub.Sparsity(weight=0.15)])
    print(ub.score(stack, world))

Names are loaded when first used, so that importing the package costs nothing.
"""

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unbraid.codes import Codes
    from unbraid.dictionaries import BatchTopK, Dictionary, Gated, JumpRelu, Relu, Stack, TopK, Variational
    from unbraid.estimator import SparseAutoencoder
    from unbraid.examining import Examining, examine
    from unbraid.examining.continuing import continue_text
    from unbraid.mechanisms import Matryoshka, Mechanism, Sparsity
    from unbraid.models import Models, Transformer
    from unbraid.reports.recovery_figures import draw_recovery
    from unbraid.scoring import Scores, score
    from unbraid.sweeps.trained import load_models, load_stack
    from unbraid.training.fit import fit
    from unbraid.training.schedule import Training
    from unbraid.training.teaching import Teaching
    from unbraid.worlds import Activations, Stories, Superposition, Text, World

__version__ = "0.1.0"

if "torch" not in sys.modules:
    # torch's threads and numba's take turns: those that wait must not hold the processor (docs/decisions/006).
    os.environ.setdefault("GOMP_SPINCOUNT", "0")

_HOMES = {
    "Activations": "unbraid.worlds",
    "BatchTopK": "unbraid.dictionaries",
    "Codes": "unbraid.codes",
    "Dictionary": "unbraid.dictionaries",
    "Examining": "unbraid.examining",
    "Gated": "unbraid.dictionaries",
    "JumpRelu": "unbraid.dictionaries",
    "Matryoshka": "unbraid.mechanisms",
    "Mechanism": "unbraid.mechanisms",
    "Models": "unbraid.models",
    "Relu": "unbraid.dictionaries",
    "Scores": "unbraid.scoring",
    "SparseAutoencoder": "unbraid.estimator",
    "Sparsity": "unbraid.mechanisms",
    "Stack": "unbraid.dictionaries",
    "Stories": "unbraid.worlds",
    "Superposition": "unbraid.worlds",
    "Teaching": "unbraid.training.teaching",
    "Text": "unbraid.worlds",
    "TopK": "unbraid.dictionaries",
    "Training": "unbraid.training.schedule",
    "Transformer": "unbraid.models",
    "Variational": "unbraid.dictionaries",
    "World": "unbraid.worlds",
    "continue_text": "unbraid.examining.continuing",
    "draw_recovery": "unbraid.reports.recovery_figures",
    "examine": "unbraid.examining",
    "fit": "unbraid.training.fit",
    "load_models": "unbraid.sweeps.trained",
    "load_stack": "unbraid.sweeps.trained",
    "score": "unbraid.scoring",
}

__all__ = [
    "Activations",
    "BatchTopK",
    "Codes",
    "Dictionary",
    "Examining",
    "Gated",
    "JumpRelu",
    "Matryoshka",
    "Mechanism",
    "Models",
    "Relu",
    "Scores",
    "SparseAutoencoder",
    "Sparsity",
    "Stack",
    "Stories",
    "Superposition",
    "Teaching",
    "Text",
    "TopK",
    "Training",
    "Transformer",
    "Variational",
    "World",
    "continue_text",
    "draw_recovery",
    "examine",
    "fit",
    "load_models",
    "load_stack",
    "score",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'unbraid' has no attribute '{name}'; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
