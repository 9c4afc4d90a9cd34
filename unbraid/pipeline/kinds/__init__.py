"""The kinds of experiment. A new kind is one file beside this one, and one line here."""

from unbraid.config import Registry
from unbraid.pipeline.experiment import Experiment
from unbraid.pipeline.kinds.dictionaries import DictionaryExperiment
from unbraid.pipeline.kinds.embedding import EmbeddingExperiment
from unbraid.pipeline.kinds.language_models import LanguageModelExperiment
from unbraid.pipeline.kinds.models import ModelExperiment
from unbraid.pipeline.kinds.pipeline import PipelineExperiment

BUILT_IN: dict[str, type[Experiment]] = {
    "dictionaries": DictionaryExperiment,
    "models": ModelExperiment,
    "language_models": LanguageModelExperiment,
    "pipeline": PipelineExperiment,
    "embedding": EmbeddingExperiment,
}
KINDS = Registry("experiment kind", Experiment, BUILT_IN)
DEFAULT_KIND = "dictionaries"
"""What a configuration is that names no kind."""

__all__ = ["DEFAULT_KIND", "KINDS"]
