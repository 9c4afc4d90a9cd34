"""Transformers with known insides: m of one shape as one set of tensors, recording only what is asked for."""

from unbraid.models.attention import ATTENTIONS, Attention, Hopfield, Routed, Softmax
from unbraid.models.feed_forward import FEED_FORWARDS, Dense, FeedForward, RoutedExperts
from unbraid.models.gauge import FreeEnergy, Gauge, GaugeModels
from unbraid.models.kinds import MODELS, AnyModel, models_of, start_models
from unbraid.models.landscape import Landscape, landscape
from unbraid.models.models import Models, Passed
from unbraid.models.settings import PUBLISHED, Transformer
from unbraid.models.shape import Shape
from unbraid.models.transformer import Transformers

__all__ = [
    "ATTENTIONS",
    "FEED_FORWARDS",
    "MODELS",
    "PUBLISHED",
    "AnyModel",
    "Attention",
    "Dense",
    "FeedForward",
    "FreeEnergy",
    "Gauge",
    "GaugeModels",
    "Hopfield",
    "Landscape",
    "Models",
    "Passed",
    "Routed",
    "RoutedExperts",
    "Shape",
    "Softmax",
    "Transformer",
    "Transformers",
    "landscape",
    "models_of",
    "start_models",
]
