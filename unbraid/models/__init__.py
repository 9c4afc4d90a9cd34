"""Transformers with known insides: m of one shape as one set of tensors, recording only what is asked for."""

from unbraid.models.attention import ATTENTIONS, Attention, Hopfield, Routed, Softmax
from unbraid.models.feed_forward import FEED_FORWARDS, Dense, FeedForward, RoutedExperts
from unbraid.models.landscape import Landscape, landscape
from unbraid.models.recording import hooks
from unbraid.models.settings import PUBLISHED, Transformer
from unbraid.models.transformer import Models, Passed

__all__ = [
    "ATTENTIONS",
    "FEED_FORWARDS",
    "PUBLISHED",
    "Attention",
    "Dense",
    "FeedForward",
    "Hopfield",
    "Landscape",
    "Models",
    "Passed",
    "Routed",
    "RoutedExperts",
    "Softmax",
    "Transformer",
    "hooks",
    "landscape",
]
