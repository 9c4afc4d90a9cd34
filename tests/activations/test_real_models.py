"""The converted models are the ones their makers trained: their figures are as published."""

import itertools

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from materials.stories import MODEL_BYTES, Piece, packed, pieces
from unbraid.activations.capture import CaptureConfig, capture_sites
from unbraid.activations.sites import find_site, read_site
from unbraid.activations.text import read_documents
from unbraid.progress import Silent

TEXTS = [
    "Once upon a time, there was a little girl named Lily.",
    'She said, "I can\'t!"  Two  spaces\nand a new line.\n\n',
    "Él pidió un café con leche; Україна; 日本語 🙂 naïve ﬁ",
    "1234567890 $%&*(){}[] \t tabs",
    "hello",
    " a leading space",
    "the end </s",
]


def encode(text: str, vocabulary: list[Piece]) -> list[int]:
    """llama2.c's `encode`: characters or else their bytes, then the best-scored merge, again and again."""
    ids = {piece.text: index for index, piece in reversed(list(enumerate(vocabulary)))}
    tokens = [ids[" "]]
    for letter in text:
        tokens += [ids[letter]] if letter in ids else [byte + 3 for byte in letter.encode()]
    while True:
        best, where, score = None, -1, -1e10
        for i, (left, right) in enumerate(itertools.pairwise(tokens)):
            found = ids.get(vocabulary[left].text + vocabulary[right].text)
            if found is not None and vocabulary[found].score > score:
                best, where, score = found, i, vocabulary[found].score
        if best is None:
            return [1, *tokens]
        tokens[where : where + 2] = [best]


@pytest.fixture(scope="module")
def vocabulary(real_data):
    return pieces(packed(real_data / "downloads")[MODEL_BYTES:])


@pytest.mark.parametrize("text", TEXTS)
def test_the_tokenizer_is_the_one_of_llama2_c(stories15m, vocabulary, text):
    found = stories15m.tokenizer(text)["input_ids"]
    assert found == encode(text, vocabulary)
    assert stories15m.tokenizer.decode(found[1:]) == text


def test_a_paragraph_of_an_encyclopaedia_is_tokenised_alike(stories15m, vocabulary, real_data):
    lines = (real_data / "wikitext-2" / "test.txt").read_text().splitlines()
    for line in [line for line in lines if len(line) > 300][:5]:
        assert stories15m.tokenizer(line)["input_ids"] == encode(line, vocabulary)


def losses(model, tokens):
    logits = model.model(input_ids=tokens).logits
    return float(cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()))


def test_a_story_is_expected_and_its_shuffled_words_are_not(stories15m):
    """About .9 nats a token on a story of its own, about 10 when shuffled (log of the vocabulary is 10.4)."""
    torch.manual_seed(0)
    begun = torch.ones(4, 1, dtype=torch.long)
    story = stories15m.model.generate(begun, max_new_tokens=80, do_sample=True, top_k=0, pad_token_id=2, use_cache=True)
    whole = story[(story[:, 1:] <= 2).sum(1) == 0]
    assert len(whole) >= 1
    assert 0.6 < losses(stories15m, whole) < 1.4
    shuffled = torch.stack([row[torch.randperm(len(row))] for row in whole])
    assert losses(stories15m, shuffled) > 8


