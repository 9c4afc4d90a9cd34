"""A tiny Llama whose embeddings tell first letters, with texts it can read."""

import json

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from unbraid.activations.huggingface import load_model
from unbraid.activations.sites import find_site
from unbraid.dictionaries import Dictionary, Relu, Stack
from unbraid.evaluation.language_model.sae import SAE

SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]
LETTERS, EACH, WIDTH = "abcde", 120, 32


def words():
    """Words of four letters, as many with each first letter."""
    rng = np.random.default_rng(0)
    made = {first: set() for first in LETTERS}
    for first, some in made.items():
        while len(some) < EACH:
            some.add(first + "".join(rng.choice(list("klmnopqrst"), 3)))
    return [word for first in LETTERS for word in sorted(made[first])]


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Embeddings are a direction of the first letter, and one of the word's own."""
    vocabulary = {word: place for place, word in enumerate(SPECIAL + words())}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=WIDTH,
        intermediate_size=20,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=32,
        initializer_range=0.3,
    )
    model = LlamaForCausalLM(config)
    rows = torch.randn(len(vocabulary), WIDTH) * 0.3
    for word, place in vocabulary.items():
        if word[0] in LETTERS:
            rows[place, LETTERS.index(word[0])] += 2
    model.model.embed_tokens.weight.data = rows
    made = tmp_path_factory.mktemp("models") / "tiny"
    model.save_pretrained(made)
    PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    ).save_pretrained(made)
    return made


@pytest.fixture(scope="session")
def model(folder):
    return load_model(folder)


@pytest.fixture(scope="session")
def middle(model):
    return find_site(model, "blocks.0.hook_resid_post")


@pytest.fixture(scope="session")
def text(tmp_path_factory):
    """Documents of different lengths, some longer than a window."""
    rng = np.random.default_rng(1)
    path = tmp_path_factory.mktemp("texts") / "text.txt"
    path.write_text("\n\n".join(" ".join(rng.choice(words(), size)) for size in (3, 40, 11, 1, 25, 18, 30)))
    return path


@pytest.fixture(scope="session")
def labelled(tmp_path_factory):
    """Texts of two classes that are told by which words they hold, and three whose words say nothing."""
    rng = np.random.default_rng(2)
    folder, named = tmp_path_factory.mktemp("labelled"), words()
    sources = {"told": {"x": named[:EACH], "y": named[EACH : 2 * EACH]}, "untold": dict.fromkeys("xyz", named)}
    for name, classes in sources.items():
        rows = [
            {"text": " ".join(rng.choice(some, 6)), "label": label, "split": "test" if place % 4 == 0 else "train"}
            for label, some in classes.items()
            for place in range(200)
        ]
        (folder / f"{name}.jsonl").write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    return folder


def identity(width=WIDTH):
    """Every direction and its opposite: relu of both gives x back exactly."""
    rows = torch.cat([torch.eye(width), -torch.eye(width)])[None]
    return SAE(Stack(rows, torch.zeros(1, 2 * width), rows.clone(), None, Relu()))


def silent(width=WIDTH):
    """A dictionary that never fires: it answers zero."""
    started = Stack.start(Dictionary(d_sae=8), width, [0])
    return SAE(started.with_parameters({"encoder_bias": torch.full((1, 8), -1e9)}))


@pytest.fixture(scope="session")
def perfect():
    return identity()


@pytest.fixture(scope="session")
def mute():
    return silent()
