"""The kinds of transformer there are, how each starts, and which one a configuration means."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
import torch
from pydantic import BeforeValidator

from unbraid.config import tagged
from unbraid.models.attention.attention import Named
from unbraid.models.gauge import Gauge, GaugeModels
from unbraid.models.gauge.weights import start_of as gauge_start
from unbraid.models.models import Models
from unbraid.models.settings import Transformer
from unbraid.models.shape import Shape
from unbraid.models.starting import Start
from unbraid.models.transformer import Transformers
from unbraid.models.weights import start_of as plain_start


class Kind(NamedTuple):
    """Its settings, its models, and the weights of one of them from (settings, words, length, classes, seed)."""

    settings: type[Shape]
    models: type[Models]
    start: Callable[..., Start]


MODELS: dict[str, Kind] = {
    "transformer": Kind(Transformer, Transformers, plain_start),
    "gauge": Kind(Gauge, GaugeModels, gauge_start),
}


def _plain_unless_said(data: Any) -> Any:
    """A model whose kind is not given is a plain transformer."""
    return {"kind": "transformer", **data} if isinstance(data, dict) else data


if TYPE_CHECKING:
    AnyModel = Shape
else:
    AnyModel = Annotated[
        tagged({name: kind.settings for name, kind in MODELS.items()}), BeforeValidator(_plain_unless_said)
    ]


def start_models(settings: Shape, vocabulary: int, length: int, classes: int, seeds: Sequence[int]) -> Models:
    """Each member from its own seed."""
    start = _kind(settings).start
    drawn = [start(settings, vocabulary, length, classes, seed) for seed in seeds]
    weights = {name: torch.from_numpy(np.stack([one[name] for one in drawn])) for name in drawn[0]}
    return models_of(settings, length, seeds, weights)


def models_of(settings: Shape, length: int, seeds: Sequence[int], weights: Named) -> Models:
    """Models with these weights."""
    return _kind(settings).models(settings, length, tuple(seeds), weights)


def _kind(settings: Shape) -> Kind:
    return next(kind for kind in MODELS.values() if isinstance(settings, kind.settings))
