"""Tiny models with random weights, in folders as Hugging Face keeps them."""

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from unbraid.activations.huggingface import load_model

ROOT = Path(__file__).parents[2]

SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]
WORDS = [
    *("the", "a", "cat", "dog", "sat", "ran", "on", "mat"),
    *("and", "then", "big", "small", "tree", "house", "saw", "it"),
]


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a word; a beginning is put before every text, and an end after."""
    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(SPECIAL + WORDS)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


def small(kind: str) -> torch.nn.Module:
    torch.manual_seed(0)
    words, width = len(SPECIAL) + len(WORDS), 12
    if kind == "llama":
        return LlamaForCausalLM(
            LlamaConfig(
                vocab_size=words,
                hidden_size=width,
                intermediate_size=20,
                num_hidden_layers=3,
                num_attention_heads=2,
                max_position_embeddings=32,
            )
        )
    if kind == "gpt2":
        return GPT2LMHeadModel(GPT2Config(vocab_size=words, n_embd=width, n_layer=3, n_head=2, n_positions=32))
    return BertModel(
        BertConfig(
            vocab_size=words,
            hidden_size=width,
            intermediate_size=20,
            num_hidden_layers=3,
            num_attention_heads=2,
            max_position_embeddings=32,
        )
    )


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """A folder for each kind of model."""
    made = {}
    for kind in ("llama", "gpt2", "bert"):
        folder = tmp_path_factory.mktemp("models") / kind
        small(kind).save_pretrained(folder)
        tokenizer().save_pretrained(folder)
        made[kind] = folder
    return made


@pytest.fixture(scope="session")
def llama(folders):
    return load_model(folders["llama"])


@pytest.fixture(scope="session")
def bert(folders):
    return load_model(folders["bert"])


@pytest.fixture(scope="session")
def gpt2(folders):
    return load_model(folders["gpt2"])


@pytest.fixture(scope="session")
def real_data():
    """The folder that `make real-data` fills."""
    folder = ROOT / "real-data"
    if not (folder / "labelled").is_dir():
        pytest.fail(f"{folder} is not there: `make real-data` fetches it")
    return folder


@pytest.fixture(scope="session")
def stories15m(real_data):
    return load_model(real_data / "stories15M")


@pytest.fixture(scope="session")
def minilm(real_data):
    return load_model(real_data / "all-MiniLM-L6-v2")
