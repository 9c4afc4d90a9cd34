"""Load a Hugging Face model and its tokenizer, causal or encoder, by the name it has on the hub or from a folder."""

import hashlib
import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from unbraid.devices import Hardware
from unbraid.errors import REAL_DATA, Missing, UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

    # from their own modules: a type checker asked for `transformers` reads all of its models
    from transformers.modeling_utils import PreTrainedModel
    from transformers.tokenization_utils_base import PreTrainedTokenizerBase

WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
"""A folder with weights holds at least one of these."""
CAUSAL = ("ForCausalLM", "LMHeadModel")
"""Endings of the names of architectures that predict the next token."""


@dataclass(frozen=True)
class HuggingFaceModel:
    """A model that is ready to run, its tokenizer, and the name it was loaded by."""

    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase"
    name: str

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return self.model.device

    @property
    def is_causal(self) -> bool:
        return type(self.model).__name__.endswith(CAUSAL)

    @property
    def context(self) -> int:
        """The most tokens it takes at once."""
        for name in ("max_position_embeddings", "n_positions"):
            if isinstance(longest := getattr(self.model.config, name, None), int):
                return longest
        return 2048

    def tokenizer_fingerprint(self) -> str:
        """A checksum of the vocabulary, in the order of its ids."""
        vocabulary = self.tokenizer.get_vocab()
        in_order = sorted(vocabulary, key=vocabulary.__getitem__)
        return hashlib.sha256("\0".join(in_order).encode()).hexdigest()


def load_model(name: str | Path, hardware: Hardware | None = None) -> HuggingFaceModel:
    """Load a model and its tokenizer, ready to run.

    Parameters
    ----------
    name
        A folder with a Hugging Face model, or its name on the hub. Where HF_HUB_OFFLINE is set, only the hub's local
        cache is searched.
    hardware
        The device it runs on, and the precision of its weights; by default the CPU and float32.

    Returns
    -------
    The model in evaluation mode, its tokenizer and its name.
    """
    from transformers.models.auto.configuration_auto import AutoConfig
    from transformers.models.auto.modeling_auto import AutoModel, AutoModelForCausalLM
    from transformers.models.auto.tokenization_auto import AutoTokenizer

    name = str(name)
    _check_weights(Path(name))
    with _report_errors(name), _without_output():
        # Code that lies beside a model is never run, and nobody is asked whether it may be.
        config: Any = AutoConfig.from_pretrained(name, trust_remote_code=False)
        causal = any(str(name).endswith(CAUSAL) for name in config.architectures or ())
        loader: Any = AutoModelForCausalLM if causal else AutoModel
        model = loader.from_pretrained(name, config=config, trust_remote_code=False)
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    model.config.use_cache = False
    hardware = hardware or Hardware()
    model = model.to(device=hardware.device, dtype=getattr(torch, hardware.precision))
    return HuggingFaceModel(model.eval().requires_grad_(False), tokenizer, name)


@contextmanager
def eager_attention(model: "PreTrainedModel") -> "Iterator[None]":
    """Within this context a model computes its attention in the way that can be looked at, where it has one."""
    before = getattr(model.config, "_attn_implementation", None)
    try:
        with suppress(Exception):  # families differ in what they raise, and go without attention
            model.set_attn_implementation("eager")
        yield
    finally:
        if before is not None:
            with suppress(Exception):
                model.set_attn_implementation(before)


def token_names(model: str) -> list[str]:
    """What each token of a model in a folder looks like in a text, by its number; empty where there is no folder."""
    if not Path(model).is_dir():
        return []
    from transformers.models.auto.tokenization_auto import AutoTokenizer

    with _report_errors(model), _without_output():
        vocabulary: dict[str, int] = AutoTokenizer.from_pretrained(model, trust_remote_code=False).get_vocab()
    names = [""] * (max(vocabulary.values(), default=-1) + 1)
    for name, number in vocabulary.items():
        names[number] = name.replace("Ġ", " ").replace("▁", " ").replace("Ċ", "\n")
    return names


def _check_weights(folder: Path) -> None:
    if folder.is_file():
        raise UserError(f"{folder} is a file; accepted: a folder with a Hugging Face model, or its name on the hub")
    if not folder.is_dir():
        if REAL_DATA in folder.parts:
            raise Missing(f"there is no folder '{folder}' here", folder)
        return
    if not (folder / "config.json").is_file():
        raise UserError(f"{folder} is not a Hugging Face model: it has no config.json")
    if not any(path for pattern in WEIGHTS for path in folder.glob(pattern)):
        raise UserError(f"{folder} is a model without weights; accepted: a folder that holds {' or '.join(WEIGHTS)}")


@contextmanager
def _report_errors(name: str) -> "Iterator[None]":
    """Turn whatever loading a model can raise into one sentence."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as problem:  # damaged files end in errors of every type, in four libraries
        first = next((line.strip() for line in str(problem).splitlines() if line.strip()), type(problem).__name__)
        if Path(name).is_dir():
            raise UserError(f"{name} cannot be loaded as a Hugging Face model: {first:.200}") from None
        offline = " (HF_HUB_OFFLINE is set)" if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0") else ""
        raise Missing(
            f"there is no folder '{name}' here and the hub gave no such model{offline}: {first:.160}; accepted: a "
            "folder with a Hugging Face model, or a name as gpt2 or EleutherAI/pythia-70m",
            name,
        ) from None


@contextmanager
def _without_output() -> "Iterator[None]":
    """Without the progress bars and notes that loading prints."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
