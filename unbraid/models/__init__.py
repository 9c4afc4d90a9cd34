"""Transformers with known insides: m of one architecture as one set of tensors, recording only what is asked for."""

from unbraid.models.attention import ATTENTIONS, Attention, Hopfield, Routed, Softmax
from unbraid.models.config import PUBLISHED, HeadEvaluation, ModelConfig, ModelTraining, Transformer
from unbraid.models.feed_forward import FEED_FORWARDS, Dense, FeedForward, RoutedExperts
from unbraid.models.gauge import FreeEnergy, Gauge, GaugeModels
from unbraid.models.hopfield_energy import HopfieldEnergy, hopfield_energy
from unbraid.models.models import ForwardOutput, Models
from unbraid.models.module import Model
from unbraid.models.registry import ARCHITECTURES, AnyModel, models_of, start_models
from unbraid.models.transformer import Transformers

__all__ = [
    "ARCHITECTURES",
    "ATTENTIONS",
    "FEED_FORWARDS",
    "PUBLISHED",
    "AnyModel",
    "Attention",
    "Dense",
    "FeedForward",
    "ForwardOutput",
    "FreeEnergy",
    "Gauge",
    "GaugeModels",
    "HeadEvaluation",
    "Hopfield",
    "HopfieldEnergy",
    "Model",
    "ModelConfig",
    "ModelTraining",
    "Models",
    "Routed",
    "RoutedExperts",
    "Softmax",
    "Transformer",
    "Transformers",
    "hopfield_energy",
    "models_of",
    "start_models",
]