def llama2_c(content: bytes, tokens: list[int]) -> torch.Tensor:
    """The logits as llama2.c computes them, from its own file: pairs of neighbours are turned, tensor after tensor."""
    dim, hidden, layers, heads, _, words, _ = np.frombuffer(content, np.int32, 7).tolist()
    floats = iter(
        np.split(
            np.frombuffer(content, np.float32, offset=28),
            np.cumsum(
                [
                    words * dim,
                    layers * dim,
                    *[layers * dim * dim] * 4,
                    layers * dim,
                    *[layers * dim * hidden] * 3,
                    dim,
                ]
            ),
        )
    )
    embedding, before, q, k, v, out, middle, w1, w2, w3, final = (torch.tensor(next(floats)) for _ in range(11))
    shape, head, time = (layers, -1, dim), dim // heads, len(tokens)
    angle = torch.arange(time)[:, None] * 10000.0 ** (-torch.arange(0, head, 2) / head)
    turn = torch.polar(torch.ones_like(angle), angle)[:, None]

    def norm(x, weight):
        return x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * weight

    def turned(rows):
        pairs = torch.view_as_complex(rows.view(time, heads, head // 2, 2).contiguous())
        return torch.view_as_real(pairs * turn).flatten(2)

    x = embedding.view(words, dim)[tokens]
    for i in range(layers):
        y = norm(x, before.view(layers, dim)[i])
        query, key = (turned(y @ weight.view(shape)[i].T) for weight in (q, k))
        scores = torch.einsum("thd,shd->hts", query, key) / head**0.5
        pattern = scores.masked_fill(torch.ones(time, time).triu(1).bool(), -torch.inf).softmax(-1)
        value = (y @ v.view(shape)[i].T).view(time, heads, head)
        x = x + torch.einsum("hts,shd->thd", pattern, value).flatten(1) @ out.view(shape)[i].T
        y = norm(x, middle.view(layers, dim)[i])
        gate = torch.nn.functional.silu(y @ w1.view(layers, hidden, dim)[i].T)
        x = x + (gate * (y @ w3.view(layers, hidden, dim)[i].T)) @ w2.view(layers, dim, hidden)[i].T
    return norm(x, final) @ embedding.view(words, dim).T


def test_the_converted_model_computes_what_llama2_c_does(stories15m, real_data):
    tokens = stories15m.tokenizer(TEXTS[0] + " She loved to play outside in the park.")["input_ids"]
    truth = llama2_c(packed(real_data / "downloads")[:MODEL_BYTES], tokens)
    torch.testing.assert_close(
        stories15m.model(input_ids=torch.tensor([tokens])).logits[0], truth, rtol=1e-3, atol=1e-3
    )


def test_minilm_puts_like_sentences_together(minilm):
    sentences = ["A dog ran in the park.", "A puppy was running through the garden.", "The bank raised its rates."]
    given = minilm.tokenizer(sentences, return_tensors="pt", padding=True)
    rows = read_site(minilm, find_site(minilm, "encoder.layer.5"), given["input_ids"], given["attention_mask"])
    mask = given["attention_mask"][..., None]
    means = torch.nn.functional.normalize((rows * mask).sum(1) / mask.sum(1), dim=1)
    cosine = means @ means.T
    assert cosine[0, 1] > 0.45 > 0.2 > cosine[0, 2]


@pytest.mark.parametrize(("kind", "layer"), [("stories15m", 3), ("minilm", 2)])
def test_a_capture_of_a_real_model_is_what_transformers_says(kind, layer, request, real_data, tmp_path):
    """A hundred tokens of an encyclopaedia, against transformers' own hidden states of each paragraph alone."""
    model = request.getfixturevalue(kind)
    text = real_data / "wikitext-2" / "test.txt"
    site = find_site(model, f"blocks.{layer}.hook_resid_post")
    config = CaptureConfig(model=model.name, text=str(text), site=site.name, tokens=100, context=64)
    shards = capture_sites(model, [site], config, tmp_path / "out", Silent())
    rows = np.arange(100)
    found, documents_of = shards.activations(rows), shards.column("documents", rows)
    paragraphs = list(itertools.islice(read_documents(text), 3))
    for number in np.unique(documents_of):
        given = model.tokenizer(paragraphs[number], truncation=True, max_length=64, return_tensors="pt")
        truth = model.model(**given, output_hidden_states=True).hidden_states[layer + 1][0]
        mine = rows[documents_of == number]
        mine = mine[: len(truth)]
        places = shards.column("positions", mine)
        first = np.flatnonzero(np.diff(places, prepend=-1) < 0)  # where its second window begins
        mine, places = (some[: first[0]] if len(first) else some for some in (mine, places))
        torch.testing.assert_close(found[mine], truth[places], rtol=1e-3, atol=1e-4)
