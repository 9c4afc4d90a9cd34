"""Documents come out of a text as it says; what is no text is refused."""

import itertools

import numpy as np
import pytest

from unbraid.activations.text import (
    batch_by_length,
    cut_windows,
    pad_windows,
    read_documents,
    special_token_ids,
    text_fingerprint,
)
from unbraid.errors import UserError


def test_blank_lines_end_a_document(tmp_path):
    (tmp_path / "a.txt").write_text("\n\none\ntwo\n \t\nthree  \n\n\n four")
    assert list(read_documents(tmp_path / "a.txt")) == ["one\ntwo", "three", "four"]


def test_a_line_of_json_is_a_document(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "one\\n\\ntwo", "label": 3}\n\n{"text": " "}\n{"text": "három"}\n')
    assert list(read_documents(tmp_path / "a.jsonl")) == ["one\n\ntwo", "három"]


def test_a_folder_is_its_files_in_order(tmp_path):
    (tmp_path / "b.txt").write_text("b")
    (tmp_path / "a.jsonl").write_text('{"text": "a"}')
    (tmp_path / "c.png").write_bytes(b"\xff\xfe")
    assert list(read_documents(tmp_path)) == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", b"", "is empty"),
        ("a.txt", b" \n\n\t\n", "is empty"),
        ("a.txt", "caf\u00e9".encode("latin-1"), "is not UTF-8"),
        ("a.jsonl", b'{"text": "a"}\n{"words": "b"}\n', "line 2 of"),
        ("a.jsonl", b"[1]\n", "line 1 of"),
        ("a.jsonl", b'{"text": 3}\n', "line 1 of"),
        ("a.jsonl", b"not json\n", "line 1 of"),
    ],
)
def test_what_is_no_text_is_refused(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=said):
        list(read_documents(tmp_path / name))


def test_what_is_not_there_is_refused(tmp_path):
    with pytest.raises(UserError, match="there is no such text"):
        list(read_documents(tmp_path / "nothing.txt"))
    with pytest.raises(UserError, match="holds no text"):
        list(read_documents(tmp_path))


def test_another_text_has_another_fingerprint(tmp_path):
    (tmp_path / "a.txt").write_text("one")
    before = text_fingerprint(tmp_path / "a.txt")
    assert text_fingerprint(tmp_path / "a.txt") == before
    (tmp_path / "a.txt").write_text("two")
    assert text_fingerprint(tmp_path / "a.txt") != before


def test_a_long_document_becomes_several_windows(llama):
    found = list(cut_windows(llama, ["the cat sat", " ".join(["dog"] * 14), "it"], context=8, max_tokens=None))
    assert [len(window.tokens) for window in found] == [5, 8, 8, 4, 3]
    assert [window.n_kept for window in found] == [3, 6, 6, 2, 1]
    assert [window.document for window in found] == [0, 1, 1, 1, 2]
    assert all(window.tokens[0] == 1 and window.tokens[-1] == 2 for window in found)


def test_no_more_tokens_are_kept_than_asked_for(llama):
    texts = ["the cat sat", "a dog ran on it", "the big tree"]
    assert sum(window.n_kept for window in cut_windows(llama, texts, 8, max_tokens=6)) == 6
    assert sum(window.n_kept for window in cut_windows(llama, texts, 8, max_tokens=600)) == 11


def test_documents_are_numbered_across_batches_of_them(llama):
    found = list(cut_windows(llama, ["the cat"] * 600, 8, None))
    assert [window.document for window in found] == list(range(600))


def test_unknown_words_are_kept_and_special_tokens_in_the_text_are_not(llama, gpt2):
    (window,) = cut_windows(llama, ["the zebra </s> sat"], 8, None)
    assert window.tokens.tolist() == [1, 4, 3, 2, 8, 2]
    assert window.kept.tolist() == [False, True, True, False, True, False]
    assert special_token_ids(gpt2) == {0, 1, 2}


def test_batches_hold_like_lengths_and_every_window_once(llama, rng):
    lengths = rng.integers(1, 20, 57)
    found = list(cut_windows(llama, [" ".join(["cat"] * int(length)) for length in lengths], 32, None))
    batches = list(batch_by_length(found, 64))
    assert sorted(index for batch in batches for index in batch) == list(range(57))
    sizes = [[len(found[index].tokens) for index in batch] for batch in batches]
    assert all(len(size) * max(size) <= 64 for size in sizes)
    assert all(min(before) >= max(after) for before, after in itertools.pairwise(sizes))


def test_only_an_encoder_with_padding_needs_a_mask(llama, bert):
    uneven = list(cut_windows(bert, ["the cat", "it"], 8, None))
    tokens, mask = pad_windows(bert, uneven)
    assert tokens.tolist() == [[1, 4, 6, 2], [1, 19, 2, 0]]
    assert mask is not None
    assert mask.tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]
    assert pad_windows(bert, uneven[:1])[1] is None
    assert pad_windows(llama, uneven)[1] is None
    assert np.array_equal(pad_windows(llama, uneven)[0], tokens)
