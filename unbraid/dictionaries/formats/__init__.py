"""Files that dictionaries are kept in, ours and other libraries': read into a stack, written from one, and checked.

A format is one file here and one line in `FORMATS`.
"""

from unbraid.dictionaries.formats.circuit_tracer import CircuitTracer
from unbraid.dictionaries.formats.dictionary_learning import DictionaryLearning
from unbraid.dictionaries.formats.folder import Folder
from unbraid.dictionaries.formats.format import Format
from unbraid.dictionaries.formats.gemma_scope import GemmaScope
from unbraid.dictionaries.formats.llama_scope import LlamaScope
from unbraid.dictionaries.formats.neuronpedia import Neuronpedia
from unbraid.dictionaries.formats.openai import OpenAi
from unbraid.dictionaries.formats.saelens import SaeLens
from unbraid.dictionaries.formats.sparsify import Sparsify

FORMATS: dict[str, Format] = {
    "unbraid": Folder(),
    "saelens": SaeLens(),
    "dictionary_learning": DictionaryLearning(),
    "sparsify": Sparsify(),
    "gemma_scope": GemmaScope(),
    "llama_scope": LlamaScope(),
    "openai": OpenAi(),
    "circuit_tracer": CircuitTracer(),
    "neuronpedia": Neuronpedia(),
}

__all__ = ["FORMATS", "Format"]
