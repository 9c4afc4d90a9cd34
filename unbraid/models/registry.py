"""The registry of architectures: the configuration of each, its models, and how their weights begin.

A new architecture is one line in `ARCHITECTURES`.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
import torch
from pydantic import BeforeValidator

from unbraid.config import tagged
from unbraid.models.attention.attention import Named
from unbraid.models.config import ModelConfig, Transformer
from unbraid.models.gauge.config import Gauge
from unbraid.models.gauge.transformer import GaugeModels, init_gauge
from unbraid.models.layers import InitialWeights
from unbraid.models.models import Models
from unbraid.models.transformer import Transformers, init_transformer


class Architecture(NamedTuple):
    """Its configuration, its models, and the weights of one from (settings, vocabulary, length, classes, seed)."""

    config: type[ModelConfig]
    models: type[Models]
    init: Callable[..., InitialWeights]


ARCHITECTURES: dict[str, Architecture] = {
    "transformer": Architecture(Transformer, Transformers, init_transformer),
    "gauge": Architecture(Gauge, GaugeModels, init_gauge),
}


def _transformer_by_default(data: Any) -> Any:
    """A model whose kind is not given is a transformer."""
    return {"kind": "transformer", **data} if isinstance(data, dict) else data


if TYPE_CHECKING:
    AnyModel = ModelConfig
else:
    AnyModel = Annotated[
        tagged({name: architecture.config for name, architecture in ARCHITECTURES.items()}),
        BeforeValidator(_transformer_by_default),
    ]


def start_models(settings: ModelConfig, vocabulary: int, length: int, classes: int, seeds: Sequence[int]) -> Models:
    """Make untrained models of one architecture, each member from its own seed.

    Parameters
    ----------
    settings : Transformer or Gauge
        The architecture.
    vocabulary : int
        Number of token ids; 0 is padding.
    length : int
        Tokens of the longest sequence.
    classes : int
        Number of possible answers; for a language model, the vocabulary.
    seeds : sequence of int
        One per member.

    Returns
    -------
    Models
        As many members as seeds.

    Examples
    --------
    >>> import unbraid as ub
    >>> world = ub.Stories()
    >>> config = ub.Transformer(d_model=8, heads=2, d_ff=8)
    >>> models = ub.start_models(config, len(world.vocabulary), world.length, len(world.answers), seeds=[0, 1])
    >>> models.members, models.weights["embed"].shape == (2, len(world.vocabulary), 8)
    (2, True)
    """
    init = _architecture(settings).init
    drawn = [init(settings, vocabulary, length, classes, seed) for seed in seeds]
    weights = {name: torch.from_numpy(np.stack([member[name] for member in drawn])) for name in drawn[0]}
    return models_of(settings, length, seeds, weights)


def models_of(settings: ModelConfig, length: int, seeds: Sequence[int], weights: Named) -> Models:
    """Models with these weights, each `m ...`."""
    return _architecture(settings).models(settings, length, tuple(seeds), weights)


def _architecture(settings: ModelConfig) -> Architecture:
    return next(known for known in ARCHITECTURES.values() if isinstance(settings, known.config))
